//! A disk in memory that loses power and fails when told to (feature `test-util`).
//!
//! [`Disk`] is a [`Storage`](super::Storage), with two images: what a process sees, and what is durable. A change
//! is in both only once it was synced: bytes by [`NewFile::sync`](super::NewFile::sync), names by
//! [`Storage::sync_dir`](super::Storage::sync_dir) of their directory. Until then a power cut may leave of it what
//! it likes, and [`Disk::wake`] gives the disk as it is found afterwards.
//!
//! It is stricter than any file system: unsynced changes may survive in any combination, whatever their order;
//! only a rename or exchange is never seen half-way. Writes are torn between sectors of 512 bytes. Syncing a file
//! does not make its name durable.
//!
//! # Example
//!
//! A power cut at every call of a save, with every outcome. Whatever happens, step 1 stays:
//!
//! ```
//! use std::sync::Arc;
//! use pitstop::storage::simulated::{Disk, Fault};
//! use pitstop::{Checkpointer, FileCheckpointer, Node, Options, State};
//!
//! fn open(disk: &Disk) -> FileCheckpointer {
//!     let storage = Arc::new(disk.clone());
//!     FileCheckpointer::with_storage(storage, "/runs/exp1", Options::default()).unwrap()
//! }
//! let state = |step| State { root: Node::Int(step), ..State::default() };
//!
//! for cut in 0.. {
//!     let disk = Disk::new();
//!     let checkpointer = open(&disk);
//!     checkpointer.save(1, state(1)).unwrap();
//!     let first = disk.calls().len();
//!     disk.on_call(move |number, _| (number == first + cut).then_some(Fault::Stop));
//!     let saved = checkpointer.save(2, state(2)).is_ok();
//!     for outcome in disk.outcomes(3, 42) {
//!         let (newest, _) = open(&disk.wake(outcome)).restore_newest().unwrap().unwrap();
//!         assert!(newest == 2 || (newest == 1 && !saved));
//!     }
//!     if disk.calls().len() <= first + cut {
//!         break; // the save was through before the power went
//!     }
//! }
//! ```

mod file;
mod image;
mod operations;
mod outcome;
mod state;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::PathError;
use state::State;

pub use outcome::Outcome;

/// One call of [`Storage`](super::Storage), [`NewFile`](super::NewFile) or [`StoredFile`](super::StoredFile).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What is done: `create directory`, `list`, `look at`, `create`, `recycle`, `open`, `link`, `rename`,
    /// `exchange`, `sync directory`, `remove`, `remove directory`, `lock`; of files `write`, `sync`, `read`.
    pub operation: &'static str,
    /// To what.
    pub path: PathBuf,
    /// The second path of a call that has two.
    pub target: Option<PathBuf>,
}

impl Call {
    /// Whether it does this to this path.
    pub fn is(&self, operation: &str, path: impl AsRef<Path>) -> bool {
        self.operation == operation && self.path == path.as_ref()
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation, self.path.display())?;
        match &self.target {
            Some(target) => write!(f, " to {}", target.display()),
            None => Ok(()),
        }
    }
}

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing, and fails with this error number of the system, such as 5 (`EIO`) or 28 (`ENOSPC`).
    ///
    /// What a sync that fails was to make durable may be on the disk or not, and no later sync puts it there.
    Error(i32),
    /// A write does the first half of its bytes and fails; any other call fails as by [`Error`](Self::Error).
    Short(i32),
    /// It takes so much longer.
    Delay(Duration),
    /// The process is killed, or the power goes: from this call on none does anything, and all fail. Look at
    /// what is left with [`Disk::restart`] or [`Disk::wake`].
    Stop,
}

/// Decides on each call, given its number and itself.
type Plan = dyn Fn(usize, &Call) -> Option<Fault> + Send + Sync;

/// A disk in memory. Clones are the same disk.
///
/// It has no symbolic links, no permissions, and room for everything. Paths begin at its root, with or without
/// a `/`; `..` is not supported.
#[derive(Clone)]
pub struct Disk(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    plan: Mutex<Option<Arc<Plan>>>,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk::new()
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated::Disk")
    }
}

impl Disk {
    /// An empty disk.
    pub fn new() -> Disk {
        Disk::with(State::new())
    }

    fn with(state: State) -> Disk {
        Disk(Arc::new(Shared {
            state: Mutex::new(state),
            plan: Mutex::default(),
        }))
    }

    /// Whether two names can be exchanged in one step, as they can at first. Some file systems can't.
    pub fn set_exchanges(&self, exchanges: bool) {
        self.state().exchanges = exchanges;
    }

    /// Whether retired files may be written over, as they may at first.
    pub fn set_recycles(&self, recycles: bool) {
        self.state().recycles = recycles;
    }

    /// Asks `plan` before each call whether it is to fail, given its number among [`calls`](Self::calls). It
    /// may block, and may look at the disk.
    pub fn on_call(&self, plan: impl Fn(usize, &Call) -> Option<Fault> + Send + Sync + 'static) {
        *self.plan() = Some(Arc::new(plan));
    }

    /// Lets all go well from now on, unless the disk was stopped.
    pub fn heal(&self) {
        *self.plan() = None;
    }

    /// The calls so far, also those that failed.
    pub fn calls(&self) -> Vec<Call> {
        let state = self.state();
        state.calls.iter().map(|call| Call::clone(call)).collect()
    }

    /// How many files somebody has open.
    pub fn open_files(&self) -> usize {
        self.state().open_files()
    }

    /// The calls whose changes a power cut may undo, the oldest first: what the numbers of an [`Outcome`] mean.
    pub fn unsynced(&self) -> Vec<Call> {
        self.state().unsynced().cloned().collect()
    }

    /// What a power cut now may leave of [`unsynced`](Self::unsynced): all of it, nothing, each alone, all but
    /// each, each write torn, and so many random choices, whose seeds count up from `seed`.
    pub fn outcomes(&self, random: usize, seed: u64) -> Vec<Outcome> {
        Outcome::of(&self.state().may_tear(), random, seed)
    }

    /// The disk as it is found after a power cut now. This one goes on as if there had been none.
    #[must_use]
    pub fn wake(&self, outcome: Outcome) -> Disk {
        Disk::with(self.state().wake(outcome))
    }

    /// The disk as the next process finds it if this one is killed now: all is there and nothing is locked. What
    /// is not synced still isn't.
    #[must_use]
    pub fn restart(&self) -> Disk {
        Disk::with(self.state().restart())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn plan(&self) -> MutexGuard<'_, Option<Arc<Plan>>> {
        let plan = self.0.plan.lock();
        plan.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one call: `perform`, unless it is to fail. `failing` is what it does then, given whether it is cut
    /// short.
    fn step<T>(
        &self,
        operation: &'static str,
        path: &Path,
        target: Option<&Path>,
        perform: impl FnOnce(&mut State, &Arc<Call>) -> io::Result<T>,
        failing: impl FnOnce(&mut State, &Arc<Call>, bool),
    ) -> io::Result<T> {
        let call = Arc::new(Call {
            operation,
            path: path.to_owned(),
            target: target.map(Path::to_owned),
        });
        let number = self.state().note(&call);
        let plan = self.plan().clone();
        // Nothing is locked meanwhile: it may block, and look at the disk.
        let fault = plan.and_then(|plan| plan(number, &call));
        if let Some(Fault::Delay(time)) = fault {
            thread::sleep(time);
        }
        let mut state = self.state();
        state.stopped |= fault == Some(Fault::Stop);
        let result = match fault {
            _ if state.stopped => Err(io::Error::other("the machine has stopped")),
            Some(Fault::Error(number) | Fault::Short(number)) => {
                failing(&mut state, &call, matches!(fault, Some(Fault::Short(_))));
                Err(io::Error::from_raw_os_error(number))
            }
            _ => perform(&mut state, &call),
        };
        result.map_err(|error| match target {
            Some(target) => PathError::wrap_pair(operation, path, target, error),
            None => PathError::wrap(operation, path, error),
        })
    }
}

/// What the system would say, with its number.
fn system_error(kind: io::ErrorKind) -> io::Error {
    #[cfg(unix)]
    {
        use io::ErrorKind;
        use rustix::io::Errno;
        let numbers = [
            (ErrorKind::NotFound, Errno::NOENT),
            (ErrorKind::AlreadyExists, Errno::EXIST),
            (ErrorKind::NotADirectory, Errno::NOTDIR),
            (ErrorKind::IsADirectory, Errno::ISDIR),
            (ErrorKind::DirectoryNotEmpty, Errno::NOTEMPTY),
            (ErrorKind::Unsupported, Errno::NOSYS),
        ];
        if let Some((_, number)) = numbers.iter().find(|(of, _)| *of == kind) {
            return (*number).into();
        }
    }
    kind.into()
}
