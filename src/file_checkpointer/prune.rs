//! Applying retention after a save.

use super::{CheckpointInfo, FileCheckpointer};
use crate::commit::{Retention, remove_tree};

impl FileCheckpointer {
    /// Deletes the checkpoints that the rule does not keep. What cannot be deleted now is tried again after
    /// the next save, since the rule is applied to all that is there.
    pub(super) fn prune(&self, saved: u64, retention: &Retention) {
        if matches!(retention, Retention::All) {
            return;
        }
        let summaries: Vec<_> = match self.run.checkpoints() {
            Ok(infos) => infos.iter().map(CheckpointInfo::summary).collect(),
            Err(error) => {
                return log::warn!("nothing is pruned, since the run cannot be listed: {error}");
            }
        };
        let decisions = retention.decide(&summaries);
        let (kept, surplus): (Vec<_>, Vec<_>) =
            decisions.iter().partition(|decision| decision.keep);
        let kept: Vec<u64> = kept.iter().map(|decision| decision.step).collect();
        let spare = !self.any_intact(&kept);
        let storage = self.run.storage().as_ref();
        let mut retired = None;
        for decision in surplus {
            // The one just saved is intact. It may only go if another one is.
            if spare && decision.step == saved {
                log::warn!("step {saved} stays, since none of the checkpoints to keep is intact");
                continue;
            }
            // All but the newest go at once.
            let hidden = self.hide(decision.step).and_then(|hidden| {
                let older = retired.replace(hidden);
                older.map_or(Ok(()), |older| remove_tree(storage, &older))
            });
            if let Err(error) = hidden {
                log::warn!("step {} is not deleted yet: {error}", decision.step);
            }
        }
        let Some(retired) = retired else { return };
        let kept = if self.options.recycle {
            self.bin.put(storage, &retired)
        } else {
            remove_tree(storage, &retired)
        };
        if let Err(error) = kept {
            log::warn!("what was deleted is not all gone yet: {error}");
        }
    }

    /// Whether one of the steps is intact; those that this checkpointer did not write are read to find out.
    fn any_intact(&self, steps: &[u64]) -> bool {
        if steps.iter().any(|step| self.memory().intact.contains(step)) {
            return true;
        }
        steps.iter().rev().any(|&step| {
            let intact = self
                .run
                .open(step, true)
                .and_then(|opened| opened.verify())
                .is_ok();
            if intact {
                self.memory().intact.insert(step);
            }
            intact
        })
    }
}
