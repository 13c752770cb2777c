//! Names for tensors and files: what a user expects where possible, safe and unique always.

use std::collections::{HashMap, HashSet};

use super::checksum;
use crate::state::{Data, Node, State, Tensor};

/// Longest tensor name kept as it is, in bytes.
const LONGEST_NAME: usize = 512;
/// Longest file stem kept as it is, in bytes; leaves room for the shard number and the extension.
const LONGEST_STEM: usize = 120;
/// The file for whatever lies in no named container of the state.
const LOOSE: &str = "state";

/// The names of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TensorName {
    /// Stem of the file, or files, it is stored in.
    pub(super) stem: String,
    /// Name within that file.
    pub(super) local: String,
    /// Name within the checkpoint.
    pub(super) key: String,
    /// Names of its pieces within that file, if it is stored in pieces.
    pub(super) pieces: Vec<String>,
}

/// Names every tensor of the state, by the first leaf that refers to it.
pub(super) fn name_tensors(state: &State) -> Vec<TensorName> {
    let pieces = |tensor: &Tensor| match &tensor.data {
        Data::Pieces(pieces) => pieces.len(),
        _ => 0,
    };
    let mut namer = Namer {
        names: vec![None; state.tensors.len()],
        pieces: state.tensors.iter().map(pieces).collect(),
        ..Namer::default()
    };
    match &state.root {
        Node::Dict(entries) => {
            let (loose, containers): (Vec<_>, Vec<_>) =
                entries.iter().partition(|(_, v)| v.is_leaf());
            // The file `state` belongs to the loose arrays, whatever the keys are called; but an array that
            // is in a container too is looked for there.
            if !loose.is_empty() {
                namer.stem(None);
            }
            for (key, value) in containers {
                namer.visit(value, &Path::entry(key.name()));
            }
            for (key, value) in loose {
                namer.visit(value, &Path::loose(key.name()));
            }
        }
        root => namer.visit(root, &Path::loose(String::new())),
    }
    let unused = || TensorName {
        stem: LOOSE.into(),
        local: "_".into(),
        key: "_".into(),
        pieces: Vec::new(),
    };
    namer
        .names
        .into_iter()
        .map(|name| name.unwrap_or_else(unused))
        .collect()
}

/// The name that each tensor of the state has, or will have, within a checkpoint.
pub fn tensor_keys(state: &State) -> Vec<String> {
    name_tensors(state)
        .into_iter()
        .map(|name| name.key)
        .collect()
}

struct Path {
    entry: Option<String>,
    local: String,
}

impl Path {
    fn entry(entry: String) -> Path {
        Path {
            entry: Some(entry),
            local: String::new(),
        }
    }

    fn loose(local: String) -> Path {
        Path { entry: None, local }
    }

    fn join(&self, name: &str) -> Path {
        let local = match self.local.as_str() {
            "" => name.to_owned(),
            local => format!("{local}.{name}"),
        };
        Path {
            entry: self.entry.clone(),
            local,
        }
    }
}

#[derive(Default)]
struct Namer {
    names: Vec<Option<TensorName>>,
    /// Number of pieces of each tensor, 0 if it is whole.
    pieces: Vec<usize>,
    stems: HashMap<Option<String>, String>,
    taken_stems: HashSet<String>,
    taken_locals: HashSet<(String, String)>,
    taken_keys: HashSet<String>,
}

impl Namer {
    fn visit(&mut self, node: &Node, path: &Path) {
        match node {
            Node::Tensor(leaf) if self.names.get(leaf.index).is_some_and(Option::is_none) => {
                self.names[leaf.index] = Some(self.name(path, self.pieces[leaf.index]));
            }
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.visit(item, &path.join(&i.to_string()));
                }
            }
            Node::Dict(entries) => {
                for (key, value) in entries {
                    self.visit(value, &path.join(&key.name()));
                }
            }
            Node::Tagged { value, .. } => self.visit(value, path),
            _ => {}
        }
    }

    fn name(&mut self, path: &Path, pieces: usize) -> TensorName {
        let stem = self.stem(path.entry.as_ref());
        let taken = &mut self.taken_locals;
        let local = unique(&safe_name(&path.local), |name| {
            taken.insert((stem.clone(), name.into()))
        });
        let mut claim = |name: &str| taken.insert((stem.clone(), name.to_owned()));
        let piece = |i| unique(&format!("{local}.piece{i}"), &mut claim);
        let pieces = (0..pieces).map(piece).collect();
        let key = match &path.entry {
            Some(entry) => format!("{entry}.{local}"),
            None => local.clone(),
        };
        let key = unique(&safe_name(&key), |name| self.taken_keys.insert(name.into()));
        TensorName {
            stem,
            local,
            key,
            pieces,
        }
    }

    fn stem(&mut self, entry: Option<&String>) -> String {
        if let Some(stem) = self.stems.get(&entry.cloned()) {
            return stem.clone();
        }
        let wanted = safe_stem(entry.map_or(LOOSE, String::as_str));
        let stem = unique(&wanted, |stem| self.taken_stems.insert(folded(stem)));
        self.stems.insert(entry.cloned(), stem.clone());
        stem
    }
}

/// A tensor name that any reader takes: not empty, not the reserved `__metadata__`, not endless.
fn safe_name(name: &str) -> String {
    match name {
        "" => "_".into(),
        "__metadata__" => "_.__metadata__".into(),
        name => shorten(name, LONGEST_NAME),
    }
}

/// A file stem that any file system takes: letters, digits, `.`, `_`, `-`; no leading dot; no device name.
fn safe_stem(name: &str) -> String {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut stem: String = name
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    let device = stem.split('.').next().unwrap_or("").to_ascii_lowercase();
    let numbered = |prefix: &str| {
        device
            .strip_prefix(prefix)
            .is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
    };
    let reserved = ["con", "prn", "aux", "nul"].contains(&device.as_str())
        || numbered("com")
        || numbered("lpt");
    if stem.is_empty() || stem.starts_with('.') || reserved || looks_like_shard(&stem) {
        stem.insert(0, '_');
    }
    shorten(&stem, LONGEST_STEM)
}

/// `model-00001-of-00002` would collide with a shard of `model`.
fn looks_like_shard(stem: &str) -> bool {
    let digits = |s: &str| s.len() >= 5 && s.bytes().all(|b| b.is_ascii_digit());
    let mut parts = stem.rsplitn(4, '-');
    matches!((parts.next(), parts.next(), parts.next()), (Some(total), Some("of"), Some(number)) if digits(total) && digits(number))
}

fn shorten(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let digest = checksum::of(name.as_bytes()).to_string();
    let mut end = longest - 17;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{}", &name[..end], &digest[..16])
}

/// What two stems have in common if a file system may take them for the same: letter case, and the many
/// spellings of one character outside ASCII.
fn folded(stem: &str) -> String {
    stem.chars()
        .filter(char::is_ascii)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// `wanted`, or `wanted~2`, `wanted~3`, … : the first that `claim` accepts.
fn unique(wanted: &str, mut claim: impl FnMut(&str) -> bool) -> String {
    let mut name = wanted.to_owned();
    let mut number = 1u64;
    while !claim(&name) {
        number += 1;
        name = format!("{wanted}~{number}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{DType, Piece};

    fn names(
        build: impl FnOnce(&mut dyn FnMut() -> Node) -> Node,
    ) -> Vec<(String, String, String)> {
        let mut state = State::default();
        let root = build(&mut || state.push(Tensor::from_vec(vec![0u8], &[1]).unwrap()));
        state.root = root;
        name_tensors(&state)
            .into_iter()
            .map(|n| (n.stem, n.local, n.key))
            .collect()
    }

    fn triple(stem: &str, local: &str, key: &str) -> (String, String, String) {
        (stem.into(), local.into(), key.into())
    }

    #[test]
    fn expected_names_stay() {
        let got = names(|leaf| {
            Node::dict([
                ("model", Node::dict([("h.0.attn.weight", leaf())])),
                (
                    "optimizer",
                    Node::dict([(
                        "state",
                        Node::Dict(vec![(Node::Int(0), Node::dict([("exp_avg", leaf())]))]),
                    )]),
                ),
                ("w", leaf()),
            ])
        });
        assert_eq!(
            got,
            [
                triple("model", "h.0.attn.weight", "model.h.0.attn.weight"),
                triple("optimizer", "state.0.exp_avg", "optimizer.state.0.exp_avg"),
                triple("state", "w", "w"),
            ]
        );
    }

    #[test]
    fn an_array_that_is_in_a_container_too_is_named_there() {
        let got = names(|leaf| {
            let shared = leaf();
            Node::dict([
                ("alias", shared.clone()),
                ("model", Node::dict([("w", shared)])),
            ])
        });
        assert_eq!(got, [triple("model", "w", "model.w")]);
    }

    #[test]
    fn names_of_pieces_collide_with_none() {
        let piece = |at: u64| Piece {
            offset: vec![at],
            tensor: Tensor::from_vec(vec![0u8], &[1]).unwrap(),
        };
        let whole = Data::Pieces(vec![piece(0), piece(1)]);
        let mut state = State::default();
        let pieces = state.push(Tensor::new(DType::U8, &[2], whole).unwrap());
        let other = state.push(Tensor::from_vec(vec![0u8], &[1]).unwrap());
        state.root = Node::dict([("m", Node::dict([("w.piece1", other), ("w", pieces)]))]);
        let names = name_tensors(&state);
        assert_eq!(names[1].local, "w.piece1");
        assert_eq!(names[0].pieces, ["w.piece0", "w.piece1~2"]);
    }

    #[test]
    fn names_that_collide_are_numbered() {
        let got = names(|leaf| {
            Node::dict([(
                "m",
                Node::Dict(vec![
                    ("a.b".into(), leaf()),
                    ("a".into(), Node::dict([("b", leaf())])),
                    (Node::Int(1), leaf()),
                    ("1".into(), leaf()),
                ]),
            )])
        });
        let locals: Vec<_> = got.iter().map(|n| n.1.as_str()).collect();
        assert_eq!(locals, ["a.b", "a.b~2", "1", "1~2"]);
    }

    #[test]
    fn stems_are_safe_and_unique() {
        let inner = |leaf: &mut dyn FnMut() -> Node| Node::dict([("x", leaf())]);
        let keys = [
            "..",
            "a/b",
            "",
            "Model",
            "model",
            "con",
            "COM1.x",
            "m-00001-of-00002",
            "état",
            "ètat",
            "state",
        ];
        let got = names(|leaf| Node::dict(keys.map(|key| (key, inner(leaf)))));
        let stems: Vec<_> = got.iter().map(|n| n.0.as_str()).collect();
        assert_eq!(
            stems,
            [
                "_..",
                "a_b",
                "_",
                "Model",
                "model~2",
                "_con",
                "_COM1.x",
                "_m-00001-of-00002",
                "état",
                "ètat~2",
                "state",
            ]
        );
    }

    #[test]
    fn long_and_reserved_names_are_replaced() {
        let long = "x".repeat(10_000);
        let got = names(|leaf| {
            Node::dict([(
                "m",
                Node::dict([
                    ("__metadata__", leaf()),
                    ("", leaf()),
                    (long.as_str(), leaf()),
                ]),
            )])
        });
        assert_eq!(got[0].1, "_.__metadata__");
        assert_eq!(got[1].1, "_");
        assert!(got[2].1.len() <= LONGEST_NAME);
    }
}
