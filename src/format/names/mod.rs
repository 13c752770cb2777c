//! Names for tensors and files: what a user expects where possible, safe and unique always.

mod claims;
mod safe;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::order::surely_distinct;
use crate::state::{Data, Node, State, Tensor};
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
        names: state
            .tensors
            .iter()
            .map(|_| TensorName::default())
            .collect(),
        seen: vec![false; state.tensors.len()],
        order: Vec::with_capacity(state.tensors.len()),
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

/// A walk through the tree that notes where each tensor is found first.
#[derive(Default)]
struct Walk {
    /// What is known of each tensor: its stem, and the name in the file that it should have.
    names: Vec<TensorName>,
    seen: Vec<bool>,
    /// The tensors as they were found.
    order: Vec<usize>,
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
        self.order.push(tensor);
        self.names[tensor].stem = self.stem();
        self.names[tensor].local = safe_name(self.path.clone());
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
        names: mut tensors,
        order,
        stems,
        entries,
        ..
    } = walk;
    set_keys(&mut tensors, &entries);
    let whole = |tensor: &Tensor| !matches!(tensor.data, Data::Pieces(_));
    let keys = tensors.iter().map(|name| name.key.as_str());
    // As a rule all are unique already; where the keys are, the names within each file are too.
    if !state.tensors.iter().all(whole) || !surely_distinct(keys) {
        settle_locals(&mut tensors, &order, state);
        set_keys(&mut tensors, &entries);
        settle_keys(&mut tensors, &order);
    }
    Names { stems, tensors }
}

/// The names within the checkpoint: those within the files, with the top-level entry in front.
fn set_keys(names: &mut [TensorName], entries: &[Option<String>]) {
    for name in names {
        name.key = safe_name(match &entries[name.stem] {
            Some(entry) => [entry, ".", &name.local].concat(),
            None => name.local.clone(),
        });
    }
}

/// Makes the names within each file unique, those of the pieces too.
fn settle_locals(names: &mut [TensorName], order: &[usize], state: &State) {
    let (mut renamed, mut pieces) = (Vec::new(), Vec::new());
    let mut taken = Claims::default();
    for &i in order {
        let TensorName { stem, local, .. } = &names[i];
        let unique = taken.rename(*stem, local);
        if let Data::Pieces(parts) = &state.tensors[i].data {
            let whole = unique.as_ref().unwrap_or(local);
            let name = |piece| {
                let name = format!("{whole}.piece{piece}");
                match taken.claim(*stem, name.clone().into()) {
                    Some(number) => numbered(&name, number),
                    None => name,
                }
            };
            pieces.push((i, (0..parts.len()).map(name).collect()));
        }
        renamed.extend(unique.map(|name| (i, name)));
    }
    drop(taken);
    for (i, name) in renamed {
        names[i].local = name;
    }
    for (i, pieces) in pieces {
        names[i].pieces = pieces;
    }
}

fn settle_keys(names: &mut [TensorName], order: &[usize]) {
    let mut taken = Claims::default();
    let rename = |&i: &usize| Some((i, taken.rename(0, &names[i].key)?));
    let renamed: Vec<_> = order.iter().filter_map(rename).collect();
    drop(taken);
    for (i, name) in renamed {
        names[i].key = name;
    }
}
