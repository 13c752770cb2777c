//! pitstop: an asynchronous training checkpointer.

pub mod checkpointer;
#[allow(
    dead_code,
    unused_imports,
    reason = "publish and recover wait for the file checkpointer, which calls them"
)]
mod commit;
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
pub use format::Summary;
pub use state::{
    Checksum, DType, Data, Element, Memory, Node, Piece, ReadAt, Region, ShapeError, State, Stored,
    Tensor, TensorRef, View,
};
pub use storage::{Local, Lock, LockError, NewFile, PathError, Storage, StoredFile};
