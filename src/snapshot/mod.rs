//! Copying tensors out of training memory, and back in.
//!
//! [`capture()`] copies a state into the [`Arena`], and [`fill_checksums`] reads the copies; [`load()`] and
//! [`verify`] read stored tensors back and compare. All copying runs on a few threads at once; where a copy gets
//! its checksum on the way, that is in blocks that stay in cache between the two.

mod arena;
mod capture;
mod layout;
mod load;
mod read;
mod stream;
mod tensor_reader;
mod transfer;
mod watch;
mod witness;

pub use arena::Arena;
pub use capture::{Capture, can_borrow, capture, fill_checksums};
pub use layout::Layout;
pub use load::{ReadError, Target, load, load_into, verify, verify_all};
pub use tensor_reader::TensorReader;
pub use transfer::read_at;
pub use watch::Watch;
pub use witness::first_changed;
