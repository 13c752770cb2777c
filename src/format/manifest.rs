//! `manifest.json`: what a checkpoint holds and where it lies.

use std::collections::{BTreeMap, HashMap};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use super::tree::{self, Tree};
use super::{MAX_DEPTH, Summary, checksum};
use crate::state::{Checksum, DType, Node, TensorRef, View, count, reach, size_of};

/// Name of the manifest within a checkpoint.
pub const MANIFEST: &str = "manifest.json";
/// Version of the format that is written, and the newest that is read.
const VERSION: u64 = 1;
/// What the first line starts with; the checksum, `",` and a line feed follow.
const FIRST_LINE: &str = "{\"checksum\":\"";

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its size in bytes.
    pub size: u64,
    /// Where its tensors start, in bytes; absent for a file without tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_start: Option<u64>,
    /// Checksum of the whole file: see `docs/format.md`.
    #[serde(with = "checksum_text")]
    pub checksum: Checksum,
}

/// A stretch of bytes in a file that holds a tensor, or a piece of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Index of its first element along each axis of the whole tensor.
    pub offset: Vec<u64>,
    /// Its extent along each axis, in elements.
    pub shape: Vec<u64>,
    /// The file it lies in.
    pub file: String,
    /// Its name in that file.
    pub name: String,
    /// Where its first byte lies, in bytes from the start of the file.
    pub start: u64,
    /// Checksum of its bytes.
    #[serde(with = "checksum_text")]
    pub checksum: Checksum,
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
    /// The parts that tile it: one, unless it was stored in pieces.
    pub parts: Vec<Part>,
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

#[derive(Serialize)]
struct Written<'a> {
    format: &'static str,
    version: u64,
    step: u64,
    created: String,
    writer: &'a str,
    metrics: BTreeMap<&'a str, Value>,
    metadata: Tree<'a>,
    tree: Tree<'a>,
    files: &'a BTreeMap<String, FileEntry>,
    tensors: BTreeMap<&'a str, WrittenTensor<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WrittenTensor<'a> {
    Whole {
        dtype: &'static str,
        shape: &'a [u64],
        file: &'a str,
        name: &'a str,
        start: u64,
        #[serde(with = "checksum_text")]
        checksum: Checksum,
    },
    Pieces {
        dtype: &'static str,
        shape: &'a [u64],
        pieces: &'a [Part],
    },
}

/// All of a manifest; `Tensors` and `Tree` are skipped unread where only a summary is wanted.
#[derive(Deserialize)]
struct Read<Tree, Tensors> {
    step: u64,
    created: String,
    writer: String,
    metrics: BTreeMap<String, Value>,
    metadata: Value,
    tree: Tree,
    files: BTreeMap<String, FileEntry>,
    tensors: Tensors,
}

#[derive(Deserialize)]
struct ReadTensor {
    dtype: String,
    shape: Vec<u64>,
    file: Option<String>,
    name: Option<String>,
    start: Option<u64>,
    checksum: Option<String>,
    pieces: Option<Vec<Part>>,
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
        self.files.values().map(|file| file.size).sum()
    }

    /// The bytes of `manifest.json`.
    ///
    /// # Errors
    ///
    /// [`FormatError::TooDeep`] if the tree nests deeper than [`MAX_DEPTH`]; [`FormatError::Malformed`] if it
    /// holds what could not be read back, such as a key given twice.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        if tree::depth(&self.root).max(tree::depth(&self.metadata)) > MAX_DEPTH {
            return Err(FormatError::TooDeep);
        }
        let fits = |leaf: &TensorRef| match (self.tensors.get(leaf.index), &leaf.view) {
            (Some(tensor), Some(view)) => view_fits(view, tensor),
            (tensor, None) => tensor.is_some(),
            (None, Some(_)) => false,
        };
        tree::check(&self.root, &fits).map_err(FormatError::Malformed)?;
        tree::check(&self.metadata, &|_| false).map_err(FormatError::Malformed)?;
        let keys: Vec<&str> = self.tensors.iter().map(|t| t.key.as_str()).collect();
        let written = Written {
            format: "pitstop",
            version: VERSION,
            step: self.step,
            created: humantime::format_rfc3339_millis(self.created).to_string(),
            writer: &self.writer,
            metrics: self
                .metrics
                .iter()
                .map(|(k, v)| (k.as_str(), tree::number(*v)))
                .collect(),
            metadata: Tree {
                node: &self.metadata,
                keys: &[],
            },
            tree: Tree {
                node: &self.root,
                keys: &keys,
            },
            files: &self.files,
            tensors: self
                .tensors
                .iter()
                .map(|t| (t.key.as_str(), written_tensor(t)))
                .collect(),
        };
        let json =
            serde_json::to_vec(&written).map_err(|e| FormatError::Malformed(e.to_string()))?;
        // The first line holds the checksum of all that follows it.
        let rest = &json[1..];
        let mut bytes = format!("{FIRST_LINE}{}\",\n", checksum::of(rest)).into_bytes();
        bytes.extend_from_slice(rest);
        Ok(bytes)
    }

    /// Reads a manifest, trusting nothing in it.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if a byte was changed, if it does not follow the format, or refers outside itself.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, FormatError> {
        let read: Read<Value, BTreeMap<String, ReadTensor>> = read(bytes)?;
        if let Some(name) = read.files.keys().find(|name| !is_plain_name(name)) {
            return Err(malformed(format!("{name:?} is no plain file name")));
        }
        let mut tensors = Vec::with_capacity(read.tensors.len());
        for (key, tensor) in read.tensors {
            tensors.push(read_tensor(key, tensor, &read.files)?);
        }
        let index: HashMap<&str, usize> = tensors
            .iter()
            .enumerate()
            .map(|(i, t)| (t.key.as_str(), i))
            .collect();
        let find = |name: &str, view: Option<&View>| {
            let i = *index.get(name)?;
            view.is_none_or(|view| view_fits(view, &tensors[i]))
                .then_some(i)
        };
        let root = tree::read(&read.tree, &find).map_err(FormatError::Malformed)?;
        drop(index);
        Ok(Manifest {
            step: read.step,
            created: read_time(&read.created)?,
            writer: read.writer,
            metrics: read_metrics(&read.metrics)?,
            metadata: tree::read(&read.metadata, &|_, _| None).map_err(FormatError::Malformed)?,
            root,
            files: read.files,
            tensors,
        })
    }

    /// Reads everything but the tree and the tensors, which stay empty.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), for the parts that are read.
    pub fn parse_head(bytes: &[u8]) -> Result<Manifest, FormatError> {
        let read: Read<serde::de::IgnoredAny, serde::de::IgnoredAny> = read(bytes)?;
        let (_, _) = (read.tree, read.tensors);
        Ok(Manifest {
            step: read.step,
            created: read_time(&read.created)?,
            writer: read.writer,
            metrics: read_metrics(&read.metrics)?,
            metadata: tree::read(&read.metadata, &|_, _| None).map_err(FormatError::Malformed)?,
            root: Node::None,
            files: read.files,
            tensors: Vec::new(),
        })
    }
}

fn written_tensor(tensor: &TensorEntry) -> WrittenTensor<'_> {
    let (dtype, shape) = (tensor.dtype.name(), tensor.shape.as_slice());
    match tensor.parts.as_slice() {
        [part] if part.shape == tensor.shape => WrittenTensor::Whole {
            dtype,
            shape,
            file: &part.file,
            name: &part.name,
            start: part.start,
            checksum: part.checksum,
        },
        pieces => WrittenTensor::Pieces {
            dtype,
            shape,
            pieces,
        },
    }
}

fn malformed(why: impl Into<String>) -> FormatError {
    FormatError::Malformed(why.into())
}

fn read<'a, Tree: Deserialize<'a>, Tensors: Deserialize<'a>>(
    bytes: &'a [u8],
) -> Result<Read<Tree, Tensors>, FormatError> {
    #[derive(Deserialize)]
    struct Version {
        format: String,
        version: u64,
    }
    verify(bytes)?;
    if tree::nests_too_deep(bytes) {
        return Err(malformed("it nests too deep"));
    }
    // A newer version may have changed all the rest, so the version is read by itself.
    let head: Version = parse_json(bytes)?;
    if head.format != "pitstop" {
        return Err(malformed(format!(
            "its format is {:?}, not \"pitstop\"",
            head.format
        )));
    }
    if head.version > VERSION || head.version == 0 {
        return Err(FormatError::Version(head.version));
    }
    parse_json(bytes)
}

fn parse_json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, FormatError> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    // Depth was bounded before, without recursion.
    json.disable_recursion_limit();
    let value = T::deserialize(&mut json).map_err(|e| malformed(e.to_string()))?;
    json.end().map_err(|e| malformed(e.to_string()))?;
    Ok(value)
}

/// The first line must be exactly the one that belongs to what follows it.
fn verify(bytes: &[u8]) -> Result<(), FormatError> {
    let length = FIRST_LINE.len() + 32 + 3;
    let (Some(first), Some(rest)) = (bytes.get(..length), bytes.get(length..)) else {
        return Err(malformed("it is cut off"));
    };
    let expected = format!("{FIRST_LINE}{}\",\n", checksum::of(rest));
    if first == expected.as_bytes() {
        Ok(())
    } else {
        Err(FormatError::Checksum)
    }
}

/// A file of a checkpoint lies in its directory, under a visible name; nothing else is ever opened.
fn is_plain_name(name: &str) -> bool {
    let forbidden = |c: char| matches!(c, '/' | '\\' | ':') || c.is_control();
    !name.is_empty() && !name.starts_with('.') && !name.contains(forbidden) && name != MANIFEST
}

fn read_time(text: &str) -> Result<SystemTime, FormatError> {
    humantime::parse_rfc3339(text).map_err(|_| malformed(format!("{text:?} is no time")))
}

fn read_metrics(metrics: &BTreeMap<String, Value>) -> Result<BTreeMap<String, f64>, FormatError> {
    let metric = |(name, value): (&String, &Value)| {
        let value = tree::read_number(value)
            .ok_or_else(|| malformed(format!("metric {name:?} is no number")))?;
        Ok((name.clone(), value))
    };
    metrics.iter().map(metric).collect()
}

fn read_tensor(
    key: String,
    read: ReadTensor,
    files: &BTreeMap<String, FileEntry>,
) -> Result<TensorEntry, FormatError> {
    let fail = |why: &str| malformed(format!("tensor {key:?}: {why}"));
    let dtype = DType::from_name(&read.dtype).ok_or_else(|| fail("unknown element type"))?;
    let nbytes = count(&read.shape).and_then(|elements| dtype.nbytes(elements));
    if nbytes.is_none_or(|nbytes| nbytes > isize::MAX as u64) {
        return Err(fail("impossible shape"));
    }
    let parts = match (read.pieces, read.file, read.name, read.start, read.checksum) {
        (Some(pieces), None, None, None, None) => pieces,
        (None, Some(file), Some(name), Some(start), Some(checksum)) => vec![Part {
            offset: vec![0; read.shape.len()],
            shape: read.shape.clone(),
            file,
            name,
            start,
            checksum: checksum.parse().map_err(|()| fail("malformed checksum"))?,
        }],
        _ => return Err(fail("neither one place nor pieces")),
    };
    for part in &parts {
        let nbytes = count(&part.shape).and_then(|elements| dtype.nbytes(elements));
        let end = nbytes.and_then(|nbytes| part.start.checked_add(nbytes));
        let file = files
            .get(&part.file)
            .ok_or_else(|| fail("in a file that is not listed"))?;
        let data_start = file
            .data_start
            .ok_or_else(|| fail("in a file without tensors"))?;
        if part.start < data_start || end.is_none_or(|end| end > file.size) {
            return Err(fail("outside its file"));
        }
    }
    Ok(TensorEntry {
        key,
        dtype,
        shape: read.shape,
        parts,
    })
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

/// Checksums as text in JSON.
mod checksum_text {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::state::Checksum;

    pub(super) fn serialize<S: Serializer>(checksum: &Checksum, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(checksum)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Checksum, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|()| D::Error::custom(format!("{text:?} is no checksum")))
    }
}
