//! A manifest as bytes.

use std::collections::BTreeMap;

use serde::ser::Error as _;
use serde::{Serialize, Serializer};

use super::{
    FIRST_LINE, FileEntry, FormatError, MAX_DEPTH, Manifest, Part, Place, Stretch, TensorEntry,
    VERSION, first_line, malformed, view_fits,
};
use crate::format::tree::{self, Real, Tree};
use crate::state::{Checksum, TensorRef};

#[derive(Serialize)]
struct Written<'a> {
    format: &'static str,
    version: u64,
    step: u64,
    created: String,
    writer: &'a str,
    metrics: BTreeMap<&'a str, Real>,
    metadata: Tree<'a>,
    tree: Tree<'a>,
    files: BTreeMap<&'a str, WrittenFile>,
    tensors: WrittenTensors<'a>,
}

#[derive(Serialize)]
struct WrittenFile {
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_start: Option<u64>,
    #[serde(serialize_with = "text")]
    checksum: Checksum,
}

/// In the order of their names.
struct WrittenTensors<'a>(Vec<&'a TensorEntry>);

impl Serialize for WrittenTensors<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(
            self.0
                .iter()
                .map(|tensor| (&tensor.key, WrittenTensor::of(tensor))),
        )
    }
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
        #[serde(serialize_with = "text")]
        checksum: Checksum,
    },
    Pieces {
        dtype: &'static str,
        shape: &'a [u64],
        pieces: Vec<WrittenPart<'a>>,
    },
}

#[derive(Serialize)]
struct WrittenPart<'a> {
    offset: &'a [u64],
    shape: &'a [u64],
    file: &'a str,
    name: &'a str,
    start: u64,
    #[serde(serialize_with = "text")]
    checksum: Checksum,
}

impl<'a> WrittenTensor<'a> {
    fn of(tensor: &'a TensorEntry) -> Self {
        let (dtype, shape) = (tensor.dtype.name(), tensor.shape.as_slice());
        match &tensor.place {
            Place::Whole(stretch) => WrittenTensor::Whole {
                dtype,
                shape,
                file: &stretch.file,
                name: &stretch.name,
                start: stretch.start,
                checksum: stretch.checksum,
            },
            Place::Pieces(parts) => WrittenTensor::Pieces {
                dtype,
                shape,
                pieces: parts.iter().map(WrittenPart::of).collect(),
            },
        }
    }
}

impl WrittenFile {
    fn of(file: &FileEntry) -> Self {
        WrittenFile {
            size: file.size,
            data_start: file.data_start,
            checksum: file.checksum,
        }
    }
}

impl<'a> WrittenPart<'a> {
    fn of(part: &'a Part) -> Self {
        let Stretch {
            file,
            name,
            start,
            checksum,
        } = &part.stretch;
        WrittenPart {
            offset: &part.offset,
            shape: &part.shape,
            file,
            name,
            start: *start,
            checksum: *checksum,
        }
    }
}

fn text<S: Serializer>(checksum: &Checksum, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(std::str::from_utf8(&checksum.digits()).map_err(S::Error::custom)?)
}

impl Manifest {
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
        tree::check(&self.root, &fits).map_err(malformed)?;
        tree::check(&self.metadata, &|_| false).map_err(malformed)?;
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
                .map(|(name, &value)| (name.as_str(), Real(value)))
                .collect(),
            metadata: Tree {
                node: &self.metadata,
                keys: &[],
            },
            tree: Tree {
                node: &self.root,
                keys: &keys,
            },
            files: self
                .files
                .iter()
                .map(|(name, file)| (name.as_str(), WrittenFile::of(file)))
                .collect(),
            tensors: WrittenTensors(self.sorted_tensors()?),
        };
        // The first line is as long as any, and ends where the brace of the object comes first.
        let mut bytes = vec![b' '; FIRST_LINE - 1];
        serde_json::to_writer(&mut bytes, &written)
            .map_err(|error| malformed(error.to_string()))?;
        let first = first_line(&bytes[FIRST_LINE..]);
        bytes[..FIRST_LINE].copy_from_slice(first.as_bytes());
        Ok(bytes)
    }

    fn sorted_tensors(&self) -> Result<Vec<&TensorEntry>, FormatError> {
        let mut tensors: Vec<_> = self.tensors.iter().collect();
        tensors.sort_by(|a, b| a.key.cmp(&b.key));
        match tensors.windows(2).find(|pair| pair[0].key == pair[1].key) {
            Some(twins) => Err(malformed(format!(
                "two tensors are called {:?}",
                twins[0].key
            ))),
            None => Ok(tensors),
        }
    }
}
