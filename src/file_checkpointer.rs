//! A [`Checkpointer`] that keeps checkpoints in a directory, made of the other rooms.

mod compare;
mod error;
mod export;
mod info;
mod listing;
mod prune;
mod reader;
mod run;
mod stats;
mod transfer;
mod verify;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::checkpointer::{Checkpointer, CheckpointerError};
use crate::commit::{
    self, Bin, Change, Decision, Hidden, Purpose, Retention, publish, remove_tree,
};
use crate::format::MANIFEST;
use crate::snapshot::Arena;
use crate::state::State;
use crate::storage::{FileVersion, Local, Lock, LockError, Storage};
use writer::{Links, Saved, Versions};

pub use compare::{Changed, Comparison, TensorChange, compare};
pub use error::RestoreError;
pub use export::{export_directory, export_file};
pub use info::CheckpointInfo;
pub use listing::{Listed, Listing};
pub use reader::Opened;
pub use run::{Damaged, Run};
pub use stats::{Cost, History, Outcome, SaveStats, Stats, Timings};
pub use transfer::{Reads, SaveOptions, Ticket, Transfer};
pub use verify::Verification;

/// Name of the lock file of a run.
const LOCK: &str = ".lock";

/// How a [`FileCheckpointer`] works.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
pub struct Options {
    /// Which checkpoints stay after each save.
    pub retention: Retention,
    /// Compare checksums when restoring.
    pub verify: bool,
    /// Link files that did not change since the previous checkpoint, instead of writing them. Up to 128
    /// checkpoints share a file then, and damage to it; without, no two share anything. Where files turn out not
    /// to be linkable three times in a row, it is off from then on, which a warning in the log says.
    pub incremental: bool,
    /// The most bytes that snapshots may take; `None`: as many as a state has. What does not fit is written from
    /// where it lies, and [`Ticket::reads`] says how long it must not change.
    pub memory_limit: Option<u64>,
    /// Make every save durable. Without, a power cut may lose or tear checkpoints that were reported as saved.
    pub fsync: bool,
    /// Keep the files of the checkpoint that [`retention`](Self::retention) retired last, under a hidden name,
    /// until the next save writes over them. That is faster than into new ones, and takes no more room than a
    /// save does without.
    pub recycle: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            retention: Retention::All,
            verify: true,
            incremental: true,
            memory_limit: None,
            fsync: true,
            recycle: true,
        }
    }
}

/// Saves states into a directory, one subdirectory a step, each of them whole or not there at all.
///
/// It holds the lock of the directory; [`Run`] looks at it without.
///
/// # Example
///
/// ```
/// use pitstop::{Checkpointer, FileCheckpointer, Node, Options, State, Tensor};
///
/// # let directory = tempfile::tempdir()?;
/// let checkpointer = FileCheckpointer::open(directory.path(), Options::default())?;
/// let mut state = State::default();
/// let weight = state.push(Tensor::from_vec(vec![1.5f32, 2.5], &[2])?);
/// state.root = Node::dict([("weight", weight), ("epoch", Node::Int(3))]);
/// checkpointer.save(3, state)?;
///
/// let (step, restored) = checkpointer.restore_newest()?.expect("one was saved");
/// assert_eq!(step, 3);
/// let weight = restored.tensor(restored.root.get("weight").unwrap()).unwrap();
/// assert_eq!(weight.to_vec::<f32>().unwrap(), [1.5, 2.5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileCheckpointer {
    run: Run,
    options: Options,
    lock: Mutex<Box<dyn Lock>>,
    memory: Mutex<Memory>,
    arena: Arena,
    bin: Bin,
    links: Links,
}

/// What was found out and need not be read again.
#[derive(Debug, Default)]
struct Memory {
    /// The checkpoint that was saved last.
    last: Option<Saved>,
    /// Steps known to be intact: written, or read in full, by this checkpointer; and their files as they were then.
    intact: BTreeMap<u64, Versions>,
    /// Steps whose checkpoints were found damaged since they were written.
    damaged: BTreeSet<u64>,
}

impl Memory {
    fn note_intact(&mut self, step: u64, files: Versions) {
        self.intact.insert(step, files);
        self.damaged.remove(&step);
    }
}

impl FileCheckpointer {
    /// Opens a directory of the local file system for saving, and creates it if need be. Takes its lock and
    /// removes what writers that died have left behind.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] if another checkpointer writes there; [`LockError::Io`] if it cannot be used, or is itself
    /// one checkpoint.
    pub fn open(
        directory: impl AsRef<Path>,
        options: Options,
    ) -> Result<FileCheckpointer, LockError> {
        let storage = Arc::new(Local::new().fsync(options.fsync));
        FileCheckpointer::with_storage(storage, directory, options)
    }

    /// As [`open`](Self::open), on any storage.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn with_storage(
        storage: Arc<dyn Storage>,
        directory: impl AsRef<Path>,
        options: Options,
    ) -> Result<FileCheckpointer, LockError> {
        let directory = directory.as_ref();
        storage.create_dir_all(directory).map_err(LockError::Io)?;
        refuse_checkpoint(storage.as_ref(), directory)?;
        let lock = storage.lock(&directory.join(LOCK))?;
        commit::sweep(storage.as_ref(), directory).map_err(LockError::Io)?;
        let run = Run::new(storage, directory);
        Ok(FileCheckpointer {
            run,
            options,
            lock: Mutex::new(lock),
            memory: Mutex::default(),
            arena: Arena::default(),
            bin: Bin::default(),
            links: Links::default(),
        })
    }

    /// The run, to look at.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The memory that snapshots are taken in.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Which checkpoints would stay if retention ran now, and why.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    pub fn plan(&self) -> Result<Vec<Decision>, RestoreError> {
        let summaries: Vec<_> = self
            .run
            .checkpoints()?
            .iter()
            .map(CheckpointInfo::summary)
            .collect();
        Ok(self.options.retention.decide(&summaries))
    }

    /// Restores the newest intact checkpoint, with its step; `None` if there is none at all. Damaged ones are
    /// passed over with a warning in the log.
    ///
    /// # Errors
    ///
    /// If all are damaged, or one cannot be read.
    pub fn restore_newest(&self) -> Result<Option<(u64, State)>, RestoreError> {
        Ok(self
            .run
            .newest_intact(|step| Ok((step, self.load(step)?)))?
            .0)
    }

    fn load(&self, step: u64) -> Result<State, RestoreError> {
        let opened = self.run.open(step, self.options.verify);
        let loaded = opened.and_then(|opened| opened.load());
        match &loaded {
            Err(RestoreError::Corrupt { .. }) => self.note_damaged(step),
            Ok(_) if self.options.verify => self.note_intact(step),
            _ => {}
        }
        loaded
    }

    /// In a forked child: closes the lock without releasing it, so that the child neither holds nor frees it.
    pub fn abandon_in_child(&self) {
        // The fork may have happened while the worker looked at it.
        if let Ok(lock) = self.lock.try_lock() {
            lock.abandon_in_child();
        }
    }

    fn write(&self, step: u64, transfer: Transfer) -> Result<(), CheckpointerError> {
        // However this ends, nothing is read afterwards.
        let ticket = Arc::clone(&transfer.ticket);
        let _reading = ticket.reading();
        let _ending = ticket.timings.ending();
        self.keep_locked()?;
        let retention = transfer.options.retention.clone();
        let incremental = self.options.incremental && !self.links.are_hopeless();
        let mut last = self.memory().last.take();
        if last.is_none() && incremental {
            last = self.newest_intact();
        }
        let previous = last.as_ref().filter(|_| incremental);
        let at = previous.map(|saved| self.run.path(saved.manifest.step));
        let site = writer::Site {
            storage: self.run.storage().as_ref(),
            parent: self.run.directory(),
            name: &commit::step_name(step),
            bin: &self.bin,
            links: &self.links,
        };
        let previous = at.as_deref().zip(previous);
        let curtain = self.run.draw_curtain(step);
        let limit = self
            .options
            .memory_limit
            .map_or(usize::MAX, |limit| limit as usize);
        let room = Some((&self.arena, limit));
        let saved = writer::write(&site, step, transfer, room, previous);
        drop(curtain);
        self.bin.empty(site.storage);
        match saved {
            Ok(saved) => {
                let mut memory = self.memory();
                memory.note_intact(step, saved.versions.clone());
                memory.last = Some(saved);
                drop(memory);
                self.prune(step, retention.as_ref().unwrap_or(&self.options.retention));
                Ok(())
            }
            Err(error) => {
                self.memory().last = last;
                Err(error.into())
            }
        }
    }

    /// Takes the lock anew if its file was removed, or the directory made again: somebody else may have taken
    /// it meanwhile.
    fn keep_locked(&self) -> Result<(), CheckpointerError> {
        let path = self.run.directory().join(LOCK);
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.guards(&path) {
            return Ok(());
        }
        *lock = self
            .run
            .storage()
            .lock(&path)
            .map_err(|error| match error {
                LockError::Io(error) => CheckpointerError::IOError(error),
                held @ LockError::Held { .. } => CheckpointerError::Unknown(held.to_string()),
            })?;
        // Whoever held it meanwhile may have written other checkpoints under the names of ours.
        *self.memory() = Memory::default();
        Ok(())
    }

    /// The newest checkpoint that is known to be intact: one that was only found on disk is not linked to, since
    /// damage in it would spread.
    fn newest_intact(&self) -> Option<Saved> {
        let intact = self.memory().intact.clone();
        intact.into_iter().rev().find_map(|(step, versions)| {
            let path = self.run.path(step);
            let (manifest, _) = reader::open(self.run.storage().as_ref(), &path, true).ok()?;
            Some(Saved {
                manifest,
                expected: Vec::new(),
                synced: false,
                versions,
            })
        })
    }

    /// Remembers that all of a checkpoint was read and found intact, so that later saves may link to it.
    pub fn note_intact(&self, step: u64) {
        let files = self.versions(step);
        self.memory().note_intact(step, files);
    }

    /// The files of a checkpoint as they are now, where the storage tells.
    fn versions(&self, step: u64) -> Versions {
        let (storage, path) = (self.run.storage(), self.run.path(step));
        let version = |name: String| {
            let version = storage.version(&path.join(&name)).ok().flatten()?;
            Some((name, version))
        };
        let entries = storage.list(&path).unwrap_or_default();
        let names = entries
            .into_iter()
            .filter_map(|entry| entry.name.into_string().ok());
        names.filter_map(version).collect()
    }

    /// Whether a checkpoint is known to be intact, and nobody has had a hand in its files since.
    fn is_known_intact(&self, step: u64) -> bool {
        let known = self.memory().intact.get(&step).cloned();
        known.is_some_and(|files| {
            let path = self.run.path(step);
            let is_as_it_was = |(name, version): (&String, &FileVersion)| {
                let now = self.run.storage().version(&path.join(name));
                matches!(now, Ok(Some(now)) if now == *version)
            };
            files.iter().all(is_as_it_was)
        })
    }

    /// Remembers that a checkpoint was found damaged: nothing that was known counts any more, since others may share
    /// its files. Retention reads them again before it relies on one, and the next save writes everything anew.
    pub fn note_damaged(&self, step: u64) {
        let mut memory = self.memory();
        let mut damaged = std::mem::take(&mut memory.damaged);
        damaged.insert(step);
        *memory = Memory {
            damaged,
            ..Memory::default()
        };
    }

    /// Whether a checkpoint was found damaged, and not replaced, deleted, or found intact since.
    pub fn is_known_damaged(&self, step: u64) -> bool {
        self.memory().damaged.contains(&step)
    }

    fn remove(&self, step: u64) -> Result<(), CheckpointerError> {
        self.keep_locked()?;
        let hidden = self.hide(step)?;
        Ok(remove_tree(self.run.storage().as_ref(), &hidden)?)
    }

    /// Takes a checkpoint out of sight, durably, and says where it lies now.
    fn hide(&self, step: u64) -> std::io::Result<PathBuf> {
        let storage = self.run.storage().as_ref();
        let name = commit::step_name(step);
        commit::forget_replaced(storage, self.run.directory(), &name)?;
        let hidden = Hidden::new(Purpose::Deleted, &name).to_string();
        publish(
            storage,
            self.run.directory(),
            Change::Vanish {
                name: &name,
                hidden: &hidden,
            },
        )?;
        let mut memory = self.memory();
        memory.intact.remove(&step);
        memory.damaged.remove(&step);
        if memory
            .last
            .as_ref()
            .is_some_and(|saved| saved.manifest.step == step)
        {
            memory.last = None;
        }
        drop(memory);
        Ok(self.run.directory().join(hidden))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FileCheckpointer {
    fn drop(&mut self) {
        // While the lock is still held.
        self.bin.empty(self.run.storage().as_ref());
    }
}

/// A checkpoint has no steps, and so would be taken for a run that has not begun.
fn refuse_checkpoint(storage: &dyn Storage, directory: &Path) -> std::io::Result<()> {
    if storage.kind(&directory.join(MANIFEST))?.is_none() {
        return Ok(());
    }
    let why = "this is one checkpoint; name the directory of its run";
    let why = format!("{}: {why}", directory.display());
    Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, why))
}

/// Saves one checkpoint as the directory `path`, which must not exist yet unless it is to be overwritten.
/// Takes no lock: for single checkpoints outside of a run.
///
/// # Errors
///
/// Whatever the system reports; `AlreadyExists` if there is something at `path`.
pub fn save_as(
    storage: &dyn Storage,
    path: &Path,
    step: u64,
    state: State,
    options: &SaveOptions,
) -> std::io::Result<CheckpointInfo> {
    let invalid = || {
        std::io::Error::new(
            std::io::ErrorKind::InvalidInput,
            "the path must end in a name that is valid Unicode",
        )
    };
    let name = path
        .file_name()
        .ok_or_else(invalid)?
        .to_str()
        .ok_or_else(invalid)?;
    let parent = crate::storage::parent_of(path);
    storage.create_dir_all(parent)?;
    let transfer = Transfer {
        options: options.clone(),
        ..Transfer::from(state.share_memory())
    };
    commit::sweep_target(storage, parent, name)?;
    let site = writer::Site {
        storage,
        parent,
        name,
        bin: &Bin::default(),
        links: &Links::default(),
    };
    let saved = writer::write(&site, step, transfer, None, None)?;
    Ok(CheckpointInfo::new(&saved.manifest, path.to_owned()))
}

/// Restoring gives a state whose tensors are all in memory, each compared with its checksum.
impl Checkpointer<State> for FileCheckpointer {
    fn save(&self, epoch: usize, record: State) -> Result<(), CheckpointerError> {
        self.write(epoch as u64, record.share_memory().into())
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        self.remove(epoch as u64)
    }

    fn restore(&self, epoch: usize) -> Result<State, CheckpointerError> {
        Ok(self.load(epoch as u64)?)
    }
}

/// Restoring gives a state whose tensors still lie in the files of the checkpoint.
impl Checkpointer<Transfer> for FileCheckpointer {
    fn save(&self, epoch: usize, record: Transfer) -> Result<(), CheckpointerError> {
        self.write(epoch as u64, record)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        self.remove(epoch as u64)
    }

    fn restore(&self, epoch: usize) -> Result<Transfer, CheckpointerError> {
        Ok(self
            .run
            .open(epoch as u64, self.options.verify)?
            .state
            .into())
    }
}
