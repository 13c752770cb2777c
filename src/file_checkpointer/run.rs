//! Looking at a run: no lock, nothing written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::reader::{self, Opened};
use super::{CheckpointInfo, RestoreError};
use crate::commit::{self, Mode};
use crate::format::{MANIFEST, Manifest};
use crate::storage::{EntryKind, Storage};

/// How often a listing is looked through again while checkpoints vanish from it.
const LOOKS: usize = 100;

/// The checkpoints of a run, to look at: any number of these may be open, on read-only directories too.
#[derive(Debug, Clone)]
pub struct Run {
    storage: Arc<dyn Storage>,
    directory: PathBuf,
    unsettled: Arc<Unsettled>,
}

/// Steps that are being saved for the first time: they may have their names already, and lose them again
/// in a power cut. Known to the writer and to clones of its [`Run`].
#[derive(Debug, Default)]
struct Unsettled(Mutex<BTreeSet<u64>>);

impl Unsettled {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a step out of sight until it is dropped.
#[derive(Debug)]
pub(super) struct Curtain {
    unsettled: Arc<Unsettled>,
    step: u64,
}

impl Drop for Curtain {
    fn drop(&mut self) {
        self.unsettled.lock().remove(&self.step);
    }
}

/// A checkpoint that cannot be used, and why.
#[derive(Debug)]
pub struct Damaged {
    /// Its step.
    pub step: u64,
    /// What is wrong.
    pub error: RestoreError,
}

impl Run {
    /// The run in `directory`.
    pub fn new(storage: Arc<dyn Storage>, directory: impl Into<PathBuf>) -> Run {
        Run {
            storage,
            directory: directory.into(),
            unsettled: Arc::default(),
        }
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Keeps a step out of sight while it is saved; one that is there already stays in sight, since it is
    /// durable until it is replaced.
    pub(super) fn draw_curtain(&self, step: u64) -> Option<Curtain> {
        let free = matches!(self.storage.kind(&self.path(step)), Ok(None));
        // Of two that save the same step, the first one's curtain is enough: only one gets the name.
        (free && self.unsettled.lock().insert(step)).then(|| Curtain {
            unsettled: Arc::clone(&self.unsettled),
            step,
        })
    }

    /// Where the checkpoint of a step lies, or would.
    pub fn path(&self, step: u64) -> PathBuf {
        self.directory.join(commit::step_name(step))
    }

    /// Where the checkpoint of a step lies, unless there is a symbolic link: that leads out of the run, and is no
    /// more followed here than it is listed.
    pub(super) fn own_path(&self, step: u64) -> Result<PathBuf, RestoreError> {
        let path = self.path(step);
        match self.storage.kind(&path) {
            Ok(Some(EntryKind::Other)) => Err(RestoreError::NotFound { path }),
            _ => Ok(path),
        }
    }

    /// Whether the directory itself is one checkpoint.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    pub fn is_checkpoint(&self) -> Result<bool, RestoreError> {
        Ok(self.storage.kind(&self.directory.join(MANIFEST))?.is_some())
    }

    /// Steps that have a directory, ascending, whether or not there is a checkpoint in it. In the process
    /// that saves, one whose name is not durable yet is left out.
    ///
    /// # Errors
    ///
    /// [`RestoreError::NotFound`] if there is no such run; else whatever the system reports.
    pub fn candidates(&self) -> Result<Vec<u64>, RestoreError> {
        let steps = commit::steps(self.storage.as_ref(), &self.directory);
        let mut steps = steps.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => RestoreError::NotFound {
                path: self.directory.clone(),
            },
            _ => RestoreError::Io(error),
        })?;
        // After the look at the directory: a name that was there and is not held back any more is durable.
        let unsettled = self.unsettled.lock();
        steps.retain(|step| !unsettled.contains(step));
        Ok(steps)
    }

    /// The committed checkpoints, in ascending order of their steps. Tensors are not read.
    ///
    /// # Errors
    ///
    /// As [`candidates`](Self::candidates). Damaged ones are left out, and so are, with a warning in the log, those
    /// that there is no permission to read; [`RestoreError::Io`] if that leaves none.
    pub fn checkpoints(&self) -> Result<Vec<CheckpointInfo>, RestoreError> {
        let (found, closed) = while_they_vanish(|| {
            let (mut found, mut closed, mut vanished) = (Vec::new(), None, false);
            for step in self.candidates()? {
                match self.info(step) {
                    Ok(info) => found.push(info),
                    Err(error) if error.is_damage() => {
                        log::debug!("{error}");
                        vanished |= self.has_vanished(step);
                    }
                    Err(error) if error.may_be_passed_over() => {
                        log::warn!("checkpoint left out: {error}");
                        closed = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(((found, closed), vanished))
        })?;
        match closed {
            // Not to be taken for a run that has not begun.
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    /// Whether there is nothing of that step any more.
    pub(super) fn has_vanished(&self, step: u64) -> bool {
        matches!(self.storage.kind(&self.path(step)), Ok(None))
    }

    /// One committed checkpoint.
    ///
    /// # Errors
    ///
    /// [`RestoreError`] if there is none, or its manifest is damaged or cannot be read.
    pub fn info(&self, step: u64) -> Result<CheckpointInfo, RestoreError> {
        let (path, manifest) = self.head(step)?;
        Ok(CheckpointInfo::new(&manifest, path))
    }

    /// Where a committed checkpoint lies, and what its manifest says before the tree and the tensors.
    pub(super) fn head(&self, step: u64) -> Result<(PathBuf, Manifest), RestoreError> {
        let path = self.own_path(step)?;
        let manifest = reader::read_head(self.storage.as_ref(), &path)?;
        check_step(&path, step, manifest.step)?;
        // After the look at the manifest, as in `candidates`.
        if self.unsettled.lock().contains(&step) {
            return Err(RestoreError::NotFound { path });
        }
        Ok((path, manifest))
    }

    /// The newest committed checkpoint.
    ///
    /// # Errors
    ///
    /// As [`checkpoints`](Self::checkpoints).
    pub fn latest(&self) -> Result<Option<CheckpointInfo>, RestoreError> {
        match self.latest_of(|_| true)? {
            (None, Some(closed)) => Err(closed),
            (found, _) => Ok(found),
        }
    }

    /// The newest committed checkpoint, if it is later than `step`. Others are not looked into, so that this
    /// costs next to nothing when `step` is the newest.
    ///
    /// # Errors
    ///
    /// As [`candidates`](Self::candidates).
    pub fn latest_after(&self, step: u64) -> Result<Option<CheckpointInfo>, RestoreError> {
        Ok(self.latest_of(|candidate| candidate > step)?.0)
    }

    /// The newest of those that are wanted; if there is none, also why the newest may not be read, if there is one
    /// that may not.
    fn latest_of(
        &self,
        wanted: impl Fn(u64) -> bool,
    ) -> Result<(Option<CheckpointInfo>, Option<RestoreError>), RestoreError> {
        while_they_vanish(|| {
            let (mut closed, mut vanished) = (None, false);
            let mut steps = self.candidates()?;
            steps.retain(|&step| wanted(step));
            for step in steps.into_iter().rev() {
                match self.info(step) {
                    Ok(info) => return Ok(((Some(info), None), false)),
                    Err(error) if error.is_damage() => {
                        log::debug!("{error}");
                        vanished |= self.has_vanished(step);
                    }
                    Err(error) if error.may_be_passed_over() => {
                        log::warn!("checkpoint left out: {error}");
                        closed.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(((None, closed), vanished))
        })
    }

    /// The committed checkpoint with the best value of a metric; of equal ones the earliest. Values that are
    /// NaN or missing are never best.
    ///
    /// # Errors
    ///
    /// As [`checkpoints`](Self::checkpoints).
    pub fn best(&self, metric: &str, mode: Mode) -> Result<Option<CheckpointInfo>, RestoreError> {
        let usable = |info: CheckpointInfo| {
            let value = info.metrics.get(metric).copied();
            Some((value.filter(|value| !value.is_nan())?, info))
        };
        let best = self
            .checkpoints()?
            .into_iter()
            .filter_map(usable)
            .min_by(|(a, _), (b, _)| mode.compare(*a, *b));
        Ok(best.map(|(_, info)| info))
    }

    /// Opens the checkpoint of a step. Tensors are not read yet; with `verify` each is compared with its
    /// checksum when it is, and the rest is compared now.
    ///
    /// # Errors
    ///
    /// [`RestoreError`] if there is none, or it is damaged or cannot be read.
    pub fn open(&self, step: u64, verify: bool) -> Result<Opened, RestoreError> {
        let path = self.own_path(step)?;
        let (manifest, opened) = reader::open(self.storage.as_ref(), &path, verify)?;
        check_step(&path, step, manifest.step)?;
        Ok(opened)
    }

    /// Whether each file of a checkpoint is there and as long as it was. No more of it than the manifest is read.
    pub(super) fn has_all_files(&self, step: u64) -> bool {
        reader::has_all_files(self.storage.as_ref(), &self.path(step))
    }

    /// Opens the directory itself as one checkpoint.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_here(&self, verify: bool) -> Result<Opened, RestoreError> {
        Ok(reader::open(self.storage.as_ref(), &self.directory, verify)?.1)
    }

    /// The directory itself as one checkpoint.
    ///
    /// # Errors
    ///
    /// As [`info`](Self::info).
    pub fn info_here(&self) -> Result<CheckpointInfo, RestoreError> {
        let manifest = reader::read_head(self.storage.as_ref(), &self.directory)?;
        Ok(CheckpointInfo::new(&manifest, self.directory.clone()))
    }

    /// Tries the checkpoints from the newest on until `restore` succeeds; returns what it made of the first
    /// intact one, and those passed over: damaged ones, and those that there is no permission to read. A warning is
    /// logged for each of those.
    ///
    /// # Errors
    ///
    /// Any other error, at once; or, if all are passed over, that of the newest one. A directory that has no
    /// manifest is passed over too, but is no checkpoint to fail for.
    pub fn newest_intact<T>(
        &self,
        mut restore: impl FnMut(u64) -> Result<T, RestoreError>,
    ) -> Result<(Option<T>, Vec<Damaged>), RestoreError> {
        let (found, mut damaged) = while_they_vanish(|| {
            let (mut damaged, mut vanished) = (Vec::new(), false);
            for step in self.candidates()?.into_iter().rev() {
                match restore(step) {
                    Ok(restored) => return Ok(((Some(restored), damaged), false)),
                    Err(error) if error.is_damage() && self.has_vanished(step) => vanished = true,
                    Err(error) if error.may_be_passed_over() => {
                        damaged.push(Damaged { step, error });
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(((None, damaged), vanished))
        })?;
        for Damaged { error, .. } in &damaged {
            log::warn!("checkpoint passed over: {error}");
        }
        if found.is_some() {
            return Ok((found, damaged));
        }
        match damaged
            .iter()
            .position(|it: &Damaged| !matches!(it.error, RestoreError::NotFound { .. }))
        {
            Some(newest) => Err(damaged.swap_remove(newest).error),
            None => Ok((None, damaged)),
        }
    }
}

/// Looks again as long as checkpoints vanish between the listing and the look at them: a writer deletes
/// old ones after it has made new ones, which the listing may not show yet.
pub(super) fn while_they_vanish<T>(
    mut look: impl FnMut() -> Result<(T, bool), RestoreError>,
) -> Result<T, RestoreError> {
    for _ in 0..LOOKS {
        if let (found, false) = look()? {
            return Ok(found);
        }
    }
    Ok(look()?.0)
}

/// A directory that was renamed to another step would restore as what it is not.
fn check_step(path: &Path, expected: u64, found: u64) -> Result<(), RestoreError> {
    if expected == found {
        return Ok(());
    }
    Err(RestoreError::Misplaced {
        path: path.to_owned(),
        found,
    })
}
