//! A run looked at as a whole: what it holds, what that takes on disk, and what retention would keep.

use std::collections::HashSet;
use std::path::Path;

use super::run::while_they_vanish;
use super::{CheckpointInfo, Damaged, RestoreError, Run};
use crate::commit::{Decision, Retention};
use crate::format::Manifest;
use crate::snapshot::{Watch, verify_all};
use crate::storage::FileId;

/// What lies in a run.
#[derive(Debug)]
pub struct Listing {
    /// The committed checkpoints, in ascending order of their steps.
    pub checkpoints: Vec<Listed>,
    /// What has the name of a checkpoint and cannot be used.
    pub damaged: Vec<Damaged>,
}

/// A checkpoint, and what it takes on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// What it is.
    pub info: CheckpointInfo,
    /// Bytes of its files that an earlier step of the run has too; `None` where nobody can tell.
    pub linked: Option<u64>,
}

impl Listed {
    /// Bytes of its files that no earlier step of the run has; `None` where nobody can tell.
    pub fn new_bytes(&self) -> Option<u64> {
        let linked = self.linked?;
        Some(self.info.nbytes.saturating_sub(linked))
    }
}

impl Run {
    /// All that lies in the run. Tensors are not read.
    ///
    /// # Errors
    ///
    /// As [`checkpoints`](Self::checkpoints).
    pub fn listing(&self) -> Result<Listing, RestoreError> {
        while_they_vanish(|| {
            let (mut seen, mut vanished) = (HashSet::new(), false);
            let (mut checkpoints, mut damaged) = (Vec::new(), Vec::new());
            for step in self.candidates()? {
                match self.listed(step, &mut seen) {
                    Ok(listed) => checkpoints.push(listed),
                    Err(error) if error.is_damage() && self.has_vanished(step) => vanished = true,
                    Err(error @ RestoreError::Io(_)) if !error.may_be_passed_over() => {
                        return Err(error);
                    }
                    Err(error) => damaged.push(Damaged { step, error }),
                }
            }
            let listing = Listing {
                checkpoints,
                damaged,
            };
            Ok((listing, vanished))
        })
    }

    fn listed(&self, step: u64, seen: &mut HashSet<FileId>) -> Result<Listed, RestoreError> {
        let (path, manifest) = self.head(step)?;
        let linked = self.linked(&path, &manifest, seen);
        let info = CheckpointInfo::new(&manifest, path);
        Ok(Listed { info, linked })
    }

    /// Bytes of the files that were seen before; from now on all of them were.
    fn linked(&self, path: &Path, manifest: &Manifest, seen: &mut HashSet<FileId>) -> Option<u64> {
        let (mut linked, mut known) = (0u64, true);
        for (name, entry) in &manifest.files {
            match self.storage().identity(&path.join(name)) {
                Ok(Some(file)) if seen.insert(file) => {}
                Ok(Some(_)) => linked = linked.saturating_add(entry.size),
                Ok(None) | Err(_) => known = false,
            }
        }
        known.then_some(linked)
    }

    /// What `retention` would keep, and why. Never lets the last intact checkpoint go: if a rule lets any go, those
    /// that stay are read until one is found to be intact; if none is, the newest intact of the others stays.
    ///
    /// # Errors
    ///
    /// As [`checkpoints`](Self::checkpoints); [`RestoreError::Io`] also if none is found to be intact, and one
    /// could not be read, which may be; `Interrupted` if `watch` ended it.
    pub fn plan(
        &self,
        retention: &Retention,
        watch: Watch<'_>,
    ) -> Result<Vec<Decision>, RestoreError> {
        let checkpoints = self.checkpoints()?;
        let summaries: Vec<_> = checkpoints.iter().map(CheckpointInfo::summary).collect();
        let mut decisions = retention.decide(&summaries);
        let newest_first = (0..decisions.len()).rev();
        let (kept, surplus): (Vec<_>, Vec<_>) = newest_first.partition(|&at| decisions[at].keep);
        if surplus.is_empty() {
            return Ok(decisions);
        }
        let mut unreadable = None;
        for decision in kept.into_iter().chain(surplus) {
            let decision = &mut decisions[decision];
            let intact = self.is_intact(decision.step, watch);
            watch.check()?;
            match intact {
                Ok(true) => {
                    if !decision.keep {
                        decision.keep = true;
                        let reason = "none of those that the rule keeps is intact";
                        decision.reasons.push(reason.into());
                    }
                    return Ok(decisions);
                }
                Ok(false) => {}
                Err(error) => {
                    unreadable.get_or_insert(error);
                }
            }
        }
        unreadable.map_or(Ok(decisions), Err)
    }

    /// Reads all of a checkpoint to find out.
    fn is_intact(&self, step: u64, watch: Watch<'_>) -> Result<bool, RestoreError> {
        let read = self.open(step, true).and_then(|opened| {
            let errors = verify_all(&opened.state.tensors, watch).into_iter();
            let errors = errors.map(|error| RestoreError::reading(&opened.info.path, error));
            // Damage is certain, whatever else cannot be read.
            errors
                .min_by_key(|error| !error.is_damage())
                .map_or(Ok(()), Err)
        });
        match read {
            Ok(()) => Ok(true),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
