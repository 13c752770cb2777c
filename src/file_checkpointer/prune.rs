//! Applying retention after a save.

use std::path::PathBuf;

use super::{CheckpointInfo, FileCheckpointer};
use crate::commit::{Change, Retention, publish, remove_tree, step_name};

impl FileCheckpointer {
    /// Deletes the checkpoints that the rule does not keep. What cannot be deleted now is tried again after
    /// the next save, since the rule is applied to all that is there.
    ///
    /// Others may be removing checkpoints by hand meanwhile, those that are to stay too. So nothing is removed
    /// for good before one of these has been found whole after everything else was taken out of sight.
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
        let (mut kept, mut surplus): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for decision in decisions {
            let steps = if decision.keep {
                &mut kept
            } else {
                &mut surplus
            };
            steps.push(decision.step);
        }
        if surplus.is_empty() {
            return;
        }
        if !self.any_intact(&kept) {
            // The one just saved is intact. It may only go if another one is.
            log::warn!("step {saved} stays, since none of the checkpoints to keep is intact");
            surplus.retain(|&step| step != saved);
            kept.push(saved);
        }
        let retired = self.retire(&surplus);
        if self.any_intact(&kept) {
            self.remove_retired(retired);
        } else {
            self.put_back(retired);
        }
    }

    /// Takes checkpoints out of sight; returns their steps and where they lie now.
    fn retire(&self, steps: &[u64]) -> Vec<(u64, PathBuf)> {
        let mut retired = Vec::with_capacity(steps.len());
        for &step in steps {
            match self.hide(step) {
                Ok(hidden) => retired.push((step, hidden)),
                Err(error) => log::warn!("step {step} is not deleted yet: {error}"),
            }
        }
        retired
    }

    /// Removes all but the newest at once; its files are for the next save to write over.
    fn remove_retired(&self, mut retired: Vec<(u64, PathBuf)>) {
        let storage = self.run.storage().as_ref();
        let newest = retired.pop_if(|_| self.options.recycle);
        let removed = retired.iter().map(|(_, dir)| remove_tree(storage, dir));
        let put = newest.map(|(_, dir)| self.bin.put(storage, &dir));
        for error in removed.chain(put).filter_map(Result::err) {
            log::warn!("what was deleted is not all gone yet: {error}");
        }
    }

    /// Brings back what was taken out of sight, since nothing else is left.
    fn put_back(&self, retired: Vec<(u64, PathBuf)>) {
        for (step, hidden) in retired {
            let staged = hidden.file_name().unwrap_or_default().to_string_lossy();
            let change = Change::Appear {
                staged: &staged,
                name: &step_name(step),
            };
            let storage = self.run.storage().as_ref();
            match publish(storage, self.run.directory(), change) {
                Ok(()) => log::warn!(
                    "step {step} stays, since the checkpoints to keep were removed meanwhile"
                ),
                Err(error) => log::warn!("step {step} cannot be brought back: {error}"),
            }
        }
    }

    /// Whether one of the steps is intact, and still all there; those that this checkpointer did not write
    /// are read to find out.
    fn any_intact(&self, steps: &[u64]) -> bool {
        let is_known = |step: &&u64| self.is_known_intact(**step);
        let (known, others): (Vec<u64>, Vec<u64>) = steps.iter().partition(is_known);
        let still_there = |&step: &u64| self.run.has_all_files(step);
        known.iter().any(still_there) || others.iter().rev().any(|&step| self.is_intact(step))
    }

    /// Reads the checkpoint to find out, and remembers it.
    fn is_intact(&self, step: u64) -> bool {
        let opened = self.run.open(step, true);
        let intact = opened.and_then(|opened| opened.verify()).is_ok();
        if intact {
            self.note_intact(step);
        }
        intact
    }
}

#[cfg(test)]
mod tests;
