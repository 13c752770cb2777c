//! Copying tensors out of training memory, and back in.
//!
//! [`capture()`] copies a state into the [`Arena`] in one pass with its checksums; [`load()`] and [`verify`]
//! read stored tensors back and compare. All copying runs on a few threads at once, in blocks that stay in
//! cache between the copy and the checksum.

mod arena;
mod capture;
mod layout;
mod load;
mod read;
mod stream;
mod tensor_reader;
mod transfer;
mod watch;

pub use arena::Arena;
pub use capture::{Capture, can_borrow, capture, fill_checksums};
pub use layout::Layout;
pub use load::{ReadError, Target, load, load_into, verify, verify_all};
pub use tensor_reader::TensorReader;
pub use transfer::read_at;
pub use watch::Watch;
