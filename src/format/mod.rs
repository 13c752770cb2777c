//! Bytes on disk: the layout of tensor files, the manifest, and checksums. See `docs/format.md`.
//!
//! Nothing here touches a disk. [`plan()`] turns a state into the files to write; [`Manifest`] says what is
//! where, and reads itself back without trusting a single number in it.

pub mod checksum;
mod json;
mod manifest;
mod names;
mod order;
mod plan;
#[cfg(test)]
mod roundtrip;
mod safetensors;
mod summary;
mod tree;
#[cfg(test)]
mod unchanged;

pub use manifest::{FileEntry, FormatError, MANIFEST, Manifest, Part, Place, Stretch, TensorEntry};
pub use names::tensor_keys;
pub use plan::{Expected, Plan, PlanOptions, PlannedFile, Source, plan};
pub use safetensors::{Header, HeaderEntry, parse_header};
pub use summary::Summary;
pub use tree::{MAX_DEPTH, node_json};
pub(crate) use tree::{float_value, node_value};
