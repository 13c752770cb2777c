//! pitstop: an asynchronous training checkpointer.

pub mod format;
pub mod snapshot;
pub mod state;

pub use format::Summary;
pub use state::{
    Checksum, DType, Data, Element, Memory, Node, Piece, ReadAt, Region, ShapeError, State, Stored,
    Tensor, TensorRef, View,
};
