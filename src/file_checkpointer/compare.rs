//! What differs between two checkpoints.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::{Opened, RestoreError};
use crate::format::node_json;
use crate::snapshot::{ReadError, TensorReader, Watch};
use crate::state::{Checksum, DType, Data, Distance, Node, Piece, State, Tensor};

/// So many bytes of each side are in memory at a time: whole elements of every type.
const WINDOW: usize = 3 << 20;

/// What differs between two checkpoints. Names are paths of keys and indices, joined by dots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// Tensors that are the same in both, bit by bit.
    pub same: usize,
    /// Those that are not, by their names.
    pub tensors: BTreeMap<String, TensorChange>,
    /// What differs in the tree beyond the elements of tensors: values, kinds of containers, which tensor a leaf shows.
    pub values: Vec<Changed>,
    /// What differs in the metrics.
    pub metrics: Vec<Changed>,
    /// What differs in the metadata.
    pub metadata: Vec<Changed>,
}

/// What became of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorChange {
    /// Only the second checkpoint has it.
    Added(DType, Vec<u64>),
    /// Only the first has it.
    Removed(DType, Vec<u64>),
    /// It has another element type or shape; elements are not compared.
    Reshaped {
        /// In the first.
        before: (DType, Vec<u64>),
        /// In the second.
        after: (DType, Vec<u64>),
    },
    /// Some of its elements have other values.
    Elements {
        /// In both.
        dtype: DType,
        /// In both.
        shape: Vec<u64>,
        /// How they differ.
        distance: Distance,
    },
}

/// A value that differs, as JSON in the form that the manifest gives it. A container is told by its kind, such as
/// `dict`; what is in it is told apart from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Where it is.
    pub path: String,
    /// In the first checkpoint; `None` if it is not there.
    pub before: Option<String>,
    /// In the second.
    pub after: Option<String>,
}

impl Comparison {
    /// Nothing differs.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
            && [&self.values, &self.metrics, &self.metadata]
                .iter()
                .all(|changed| changed.is_empty())
    }
}

/// Compares two checkpoints, opened with their checksums. Tensors whose checksums are equal are not read; of others a
/// few megabytes at a time are.
///
/// # Errors
///
/// [`RestoreError::Corrupt`] if a tensor that is read is damaged, [`RestoreError::Io`] if it cannot be read, or
/// `watch` ended it.
pub fn compare(
    before: &Opened,
    after: &Opened,
    watch: Watch<'_>,
) -> Result<Comparison, RestoreError> {
    let mut comparison = Comparison {
        values: changed(&before.state, &after.state),
        metrics: changed(&of_metrics(before), &of_metrics(after)),
        metadata: changed(&bare(&before.info.metadata), &bare(&after.info.metadata)),
        ..Comparison::default()
    };
    let mut others: HashMap<&str, &Tensor> = after
        .state
        .tensors
        .iter()
        .map(|tensor| (tensor.name.as_str(), tensor))
        .collect();
    for one in &before.state.tensors {
        let change = match others.remove(one.name.as_str()) {
            None => Some(TensorChange::Removed(one.dtype, one.shape.clone())),
            Some(other) => {
                let reading = |(opened, error): (&Opened, ReadError)| {
                    RestoreError::reading(&opened.info.path, error)
                };
                compare_tensors((before, one), (after, other), watch).map_err(reading)?
            }
        };
        match change {
            Some(change) => drop(comparison.tensors.insert(one.name.clone(), change)),
            None => comparison.same += 1,
        }
    }
    for (name, added) in others {
        let change = TensorChange::Added(added.dtype, added.shape.clone());
        comparison.tensors.insert(name.to_owned(), change);
    }
    Ok(comparison)
}

type Side<'a> = (&'a Opened, &'a Tensor);

fn compare_tensors<'a>(
    (before, one): Side<'a>,
    (after, other): Side<'a>,
    watch: Watch<'_>,
) -> Result<Option<TensorChange>, (&'a Opened, ReadError)> {
    if (one.dtype, &one.shape) != (other.dtype, &other.shape) {
        return Ok(Some(TensorChange::Reshaped {
            before: (one.dtype, one.shape.clone()),
            after: (other.dtype, other.shape.clone()),
        }));
    }
    if let (Some(a), Some(b)) = (checksums(one), checksums(other))
        && a == b
    {
        return Ok(None);
    }
    let at_first = |error| (before, error);
    let at_second = |error| (after, error);
    let mut first = TensorReader::new(one).map_err(at_first)?;
    let mut second = TensorReader::new(other).map_err(at_second)?;
    let (mut a, mut b) = (vec![0; WINDOW], vec![0; WINDOW]);
    let mut distance = Distance::default();
    loop {
        watch.check().map_err(|source| {
            let tensor = one.name.clone();
            (before, ReadError::Io { tensor, source })
        })?;
        let a = first.read(&mut a).map_err(at_first)?;
        let b = second.read(&mut b).map_err(at_second)?;
        distance.add(one.dtype, a, b);
        (watch.progress)((a.len() + b.len()) as u64);
        if a.is_empty() {
            break;
        }
    }
    Ok((distance.differing > 0).then(|| TensorChange::Elements {
        dtype: one.dtype,
        shape: one.shape.clone(),
        distance,
    }))
}

/// What tells, without reading, that two tensors of one type and shape are equal: where each part of it lies, and
/// its checksum.
fn checksums(tensor: &Tensor) -> Option<Vec<PartChecksum<'_>>> {
    match &tensor.data {
        Data::Pieces(pieces) => {
            let parts = pieces.iter().map(|piece| {
                let Piece { offset, tensor } = piece;
                Some((offset.as_slice(), tensor.shape.as_slice(), tensor.checksum?))
            });
            parts.collect()
        }
        _ => Some(vec![(&[], &tensor.shape, tensor.checksum?)]),
    }
}

/// Offset, shape, checksum.
type PartChecksum<'a> = (&'a [u64], &'a [u64], Checksum);

fn of_metrics(opened: &Opened) -> State {
    let metrics = opened.info.metrics.iter();
    bare(&Node::dict(
        metrics.map(|(name, value)| (name.as_str(), Node::Float(*value))),
    ))
}

fn bare(root: &Node) -> State {
    State {
        root: root.clone(),
        tensors: Vec::new(),
    }
}

/// What differs, in the order of the first tree; then what only the second has.
fn changed(before: &State, after: &State) -> Vec<Changed> {
    let (before, after) = (Flat::of(before), Flat::of(after));
    let mut others: HashMap<&(String, usize), &String> = after
        .0
        .iter()
        .map(|(place, value)| (place, value))
        .collect();
    let mut all = Vec::new();
    for (place, value) in &before.0 {
        let other = others.remove(place);
        if other != Some(value) {
            all.push(Changed {
                path: place.0.clone(),
                before: Some(value.clone()),
                after: other.cloned(),
            });
        }
    }
    let added = after
        .0
        .iter()
        .filter(|(place, _)| others.contains_key(place));
    all.extend(added.map(|(place, value)| Changed {
        path: place.0.clone(),
        before: None,
        after: Some(value.clone()),
    }));
    all
}

/// A tree as a list: each value with its path, and, where several have the same path, its number among those.
struct Flat(Vec<((String, usize), String)>);

/// Makes a [`Flat`].
struct Walk<'a> {
    keys: Vec<&'a str>,
    seen: HashMap<String, usize>,
    flat: Flat,
}

impl Flat {
    fn of(state: &State) -> Flat {
        let mut walk = Walk {
            keys: state
                .tensors
                .iter()
                .map(|tensor| tensor.name.as_str())
                .collect(),
            seen: HashMap::new(),
            flat: Flat(Vec::new()),
        };
        walk.visit(&state.root, "", "");
        walk.flat
    }
}

impl Walk<'_> {
    /// `tags` are those around the node, each with a space behind it.
    fn visit(&mut self, node: &Node, path: &str, tags: &str) {
        let join = |name: &str| {
            let dot = if path.is_empty() { "" } else { "." };
            format!("{path}{dot}{name}")
        };
        match node {
            Node::Tagged { tag, value } => match versions(tag) {
                Some((tag, versions)) => {
                    self.visit(value, path, &format!("{tags}{tag} "));
                    self.versions(&join("_metadata"), &versions);
                }
                None => self.visit(value, path, &format!("{tags}{tag} ")),
            },
            Node::List(items) | Node::Tuple(items) => {
                let kind = if matches!(node, Node::List(_)) {
                    "list"
                } else {
                    "tuple"
                };
                self.note(path, format!("{tags}{kind}"));
                for (i, item) in items.iter().enumerate() {
                    self.visit(item, &join(&i.to_string()), "");
                }
            }
            Node::Dict(entries) => {
                self.note(path, format!("{tags}dict"));
                for (key, value) in entries {
                    self.visit(value, &join(&key.name()), "");
                }
            }
            Node::Set(items) => {
                // Their order says nothing.
                let mut items: Vec<String> = items.iter().map(|item| self.json(item)).collect();
                items.sort_unstable();
                self.note(path, format!("{tags}{{\"set\":[{}]}}", items.join(",")));
            }
            leaf => {
                let json = self.json(leaf);
                self.note(path, format!("{tags}{json}"));
            }
        }
    }

    /// As a dictionary of that name would be.
    fn versions(&mut self, path: &str, versions: &Map<String, Value>) {
        self.note(path, "dict".to_owned());
        for (module, version) in versions {
            self.note(&format!("{path}.{module}"), version.to_string());
        }
    }

    fn json(&self, node: &Node) -> String {
        node_json(node, &self.keys)
    }

    fn note(&mut self, path: &str, value: String) {
        let seen = self.seen.entry(path.to_owned()).or_default();
        self.flat.0.push(((path.to_owned(), *seen), value));
        *seen += 1;
    }
}

/// The versions of torch's modules, which fill pages as a part of their tag, and the tag without them.
fn versions(tag: &str) -> Option<(&str, Map<String, Value>)> {
    let (name, json) = tag.split_once(':')?;
    let versions = (name == "collections.OrderedDict").then(|| serde_json::from_str(json));
    Some((name, versions?.ok()?))
}
