use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::checkpointer::CheckpointerError;
use crate::snapshot::ReadError;

/// Why a checkpoint is not given back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// There is none: a directory without a manifest is no checkpoint.
    #[error("there is no checkpoint at {} (no manifest.json)", path.display())]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// It is not what was saved.
    #[error("{}: {why}", path.display())]
    Corrupt {
        /// The checkpoint, or the file in it.
        path: PathBuf,
        /// The tensor that is damaged, if it is one.
        tensor: Option<String>,
        /// What is wrong with it.
        why: String,
    },
    /// It is a checkpoint, but not of the step that its directory is named for.
    #[error("{}: it holds step {found}; rename it to step-{found}, or move it away", path.display())]
    Misplaced {
        /// The checkpoint.
        path: PathBuf,
        /// The step that it holds.
        found: u64,
    },
    /// It was written by a newer pitstop, in a way that this one does not read. It is not damaged.
    #[error("{}: format version {version} is newer than this pitstop reads; update pitstop", path.display())]
    TooNew {
        /// The checkpoint.
        path: PathBuf,
        /// The version of its format.
        version: u64,
    },
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl RestoreError {
    pub(super) fn corrupt(path: impl Into<PathBuf>, why: impl Into<String>) -> RestoreError {
        RestoreError::Corrupt {
            path: path.into(),
            tensor: None,
            why: why.into(),
        }
    }

    /// What went wrong while the tensors of the checkpoint at `path` were read.
    pub fn reading(path: impl Into<PathBuf>, error: ReadError) -> RestoreError {
        match error {
            ReadError::Damaged { tensor, file } => RestoreError::Corrupt {
                path: file.map_or_else(|| path.into(), PathBuf::from),
                why: format!(
                    "tensor {tensor:?} is damaged: its bytes are not those that were written"
                ),
                tensor: Some(tensor),
            },
            ReadError::Io { tensor, source } if source.kind() == io::ErrorKind::UnexpectedEof => {
                RestoreError::Corrupt {
                    path: path.into(),
                    tensor: Some(tensor),
                    why: "a file is cut off".into(),
                }
            }
            ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                RestoreError::NotFound { path: path.into() }
            }
            ReadError::Io { source, .. } => RestoreError::Io(source),
        }
    }

    /// Whether it is damaged, misplaced, or gone.
    pub fn is_damage(&self) -> bool {
        use RestoreError::{Corrupt, Misplaced, NotFound};
        matches!(self, Corrupt { .. } | Misplaced { .. } | NotFound { .. })
    }

    /// Whether another checkpoint may do instead: it is damage, or whoever reads has no permission for this one. Any
    /// other error of the system may hit the next one as well.
    pub fn may_be_passed_over(&self) -> bool {
        let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        self.is_damage() || matches!(self, RestoreError::Io(error) if is_closed(error))
    }
}

impl From<RestoreError> for CheckpointerError {
    fn from(error: RestoreError) -> CheckpointerError {
        match error {
            RestoreError::Io(error) => CheckpointerError::IOError(error),
            other => CheckpointerError::RecorderError(Box::new(other)),
        }
    }
}
