//! Bytes on disk: the layout of tensor files, the manifest, and checksums. See `docs/format.md`.

mod summary;

pub use summary::Summary;
