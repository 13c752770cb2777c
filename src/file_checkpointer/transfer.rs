use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::CheckpointInfo;
use crate::commit::Retention;
use crate::state::{Node, State};

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

    pub(super) fn start(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn finish(&self, info: CheckpointInfo) {
        // Set once: a ticket goes with one save.
        let _ = self.info.set(info);
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
