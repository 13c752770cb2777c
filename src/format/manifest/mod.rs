//! `manifest.json`: what a checkpoint holds and where it lies.

mod read;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use thiserror::Error;

use super::{MAX_DEPTH, Summary, checksum};
use crate::state::{Checksum, DType, Node, View, count, reach, size_of};

/// Name of the manifest within a checkpoint.
pub const MANIFEST: &str = "manifest.json";
/// Version of the format that is written, and the newest that is read.
const VERSION: u64 = 1;
/// Length of the first line, in bytes.
const FIRST_LINE: usize = 48;

/// Why a manifest or a tensor file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It is not what the format says it should be.
    #[error("{0}")]
    Malformed(String),
    /// Its bytes are not those that were written.
    #[error("checksum mismatch: the bytes are not those that were written")]
    Checksum,
    /// It was written by a newer pitstop.
    #[error(
        "format version {0} is newer than this pitstop reads ({VERSION}); update pitstop to read it"
    )]
    Version(u64),
    /// The state cannot be written down.
    #[error("the state nests deeper than {MAX_DEPTH} containers")]
    TooDeep,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its size in bytes.
    pub size: u64,
    /// Where its tensors start, in bytes; absent for a file without tensors.
    pub data_start: Option<u64>,
    /// Checksum of the whole file: see `docs/format.md`.
    pub checksum: Checksum,
    /// How often in a row it was linked instead of written: so many earlier checkpoints had the same file.
    pub links: u64,
}

/// A stretch of bytes in a file that holds a tensor, or a piece of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The file it lies in.
    pub file: Arc<str>,
    /// Its name in that file.
    pub name: String,
    /// Where its first byte lies, in bytes from the start of the file.
    pub start: u64,
    /// Checksum of its bytes.
    pub checksum: Checksum,
}

/// A piece of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Index of its first element along each axis of the whole tensor.
    pub offset: Vec<u64>,
    /// Its extent along each axis, in elements.
    pub shape: Vec<u64>,
    /// Where it lies.
    pub stretch: Stretch,
}

/// Where a tensor lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In one stretch.
    Whole(Stretch),
    /// In parts that tile it.
    Pieces(Vec<Part>),
}

impl Place {
    /// Where a tensor lies that has these parts: one that covers it is the tensor itself.
    pub(super) fn of_parts(shape: &[u64], mut parts: Vec<Part>) -> Place {
        match parts.as_slice() {
            [only] if only.shape == shape && only.offset.iter().all(|&at| at == 0) => {
                Place::Whole(parts.remove(0).stretch)
            }
            _ => Place::Pieces(parts),
        }
    }
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorEntry {
    /// Its name within the checkpoint.
    pub key: String,
    /// Element type.
    pub dtype: DType,
    /// Extent along each axis, in elements.
    pub shape: Vec<u64>,
    /// Where it lies.
    pub place: Place,
}

impl TensorEntry {
    /// The stretches that hold it, each with its size in bytes.
    pub fn stretches(&self) -> impl Iterator<Item = (u64, &Stretch)> {
        let (whole, parts) = match &self.place {
            Place::Whole(stretch) => (Some((self.shape.as_slice(), stretch)), [].as_slice()),
            Place::Pieces(parts) => (None, parts.as_slice()),
        };
        let parts = parts
            .iter()
            .map(|part| (part.shape.as_slice(), &part.stretch));
        whole
            .into_iter()
            .chain(parts)
            .map(|(shape, stretch)| (size_of(self.dtype, shape), stretch))
    }
}

/// Everything that is known about a checkpoint without reading its tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The training step.
    pub step: u64,
    /// When it was saved, to the millisecond.
    pub created: SystemTime,
    /// What wrote it.
    pub writer: String,
    /// Metrics given at the save.
    pub metrics: BTreeMap<String, f64>,
    /// Metadata given at the save.
    pub metadata: Node,
    /// The state tree; its leaves refer to `tensors` by index.
    pub root: Node,
    /// The files, by name.
    pub files: BTreeMap<String, FileEntry>,
    /// The tensors.
    pub tensors: Vec<TensorEntry>,
}

impl Manifest {
    /// The summary that retention and listings use.
    pub fn summary(&self) -> Summary {
        Summary {
            step: self.step,
            created: self.created,
            metrics: self.metrics.clone(),
        }
    }

    /// Total size of its files in bytes, the manifest itself not counted.
    pub fn nbytes(&self) -> u64 {
        // What a manifest says may be more than can be.
        let sizes = self.files.values().map(|file| file.size);
        sizes.fold(0, u64::saturating_add)
    }
}

/// The first line, which holds the checksum of all that follows it.
fn first_line(rest: &[u8]) -> String {
    format!("{{\"checksum\":\"{}\",\n", checksum::of(rest))
}

fn malformed(why: impl Into<String>) -> FormatError {
    FormatError::Malformed(why.into())
}

/// A view must lie inside the tensor it looks at.
fn view_fits(view: &View, tensor: &TensorEntry) -> bool {
    let whole = i128::from(size_of(tensor.dtype, &tensor.shape));
    let item = view.dtype.itemsize();
    if view.shape.len() != view.strides.len() || item == 0 || count(&view.shape).is_none() {
        return false;
    }
    if view.shape.contains(&0) {
        return true;
    }
    let (low, high) = reach(i128::from(view.offset), item, &view.shape, &view.strides);
    low >= 0 && high <= whole
}
