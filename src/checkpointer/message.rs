//! What is sent to the worker.

use super::lane::Turn;
use super::{CheckpointerError, Failure, Interrupter};
use crate::sync::{Arc, OnceLock};

/// Takes what was restored; `Err` says why it couldn't be sent on.
pub(super) type Callback<R> =
    Box<dyn FnOnce(Result<R, CheckpointerError>) -> Result<(), String> + Send>;

/// How an operation ended.
pub(super) type Outcome = Result<(), Arc<Failure>>;

/// One job for the worker. The number is the epoch.
pub(super) enum Message<R> {
    Restore(usize, Callback<R>, Option<Interrupter>, Completion),
    Save(usize, R, Option<Interrupter>, Completion),
    Delete(usize, Option<Interrupter>, Completion),
    /// Without a turn of its own: whoever closes keeps it until the thread is gone.
    End,
}

/// The worker's side of a [`Pending`](super::Pending) handle.
pub(super) struct Completion {
    outcome: Arc<OnceLock<Outcome>>,
    turn: Turn,
}

impl Completion {
    pub(super) fn new(outcome: Arc<OnceLock<Outcome>>, turn: Turn) -> Self {
        Self { outcome, turn }
    }

    /// Says how the operation ended, and only then ends its turn: waiters wait for the turn, so
    /// whoever sees it ended sees the outcome, and finds the worker free.
    pub(super) fn settle(self, outcome: Outcome) {
        // Settled once only, since settling consumes.
        let _ = self.outcome.set(outcome);
        drop(self.turn);
    }
}
