use std::io;
use std::path::Path;

use super::{FAILED, INTERRUPTED, PIPE_CLOSED, USAGE};
use crate::{CheckpointerError, LockError, RestoreError};

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// The arguments make no sense.
    Usage(String),
    /// It failed, or what it needs is damaged.
    Failed(String),
    /// It was told to stop.
    Interrupted,
    /// Nobody reads its output.
    PipeClosed,
}

impl Failure {
    pub(super) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => USAGE,
            Failure::Failed(_) => FAILED,
            Failure::Interrupted => INTERRUPTED,
            Failure::PipeClosed => PIPE_CLOSED,
        }
    }

    /// What to say of it; nothing if whoever is to hear it knows.
    pub(super) fn message(&self) -> Option<&str> {
        match self {
            Failure::Usage(message) | Failure::Failed(message) => Some(message),
            Failure::Interrupted | Failure::PipeClosed => None,
        }
    }

    /// What became of output that could not be written.
    pub(super) fn of_output(error: &io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::PipeClosed,
            _ => Failure::Failed(format!("cannot write the output: {error}")),
        }
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Failure {
        match error {
            RestoreError::Io(error) => error.into(),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::Interrupted => Failure::Interrupted,
            _ => Failure::Failed(error.to_string()),
        }
    }
}

impl From<CheckpointerError> for Failure {
    fn from(error: CheckpointerError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl Failure {
    /// What became of the lock of the run in `directory`.
    pub(super) fn of_lock(error: LockError, directory: &Path) -> Failure {
        match error {
            LockError::Io(error) => error.into(),
            held @ LockError::Held { .. } => Failure::Failed(format!(
                "{held}: a run saves into {}; try again when it has ended",
                directory.display()
            )),
        }
    }
}
