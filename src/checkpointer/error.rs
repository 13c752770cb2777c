//! What can go wrong, as callers see it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::Failure;

/// Why an operation on a [`Checkpointer`](super::Checkpointer) didn't succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointerError {
    /// The disk, or what stands for it, failed. The source is the [`std::io::Error`], with its errno.
    #[error("I/O Error: `{0}`")]
    IOError(#[from] std::io::Error),

    /// The record couldn't be encoded or decoded. The source is the recorder's own error.
    #[error("Record error: `{0}`")]
    RecorderError(#[source] Box<dyn Error + Send + Sync>),

    /// Anything else, a panic of the checkpointer included.
    #[error("Unknown error: `{0}`")]
    Unknown(String),

    /// An *earlier* operation failed on the worker; this call is the one that learns of it.
    ///
    /// Displays the failure's message as it is. The sources lead to the original error.
    #[error(transparent)]
    Worker(Arc<Failure>),

    /// The checkpointer has been closed; nothing was done.
    #[error("the checkpointer is closed")]
    Closed,

    /// Code that runs on the worker asked for something that the worker would have to do: it would
    /// wait for itself forever. Nothing was done.
    #[error("called from the checkpointer's own worker, which can't wait for itself")]
    Deadlock,
}

/// Why something wasn't handed over; `H` is what was to be handed over, given back untouched.
///
/// `H` is the record for [`try_submit`](super::AsyncCheckpointer::try_submit), the closure for
/// [`try_restore_with`](super::AsyncCheckpointer::try_restore_with), and `()` for
/// [`try_delete`](super::AsyncCheckpointer::try_delete).
pub enum TrySubmitError<H> {
    /// Another operation is in the worker, or is waiting for it. Nothing is wrong; try again.
    Busy(H),
    /// The call couldn't be accepted, or an earlier failure came to light instead.
    Failed(CheckpointerError, H),
}

impl<H> TrySubmitError<H> {
    /// What was to be handed over.
    pub fn into_inner(self) -> H {
        match self {
            Self::Busy(handed) | Self::Failed(_, handed) => handed,
        }
    }
}

impl TrySubmitError<()> {
    /// The same refusal, with what is to be given back.
    pub(super) fn with<H>(self, handed: H) -> TrySubmitError<H> {
        match self {
            Self::Busy(()) => TrySubmitError::Busy(handed),
            Self::Failed(error, ()) => TrySubmitError::Failed(error, handed),
        }
    }
}

// By hand: records and closures need no `Debug` for `unwrap` to work.
impl<H> fmt::Debug for TrySubmitError<H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(_) => formatter.write_str("Busy(..)"),
            Self::Failed(error, _) => write!(formatter, "Failed({error:?}, ..)"),
        }
    }
}

impl<H> fmt::Display for TrySubmitError<H> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(_) => formatter.write_str("another operation is in the worker"),
            Self::Failed(error, _) => fmt::Display::fmt(error, formatter),
        }
    }
}

impl<H> Error for TrySubmitError<H> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Busy(_) => None,
            Self::Failed(error, _) => error.source(),
        }
    }
}
