//! Names for tensors and files: what a user expects where possible, safe and unique always.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::checksum;
use crate::state::{Data, Node, State};

/// Longest tensor name kept as it is, in bytes.
const LONGEST_NAME: usize = 512;
/// Longest file stem kept as it is, in bytes; leaves room for the shard number and the extension.
const LONGEST_STEM: usize = 120;
/// The file for whatever lies in no named container of the state.
const LOOSE: &str = "state";

/// The names of all tensors of a state.
#[derive(Debug)]
pub(super) struct Names {
    /// Stems of the files that the tensors are stored in.
    pub(super) stems: Vec<String>,
    /// Names of each tensor, in the order of the state's tensors.
    pub(super) tensors: Vec<TensorName>,
}

/// The names of one tensor.
#[derive(Debug, Default)]
pub(super) struct TensorName {
    /// Index of the stem of the file, or files, it is stored in.
    pub(super) stem: usize,
    /// Name within that file.
    pub(super) local: String,
    /// Name within the checkpoint.
    pub(super) key: String,
    /// Names of its pieces within that file, if it is stored in pieces.
    pub(super) pieces: Vec<String>,
}

/// Names every tensor of the state, by the first leaf that refers to it.
pub(super) fn name_tensors(state: &State) -> Names {
    let mut walk = Walk {
        seen: vec![false; state.tensors.len()],
        found: Vec::with_capacity(state.tensors.len()),
        ..Walk::default()
    };
    match &state.root {
        Node::Dict(entries) => {
            let (loose, containers): (Vec<_>, Vec<_>) =
                entries.iter().partition(|(_, v)| is_leaf(v));
            // The file `state` belongs to the loose arrays, whatever the keys are called; but an array that
            // is in a container too is looked for there.
            if !loose.is_empty() {
                walk.stem();
            }
            for (key, value) in containers {
                walk.entry = Some(key.name());
                walk.visit(value);
            }
            walk.entry = None;
            for (key, value) in loose {
                walk.step(key, value);
            }
        }
        root => walk.visit(root),
    }
    // What no leaf refers to is stored all the same.
    walk.entry = None;
    for index in 0..state.tensors.len() {
        walk.find(index);
    }
    settle(walk, state)
}

fn is_leaf(node: &Node) -> bool {
    match node {
        Node::Tensor(_) => true,
        Node::Tagged { value, .. } => is_leaf(value),
        _ => false,
    }
}

/// A tensor, where it was found first.
struct Found {
    tensor: usize,
    stem: usize,
    local: String,
}

/// A walk through the tree that notes where each tensor is found first.
#[derive(Default)]
struct Walk {
    seen: Vec<bool>,
    found: Vec<Found>,
    stems: Vec<String>,
    /// The top-level entry of each stem; `None` for what lies in no container.
    entries: Vec<Option<String>>,
    stem_of: HashMap<Option<String>, usize>,
    taken_stems: Claims<'static>,
    /// The top-level entry that the walk is in.
    entry: Option<String>,
    /// The path below it, joined by dots.
    path: String,
}

impl Walk {
    fn visit(&mut self, node: &Node) {
        match node {
            Node::Tensor(leaf) => self.find(leaf.index),
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => {
                for (i, item) in items.iter().enumerate() {
                    self.step(&Node::Int(i as i64), item);
                }
            }
            Node::Dict(entries) => {
                for (key, value) in entries {
                    self.step(key, value);
                }
            }
            Node::Tagged { value, .. } => self.visit(value),
            _ => {}
        }
    }

    fn step(&mut self, key: &Node, value: &Node) {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        match key {
            Node::Str(text) => self.path.push_str(text),
            other => self.path.push_str(&other.name()),
        }
        self.visit(value);
        self.path.truncate(length);
    }

    fn find(&mut self, tensor: usize) {
        if self.seen.get(tensor) != Some(&false) {
            return;
        }
        self.seen[tensor] = true;
        let stem = self.stem();
        self.found.push(Found {
            tensor,
            stem,
            local: safe_name(&self.path),
        });
    }

    /// The stem of the files of the top-level entry that the walk is in, made when it is first needed.
    fn stem(&mut self) -> usize {
        let last = self.entries.len().wrapping_sub(1);
        if self.entries.get(last) == Some(&self.entry) {
            return last;
        }
        if let Some(&stem) = self.stem_of.get(&self.entry) {
            return stem;
        }
        let wanted = safe_stem(self.entry.as_deref().unwrap_or(LOOSE));
        let number = self.taken_stems.claim(0, folded(&wanted).into());
        self.stems
            .push(number.map_or(wanted.clone(), |number| numbered(&wanted, number)));
        self.stem_of.insert(self.entry.clone(), self.entries.len());
        self.entries.push(self.entry.clone());
        self.entries.len() - 1
    }
}

/// Makes the names unique, in the order of the walk.
fn settle(walk: Walk, state: &State) -> Names {
    let Walk {
        mut found,
        stems,
        entries,
        ..
    } = walk;
    let mut pieces: HashMap<usize, Vec<String>> = HashMap::new();
    let mut taken = Claims::with_capacity(found.len());
    let mut renamed = Vec::new();
    for (
        i,
        Found {
            tensor,
            stem,
            local,
        },
    ) in found.iter().enumerate()
    {
        let unique = taken.rename(*stem, local);
        if let Data::Pieces(parts) = &state.tensors[*tensor].data {
            let whole = unique.as_ref().unwrap_or(local);
            let name = |i| {
                let name = format!("{whole}.piece{i}");
                match taken.claim(*stem, name.clone().into()) {
                    Some(number) => numbered(&name, number),
                    None => name,
                }
            };
            pieces.insert(*tensor, (0..parts.len()).map(name).collect());
        }
        renamed.extend(unique.map(|name| (i, name)));
    }
    drop(taken);
    for (i, name) in renamed {
        found[i].local = name;
    }
    let mut tensors: Vec<_> = found.iter().map(|_| TensorName::default()).collect();
    let keys = keys(&found, &entries);
    for (found, key) in found.into_iter().zip(keys) {
        tensors[found.tensor] = TensorName {
            stem: found.stem,
            local: found.local,
            key,
            pieces: pieces.remove(&found.tensor).unwrap_or_default(),
        };
    }
    Names { stems, tensors }
}

/// The names within the checkpoint: those within the files, with the top-level entry in front.
fn keys(found: &[Found], entries: &[Option<String>]) -> Vec<String> {
    let key = |found: &Found| match &entries[found.stem] {
        Some(entry) => safe_name(&[entry, ".", &found.local].concat()),
        None => safe_name(&found.local),
    };
    let mut keys: Vec<String> = found.iter().map(key).collect();
    let mut taken = Claims::with_capacity(keys.len());
    let renamed: Vec<_> = keys
        .iter()
        .enumerate()
        .filter_map(|(i, key)| Some((i, taken.rename(0, key)?)))
        .collect();
    drop(taken);
    for (i, name) in renamed {
        keys[i] = name;
    }
    keys
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
    let port = |prefix: &str| {
        device
            .strip_prefix(prefix)
            .is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
    };
    let reserved =
        ["con", "prn", "aux", "nul"].contains(&device.as_str()) || port("com") || port("lpt");
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

/// Names that are taken, each within a group.
#[derive(Default)]
struct Claims<'a> {
    taken: HashSet<(usize, Cow<'a, str>)>,
    /// Up to which number the variants of a name that was wanted again are taken.
    numbers: HashMap<(usize, String), u64>,
}

impl<'a> Claims<'a> {
    fn with_capacity(names: usize) -> Claims<'a> {
        Claims {
            taken: HashSet::with_capacity(names),
            numbers: HashMap::new(),
        }
    }

    /// Claims `name`, or else the first of `name~2`, `name~3`, … that is free, and says which number it was.
    fn claim(&mut self, group: usize, name: Cow<'a, str>) -> Option<u64> {
        if self.taken.insert((group, name.clone())) {
            return None;
        }
        let wanted = name.into_owned();
        let number = self.numbers.entry((group, wanted.clone())).or_insert(1);
        loop {
            *number += 1;
            let name = numbered(&wanted, *number).into();
            if self.taken.insert((group, name)) {
                return Some(*number);
            }
        }
    }

    /// As [`claim`](Self::claim); the name if it has to be another one.
    fn rename(&mut self, group: usize, name: &'a str) -> Option<String> {
        let number = self.claim(group, name.into())?;
        Some(numbered(name, number))
    }
}

fn numbered(name: &str, number: u64) -> String {
    format!("{name}~{number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{DType, Piece, Tensor};

    fn names(
        build: impl FnOnce(&mut dyn FnMut() -> Node) -> Node,
    ) -> Vec<(String, String, String)> {
        let mut state = State::default();
        let root = build(&mut || state.push(Tensor::from_vec(vec![0u8], &[1]).unwrap()));
        state.root = root;
        let Names { stems, tensors } = name_tensors(&state);
        tensors
            .into_iter()
            .map(|n| (stems[n.stem].clone(), n.local, n.key))
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
        let names = name_tensors(&state).tensors;
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
    fn tensors_that_no_leaf_shows_have_names_of_their_own() {
        // All were called `_`, and only the last of them was in the header.
        let got = names(|leaf| {
            leaf();
            leaf();
            leaf()
        });
        let expected = ["_~2", "_~3", "_"].map(|name| triple("state", name, name));
        assert_eq!(got, expected);
    }

    #[test]
    fn numbering_many_that_collide_does_not_start_over_each_time() {
        // Took minutes.
        let got = names(|leaf| {
            let key = |i| Node::Complex(f64::from(i), 0.0);
            Node::dict([(
                "m",
                Node::Dict((0..30_000).map(|i| (key(i), leaf())).collect()),
            )])
        });
        assert_eq!(got[29_999].1, "key~30000");
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
