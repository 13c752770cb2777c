//! A manifest from bytes that nobody vouches for.
//!
//! The only values that nest without end are those of trees, and those count their depth. What is passed over
//! is passed over without recursion.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, IntoDeserializer, MapAccess, Visitor,
};

use super::{
    FIRST_LINE, FileEntry, FormatError, MANIFEST, Manifest, Part, Place, Stretch, TensorEntry,
    VERSION, first_line, malformed, view_fits,
};
use crate::format::tree::{ReadTree, Real, Text};
use crate::state::{Checksum, DType, Node, count};

/// All of a manifest; `Tree` and `Tensors` are passed over where only the rest is wanted.
#[derive(Deserialize)]
struct Read<'a, Tree, Tensors> {
    #[serde(borrow)]
    format: Text<'a>,
    version: u64,
    step: u64,
    created: String,
    writer: String,
    metrics: Entries<Real>,
    #[serde(borrow)]
    metadata: ReadTree<'a>,
    tree: Tree,
    files: Entries<ReadFile>,
    tensors: Tensors,
}

/// What tells a version apart; a newer one may have changed all the rest.
#[derive(Deserialize)]
struct Version {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
struct ReadFile {
    size: u64,
    data_start: Option<u64>,
    #[serde(deserialize_with = "checksum")]
    checksum: Checksum,
    #[serde(default)]
    links: u64,
}

#[derive(Deserialize)]
struct ReadTensor<'a> {
    #[serde(borrow)]
    dtype: Text<'a>,
    shape: Vec<u64>,
    #[serde(borrow)]
    file: Option<Text<'a>>,
    name: Option<String>,
    start: Option<u64>,
    #[serde(default, deserialize_with = "some_checksum")]
    checksum: Option<Checksum>,
    #[serde(borrow)]
    pieces: Option<Vec<ReadPart<'a>>>,
}

#[derive(Deserialize)]
struct ReadPart<'a> {
    offset: Vec<u64>,
    shape: Vec<u64>,
    #[serde(borrow)]
    file: Text<'a>,
    name: String,
    start: u64,
    #[serde(deserialize_with = "checksum")]
    checksum: Checksum,
}

fn checksum<'de, D: Deserializer<'de>>(from: D) -> Result<Checksum, D::Error> {
    let Text(text) = Text::deserialize(from)?;
    text.parse()
        .map_err(|()| D::Error::custom(format!("{text:?} is no checksum")))
}

fn some_checksum<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Checksum>, D::Error> {
    checksum(from).map(Some)
}

impl Manifest {
    /// Reads a manifest, trusting nothing in it.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if a byte was changed, if it does not follow the format, or refers outside itself.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, FormatError> {
        verify(bytes)?;
        let read = read::<ReadTree<'_>, Entries<ReadTensor<'_>>>(bytes)?;
        let (mut manifest, tree, Entries(tensors)) = head(read)?;
        let places = Places::new(&manifest.files);
        let tensors = tensors
            .into_iter()
            .map(|(key, tensor)| places.tensor(key, tensor))
            .collect::<Result<Vec<_>, _>>()?;
        drop(places);
        let index: HashMap<&str, usize> = tensors
            .iter()
            .enumerate()
            .map(|(i, tensor)| (tensor.key.as_str(), i))
            .collect();
        manifest.root = tree
            .resolve(|name, view| {
                let i = *index.get(name)?;
                view.is_none_or(|view| view_fits(view, &tensors[i]))
                    .then_some(i)
            })
            .map_err(malformed)?;
        drop(index);
        Ok(Manifest {
            tensors,
            ..manifest
        })
    }

    /// Reads everything but the tree and the tensors, which stay empty.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), for the parts that are read.
    pub fn parse_head(bytes: &[u8]) -> Result<Manifest, FormatError> {
        verify(bytes)?;
        match before_tensors(bytes) {
            Some(read) => {
                check_version(&read.format.0, read.version)?;
                Ok(head(read)?.0)
            }
            None => Ok(head(read::<IgnoredAny, IgnoredAny>(bytes)?)?.0),
        }
    }
}

/// The parts of a manifest that are read in any case, and the others.
fn head<Tree, Tensors>(
    read: Read<'_, Tree, Tensors>,
) -> Result<(Manifest, Tree, Tensors), FormatError> {
    let Entries(files) = read.files;
    if let Some((name, _)) = files.iter().find(|(name, _)| !is_plain_name(name)) {
        return Err(malformed(format!("{name:?} is no plain file name")));
    }
    let file = |(name, file): (String, ReadFile)| {
        let entry = FileEntry {
            size: file.size,
            data_start: file.data_start,
            checksum: file.checksum,
            links: file.links,
        };
        (name, entry)
    };
    let Entries(metrics) = read.metrics;
    let metrics = metrics.into_iter().map(|(name, Real(value))| (name, value));
    let manifest = Manifest {
        step: read.step,
        created: read_time(&read.created)?,
        writer: read.writer,
        metrics: metrics.collect(),
        metadata: read.metadata.resolve(|_, _| None).map_err(malformed)?,
        root: Node::None,
        files: files.into_iter().map(file).collect(),
        tensors: Vec::new(),
    };
    Ok((manifest, read.tree, read.tensors))
}

fn read<'a, Tree: Deserialize<'a>, Tensors: Deserialize<'a>>(
    bytes: &'a [u8],
) -> Result<Read<'a, Tree, Tensors>, FormatError> {
    // Looked at as a whole, and not text by text.
    let json = std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))?;
    match parse_json::<Read<'_, Tree, Tensors>>(json) {
        Ok(read) => check_version(&read.format.0, read.version).map(|()| read),
        Err(error) => {
            let Version { format, version } = parse_json(json)?;
            check_version(&format, version)?;
            Err(error)
        }
    }
}

/// What comes before the tensors, which are most of a manifest and are put last by whoever writes one as
/// `docs/format.md` says; `None` if anything is missing there.
fn before_tensors(bytes: &[u8]) -> Option<Read<'_, IgnoredAny, Option<IgnoredAny>>> {
    let mut read = None;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    json.disable_recursion_limit();
    // It fails in any case, at the latest because of what is left unread.
    let _ = json.deserialize_map(BeforeTensors(&mut read));
    read
}

/// Reads as [`before_tensors`] says, into what it is given.
struct BeforeTensors<'a, 'de>(&'a mut Option<Read<'de, IgnoredAny, Option<IgnoredAny>>>);

impl<'de> Visitor<'de> for BeforeTensors<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a manifest")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let mut stopped = false;
        let front = Front {
            map,
            stopped: &mut stopped,
        };
        let read = Read::deserialize(MapAccessDeserializer::new(front))?;
        *self.0 = stopped.then_some(read);
        Ok(())
    }
}

/// The entries of a manifest in front of its tensors.
struct Front<'a, A> {
    map: A,
    stopped: &'a mut bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Front<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        match self.map.next_key()? {
            Some(Text(key)) if key == "tensors" => {
                *self.stopped = true;
                Ok(None)
            }
            Some(Text(key)) => seed.deserialize(key.into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

fn check_version(format: &str, version: u64) -> Result<(), FormatError> {
    match (format, version) {
        ("pitstop", 1..=VERSION) => Ok(()),
        ("pitstop", newer) => Err(FormatError::Version(newer)),
        (other, _) => Err(malformed(format!(
            "its format is {other:?}, not \"pitstop\""
        ))),
    }
}

fn parse_json<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, FormatError> {
    let mut json = serde_json::Deserializer::from_str(json);
    // Trees may nest deeper than its limit, and count their own depth.
    json.disable_recursion_limit();
    let value = T::deserialize(&mut json).map_err(|e| malformed(e.to_string()))?;
    json.end().map_err(|e| malformed(e.to_string()))?;
    Ok(value)
}

/// The first line must be exactly the one that belongs to what follows it.
fn verify(bytes: &[u8]) -> Result<(), FormatError> {
    let (first, rest) = bytes
        .split_at_checked(FIRST_LINE)
        .ok_or_else(|| malformed("it is cut off"))?;
    if first == first_line(rest).as_bytes() {
        Ok(())
    } else {
        Err(FormatError::Checksum)
    }
}

/// No file system has longer names, in bytes.
const LONGEST_NAME: usize = 255;

/// A file of a checkpoint lies in its directory, under a visible name; nothing else is ever opened.
fn is_plain_name(name: &str) -> bool {
    let forbidden = |c: char| matches!(c, '/' | '\\' | ':') || c.is_control();
    let is_visible = !name.is_empty() && !name.starts_with('.') && name != MANIFEST;
    is_visible && name.len() <= LONGEST_NAME && !name.contains(forbidden)
}

fn read_time(text: &str) -> Result<SystemTime, FormatError> {
    humantime::parse_rfc3339(text).map_err(|_| malformed(format!("{text:?} is no time")))
}

/// The places that there are: the files, each with its name to share.
struct Places<'a>(HashMap<&'a str, (Arc<str>, &'a FileEntry)>);

impl<'a> Places<'a> {
    fn new(files: &'a BTreeMap<String, FileEntry>) -> Self {
        let file = |(name, entry): (&'a String, _)| (name.as_str(), (name.as_str().into(), entry));
        Places(files.iter().map(file).collect())
    }

    fn tensor(&self, key: String, read: ReadTensor<'_>) -> Result<TensorEntry, FormatError> {
        let fail = |why: &str| malformed(format!("tensor {key:?}: {why}"));
        let dtype = DType::from_name(&read.dtype.0).ok_or_else(|| fail("unknown element type"))?;
        let shape = read.shape;
        size(dtype, &shape).ok_or_else(|| fail("impossible shape"))?;
        let place = match (read.pieces, read.file, read.name, read.start, read.checksum) {
            (Some(pieces), None, None, None, None) => {
                let part = |part: ReadPart<'_>| {
                    let ReadPart {
                        offset,
                        shape,
                        file,
                        name,
                        start,
                        checksum,
                    } = part;
                    let file = self.file(&file.0, dtype, &shape, start)?;
                    let stretch = Stretch {
                        file,
                        name,
                        start,
                        checksum,
                    };
                    Ok(Part {
                        offset,
                        shape,
                        stretch,
                    })
                };
                let parts = pieces.into_iter().map(part).collect::<Result<_, _>>();
                Place::of_parts(&shape, parts.map_err(fail)?)
            }
            (None, Some(file), Some(name), Some(start), Some(checksum)) => {
                let file = self.file(&file.0, dtype, &shape, start).map_err(fail)?;
                Place::Whole(Stretch {
                    file,
                    name,
                    start,
                    checksum,
                })
            }
            _ => return Err(fail("neither one place nor pieces")),
        };
        Ok(TensorEntry {
            key,
            dtype,
            shape,
            place,
        })
    }

    /// The file that something of this type and shape lies in.
    fn file(
        &self,
        name: &str,
        dtype: DType,
        shape: &[u64],
        start: u64,
    ) -> Result<Arc<str>, &'static str> {
        let (name, entry) = self.0.get(name).ok_or("in a file that is not listed")?;
        let data_start = entry.data_start.ok_or("in a file without tensors")?;
        let end = size(dtype, shape).and_then(|nbytes| start.checked_add(nbytes));
        if start < data_start || end.is_none_or(|end| end > entry.size) {
            return Err("outside its file");
        }
        Ok(Arc::clone(name))
    }
}

/// Size in bytes, if it is a possible one.
fn size(dtype: DType, shape: &[u64]) -> Option<u64> {
    let nbytes = dtype.nbytes(count(shape)?)?;
    isize::try_from(nbytes).is_ok().then_some(nbytes)
}

/// An object as its entries, in the order of their names, of which none is there twice.
struct Entries<T>(Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries: Vec<(String, T)> = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                // As a rule they are in order.
                entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                match entries.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    Some(twins) => {
                        Err(A::Error::custom(format!("{:?} is there twice", twins[0].0)))
                    }
                    None => Ok(Entries(entries)),
                }
            }
        }

        from.deserialize_map(Object(PhantomData))
    }
}
