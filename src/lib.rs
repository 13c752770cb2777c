//! pitstop: an asynchronous training checkpointer.

pub mod checkpointer;
mod commit;
pub mod file_checkpointer;
pub mod format;
#[cfg(feature = "python")]
mod python;
pub mod snapshot;
pub mod state;
pub mod storage;

pub use checkpointer::{
    AsyncCheckpointer, Checkpointer, CheckpointerError, Failure, Interrupter, Operation, Pending,
    Reply, TrySubmitError,
};
pub use commit::{Decision, Keep, Mode, Retention, RetentionError};
pub use file_checkpointer::{
    CheckpointInfo, FileCheckpointer, Opened, Options, RestoreError, Run, SaveOptions, Ticket,
    Transfer, save_as,
};
pub use format::Summary;
pub use state::{
    Checksum, DType, Data, Element, Memory, Node, Piece, ReadAt, Region, ShapeError, State, Stored,
    Tensor, TensorRef, View,
};
pub use storage::{Local, Lock, LockError, NewFile, PathError, Storage, StoredFile};
