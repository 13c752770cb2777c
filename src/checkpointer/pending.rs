//! The handle of an operation that the worker has taken.

use std::time::Duration;

use super::CheckpointerError;
use super::lane::{Lane, Turn, deadline};
use super::ledger::Ledger;
use super::message::Outcome;
use crate::sync::{Arc, Instant, OnceLock};

/// An operation that the worker has taken.
///
/// Dropping it is fine: the operation goes on, and its failure goes to the next call on the
/// [`AsyncCheckpointer`](super::AsyncCheckpointer). It may outlive the checkpointer.
#[derive(Debug)]
pub struct Pending {
    lane: Arc<Lane>,
    ledger: Arc<Ledger>,
    /// How many turns have ended once this operation has.
    count: u64,
    outcome: Arc<OnceLock<Outcome>>,
}

impl Pending {
    pub(super) fn new(
        turn: &Turn,
        lane: &Arc<Lane>,
        ledger: &Arc<Ledger>,
        outcome: &Arc<OnceLock<Outcome>>,
    ) -> Self {
        Self {
            lane: Arc::clone(lane),
            ledger: Arc::clone(ledger),
            count: turn.count(),
            outcome: Arc::clone(outcome),
        }
    }

    /// Whether the operation has ended, well or not. Doesn't block, claims nothing.
    pub fn done(&self) -> bool {
        self.ended_by(Some(Instant::now()))
    }

    /// Waits until the operation has ended; `None` if the timeout ran out first, and a timeout of
    /// `None` is none at all.
    ///
    /// A failure is claimed by this: no later call on the checkpointer reports it. The handle
    /// remembers it, so waiting again returns it again. If a call on the checkpointer had claimed it
    /// before, the handle still returns it: it never calls a failed operation a success.
    ///
    /// # Errors
    ///
    /// The inner result is [`CheckpointerError::Worker`] if the operation failed.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), CheckpointerError>> {
        self.ended_by(deadline(timeout)).then(|| self.result())
    }

    /// Waits for the end of the operation, claims nothing; false if the deadline came first.
    pub(super) fn ended_by(&self, deadline: Option<Instant>) -> bool {
        self.lane.wait_ended(self.count, deadline)
    }

    fn result(&self) -> Result<(), CheckpointerError> {
        match self.outcome.get() {
            Some(Ok(())) => Ok(()),
            Some(Err(failure)) => {
                self.ledger.claim(failure);
                Err(CheckpointerError::Worker(Arc::clone(failure)))
            }
            // Not reachable as long as the worker catches every panic; an error if it ever is.
            None => Err(CheckpointerError::Unknown(
                "the worker ended before the operation did".to_owned(),
            )),
        }
    }
}
