//! What the worker remembers of an operation that failed.

use std::error::Error;
use std::fmt;

use super::CheckpointerError;

/// What the worker was doing when it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Saving a record.
    Save,
    /// Deleting a record.
    Delete,
    /// Sending what was restored to a caller who had gone away.
    Callback,
}

/// An operation that failed on the worker, after the call that asked for it had returned.
///
/// Each failure is *claimed* once: by [`Pending::wait`](super::Pending::wait) if somebody calls that
/// first, else by the next call on the [`AsyncCheckpointer`](super::AsyncCheckpointer). A restore
/// that fails is no such failure: its caller waits for it and gets the error itself.
///
/// Displays [`message`](Self::message); the source is [`error`](Self::error).
#[derive(Debug)]
pub struct Failure {
    operation: Operation,
    epoch: usize,
    message: String,
    error: Option<CheckpointerError>,
}

impl Failure {
    /// `text` is what `error` displays; it comes separately because displaying runs user code, which
    /// may panic.
    pub(super) fn new(
        operation: Operation,
        epoch: usize,
        text: &str,
        error: Option<CheckpointerError>,
    ) -> Self {
        let message = match operation {
            Operation::Save => format!("Error when saving the state: {text}"),
            Operation::Delete => format!("Error when deleting the state: {text}"),
            Operation::Callback => {
                format!("Error when sending response through callback channel: {text}")
            }
        };
        Self {
            operation,
            epoch,
            message,
            error,
        }
    }

    /// What failed.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The epoch it was about.
    pub fn epoch(&self) -> usize {
        self.epoch
    }

    /// The whole message: also the reason an interrupter is given, and the worker's panic payload.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The original error. There is none if all that happened is that the caller of a restore had
    /// gone away.
    pub fn error(&self) -> Option<&CheckpointerError> {
        self.error.as_ref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let error = self.error.as_ref()?;
        Some(error)
    }
}
