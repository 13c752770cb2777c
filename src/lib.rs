//! pitstop: an asynchronous training checkpointer.

pub mod checkpointer;
pub mod format;
pub mod snapshot;
pub mod state;

pub use checkpointer::{
    AsyncCheckpointer, Checkpointer, CheckpointerError, Failure, Interrupter, Operation, Pending,
    Reply, TrySubmitError,
};
pub use format::Summary;
pub use state::{
    Checksum, DType, Data, Element, Memory, Node, Piece, ReadAt, Region, ShapeError, State, Stored,
    Tensor, TensorRef, View,
};
