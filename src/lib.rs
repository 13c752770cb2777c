//! pitstop: an asynchronous training checkpointer.

#[allow(
    dead_code,
    unused_imports,
    reason = "publish and recover wait for the file checkpointer, which calls them"
)]
mod commit;
pub mod format;
pub mod state;
pub mod storage;

pub use commit::{Decision, Keep, Mode, Retention, RetentionError};
pub use format::Summary;
pub use state::{
    Checksum, DType, Data, Element, Memory, Node, Piece, ReadAt, Region, ShapeError, State, Stored,
    Tensor, TensorRef, View,
};
pub use storage::{Local, Lock, LockError, NewFile, PathError, Storage, StoredFile};
