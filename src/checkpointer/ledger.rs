//! The failures that nobody has seen yet.

use std::collections::VecDeque;

use super::Failure;
use super::lock::lock;
use super::panic::catch;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Arc, Mutex};

/// Unclaimed failures, oldest first. Being in here is what "unclaimed" means, so a failure can be
/// claimed once only, whoever comes first.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    unclaimed: Mutex<VecDeque<Arc<Failure>>>,
    /// The queue's length, to be read without the lock.
    count: AtomicUsize,
}

impl Ledger {
    /// Keeps a failure until it is claimed.
    pub(super) fn record(&self, failure: Arc<Failure>) {
        self.change(|unclaimed| unclaimed.push_back(failure));
    }

    /// Claims the oldest failure. One atomic load if there is none.
    pub(super) fn claim_oldest(&self) -> Option<Arc<Failure>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.change(VecDeque::pop_front)
    }

    /// Claims this failure, unless somebody has already.
    pub(super) fn claim(&self, failure: &Arc<Failure>) {
        self.change(|unclaimed| unclaimed.retain(|other| !Arc::ptr_eq(other, failure)));
    }

    /// Claims and logs what is left, for when nobody is there to be told.
    pub(super) fn log_unclaimed(&self) {
        while let Some(failure) = self.claim_oldest() {
            // A logger is user code; this runs in destructors, where its panic would be one too many.
            let _ = catch(|| log::error!("{failure}"));
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Arc<Failure>>) -> T) -> T {
        let mut unclaimed = lock(&self.unclaimed);
        let result = change(&mut unclaimed);
        self.count.store(unclaimed.len(), Ordering::Release);
        result
    }
}

impl Drop for Ledger {
    /// The checkpointer has logged its failures when it was dropped. This is for a job that was still
    /// running then, which is possible only if it dropped the checkpointer itself.
    fn drop(&mut self) {
        self.log_unclaimed();
    }
}
