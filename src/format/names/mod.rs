//! Names for tensors and files: what a user expects where possible, safe and unique always.

mod claims;
mod safe;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::distinct::surely_distinct;
use crate::state::{Data, Node, State};
use claims::{Claims, numbered};
use safe::{folded, safe_name, safe_stem};

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
                entries.iter().partition(|(_, v)| v.is_leaf());
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

/// The name that each tensor of the state has, or will have, within a checkpoint.
pub fn tensor_keys(state: &State) -> Vec<String> {
    let names = name_tensors(state).tensors;
    names.into_iter().map(|name| name.key).collect()
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
            local: safe_name(self.path.clone()),
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
    let whole = |found: &Found| !matches!(state.tensors[found.tensor].data, Data::Pieces(_));
    let mut keys = wanted_keys(&found, &entries);
    let mut pieces = HashMap::new();
    // As a rule all are unique already; where the keys are, the names within each file are too.
    if !found.iter().all(whole) || !surely_distinct(keys.iter().map(String::as_str)) {
        pieces = settle_locals(&mut found, state);
        keys = settle_keys(wanted_keys(&found, &entries));
    }
    let mut tensors: Vec<_> = found.iter().map(|_| TensorName::default()).collect();
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

/// Makes the names within each file unique; returns those of the pieces of each tensor that has some.
fn settle_locals(found: &mut [Found], state: &State) -> HashMap<usize, Vec<String>> {
    let mut pieces = HashMap::new();
    let mut renamed = Vec::new();
    let mut taken = Claims::with_capacity(found.len());
    for (i, found) in found.iter().enumerate() {
        let unique = taken.rename(found.stem, &found.local);
        if let Data::Pieces(parts) = &state.tensors[found.tensor].data {
            let whole = unique.as_ref().unwrap_or(&found.local);
            let name = |i| {
                let name = format!("{whole}.piece{i}");
                match taken.claim(found.stem, name.clone().into()) {
                    Some(number) => numbered(&name, number),
                    None => name,
                }
            };
            pieces.insert(found.tensor, (0..parts.len()).map(name).collect());
        }
        renamed.extend(unique.map(|name| (i, name)));
    }
    drop(taken);
    for (i, name) in renamed {
        found[i].local = name;
    }
    pieces
}

/// The names within the checkpoint: those within the files, with the top-level entry in front.
fn wanted_keys(found: &[Found], entries: &[Option<String>]) -> Vec<String> {
    let key = |found: &Found| match &entries[found.stem] {
        Some(entry) => safe_name([entry, ".", &found.local].concat()),
        None => safe_name(found.local.clone()),
    };
    found.iter().map(key).collect()
}

fn settle_keys(mut keys: Vec<String>) -> Vec<String> {
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
