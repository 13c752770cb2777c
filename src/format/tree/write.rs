//! A tree as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::Real;
use crate::state::{Node, TensorRef, View};

/// A node with the names of the tensors that it refers to by index.
pub(in crate::format) struct Tree<'a> {
    pub(in crate::format) node: &'a Node,
    pub(in crate::format) keys: &'a [&'a str],
}

impl Tree<'_> {
    fn with<'b>(&'b self, node: &'b Node) -> Tree<'b> {
        Tree {
            node,
            keys: self.keys,
        }
    }

    fn list<S: Serializer>(&self, items: &[Node], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(items.iter().map(|item| self.with(item)))
    }
}

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.node {
            Node::None => to.serialize_unit(),
            Node::Bool(value) => to.serialize_bool(*value),
            Node::Int(value) => to.serialize_i64(*value),
            Node::Float(value) if value.is_finite() => to.serialize_f64(*value),
            Node::Str(text) => to.serialize_str(text),
            Node::List(items) => self.list(items, to),
            Node::BigInt(digits) => single(to, "int", digits),
            Node::Float(value) => single(to, "float", &Real(*value)),
            Node::Complex(re, im) => single(to, "complex", &[Real(*re), Real(*im)]),
            Node::Bytes(bytes) => single(to, "bytes", &BASE64.encode(bytes)),
            Node::Tuple(items) => single(to, "tuple", &Items(self, items)),
            Node::Set(items) => single(to, "set", &Items(self, items)),
            Node::Dict(entries) if entries.iter().all(|(k, _)| matches!(k, Node::Str(_))) => {
                single(to, "dict", &Entries(self, entries))
            }
            Node::Dict(entries) => single(to, "items", &Pairs(self, entries)),
            Node::Tensor(leaf) => self.tensor(leaf, to),
            Node::Tagged { tag, value } => {
                let mut map = to.serialize_map(Some(2))?;
                map.serialize_entry("tag", tag)?;
                map.serialize_entry("value", &self.with(value))?;
                map.end()
            }
        }
    }
}

impl Tree<'_> {
    fn tensor<S: Serializer>(&self, leaf: &TensorRef, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("tensor", self.keys[leaf.index])?;
        if !leaf.kind.is_empty() {
            map.serialize_entry("kind", &leaf.kind)?;
        }
        if let Some(view) = &leaf.view {
            map.serialize_entry("view", &WrittenView::of(view))?;
        }
        map.end()
    }
}

fn single<S: Serializer>(to: S, key: &str, value: &impl Serialize) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(1))?;
    map.serialize_entry(key, value)?;
    map.end()
}

#[derive(Serialize)]
struct WrittenView<'a> {
    dtype: &'static str,
    shape: &'a [u64],
    strides: &'a [i64],
    offset: u64,
}

impl<'a> WrittenView<'a> {
    fn of(view: &'a View) -> Self {
        WrittenView {
            dtype: view.dtype.name(),
            shape: &view.shape,
            strides: &view.strides,
            offset: view.offset,
        }
    }
}

struct Items<'a>(&'a Tree<'a>, &'a [Node]);
struct Entries<'a>(&'a Tree<'a>, &'a [(Node, Node)]);
struct Pairs<'a>(&'a Tree<'a>, &'a [(Node, Node)]);

impl Serialize for Items<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.list(self.1, to)
    }
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.1.iter().map(|(key, value)| {
            let key = key.as_str().unwrap_or_default();
            (key, self.0.with(value))
        }))
    }
}

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut seq = to.serialize_seq(Some(self.1.len()))?;
        for (key, value) in self.1 {
            seq.serialize_element(&[self.0.with(key), self.0.with(value)])?;
        }
        seq.end()
    }
}
