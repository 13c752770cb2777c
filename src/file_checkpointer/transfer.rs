use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::{CheckpointInfo, Timings};
use crate::commit::Retention;
use crate::state::{Node, State};
use crate::sync::{Arc, Condvar, Instant, Mutex, MutexGuard, OnceLock, PoisonError};

/// How one save is done, beyond what is saved.
#[derive(Debug, Clone, Default)]
pub struct SaveOptions {
    /// Metrics to keep with the checkpoint; retention may judge by them.
    pub metrics: BTreeMap<String, f64>,
    /// Anything else to keep with it; no tensors.
    pub metadata: Node,
    /// Replace a checkpoint of the same step, atomically.
    pub overwrite: bool,
    /// Prune by this rule after the save, instead of the checkpointer's own.
    pub retention: Option<Retention>,
}

/// Follows one save from another thread.
#[derive(Debug, Default)]
pub struct Ticket {
    done: AtomicU64,
    total: AtomicU64,
    info: OnceLock<CheckpointInfo>,
    reads: Mutex<Reads>,
    changed: Condvar,
    /// Somebody waits, or has waited, until nothing is read any more.
    awaited: AtomicBool,
    /// What it costs.
    pub timings: Arc<Timings>,
}

/// What a save still reads of the memory that it was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reads {
    /// Any of it.
    #[default]
    All,
    /// Only the tensors that were deferred.
    Deferred,
    /// Nothing that may change: all of it is copied or written, or the save has failed.
    Nothing,
}

impl Ticket {
    /// Bytes written so far, and bytes to write in all; the latter is 0 until it is known.
    pub fn progress(&self) -> (u64, u64) {
        (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        )
    }

    /// What was saved, once it is committed.
    pub fn info(&self) -> Option<&CheckpointInfo> {
        self.info.get()
    }

    /// Waits until the save reads no more than `at_most`; false if the timeout ran out first.
    pub fn wait_reads(&self, at_most: Reads, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let mut reads = self.lock();
        while *reads < at_most {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if at_most == Reads::Nothing && left != Some(Duration::ZERO) {
                self.awaited.store(true, Ordering::Relaxed);
                self.changed.notify_all();
            }
            reads = match left {
                None => self
                    .changed
                    .wait(reads)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    let waited = self.changed.wait_timeout(reads, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    /// Waits until somebody waits for the save to read nothing any more, but no longer than `timeout`.
    pub(super) fn wait_awaited(&self, timeout: Duration) {
        let Some(deadline) = Instant::now().checked_add(timeout) else {
            return;
        };
        let mut reads = self.lock();
        while !self.is_awaited() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(reads, left);
            reads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether somebody waits until the save reads nothing any more.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    /// What the save still reads.
    pub fn reads(&self) -> Reads {
        *self.lock()
    }

    /// The save reads until this is dropped, or says otherwise.
    pub(super) fn reading(&self) -> Reading<'_> {
        Reading(self)
    }

    pub(super) fn reads_only(&self, reads: Reads) {
        *self.lock() = reads;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.timings.forget_links();
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn finish(&self, info: CheckpointInfo) {
        // Set once: a ticket goes with one save.
        let _ = self.info.set(info);
        self.timings.finish();
    }
}

/// Sees to it that the save reads nothing once this is dropped, and that others know.
pub(super) struct Reading<'a>(&'a Ticket);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reads_only(Reads::Nothing);
    }
}

/// A state on its way to a disk, or from it.
///
/// On the way back its tensors still lie in the files, which are open and were compared with the manifest;
/// reading a tensor compares its checksum.
#[derive(Debug, Clone, Default)]
pub struct Transfer {
    /// The state.
    pub state: State,
    /// For each tensor, whether its copy is deferred: the caller lets it be until [`Ticket::reads`] says
    /// that nothing is read any more, and may change all others once it says that only deferred ones are. A
    /// tensor beyond the end is not deferred.
    pub deferred: Vec<bool>,
    /// How it is saved.
    pub options: SaveOptions,
    /// Follows the save.
    pub ticket: Arc<Ticket>,
}

impl From<State> for Transfer {
    fn from(state: State) -> Transfer {
        Transfer {
            state,
            ..Transfer::default()
        }
    }
}
