//! The state tree as JSON: plain where JSON says the same, an object with one telling key where it does not.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value, json};

use crate::state::{DType, Node, TensorRef, View};

/// Deepest nesting of containers that a checkpoint may hold. Readers recurse; this bounds their stack.
pub const MAX_DEPTH: usize = 256;
/// Deepest nesting of JSON in a manifest: a container level takes up to three.
pub(super) const MAX_JSON_DEPTH: usize = 3 * MAX_DEPTH + 16;

/// Depth of nesting of the tree; a plain value has depth 0.
pub(super) fn depth(node: &Node) -> usize {
    let deepest = |items: &[Node]| items.iter().map(depth).max().unwrap_or(0);
    match node {
        Node::List(items) | Node::Tuple(items) | Node::Set(items) => 1 + deepest(items),
        Node::Dict(entries) => {
            1 + entries
                .iter()
                .map(|(k, v)| depth(k).max(depth(v)))
                .max()
                .unwrap_or(0)
        }
        Node::Tagged { value, .. } => 1 + depth(value),
        _ => 0,
    }
}

/// Checks that a tree can be read back; `fits` says whether a leaf refers to a tensor that is there.
pub(super) fn check(node: &Node, fits: &impl Fn(&TensorRef) -> bool) -> Result<(), String> {
    let all = |items: &[Node]| items.iter().try_for_each(|item| check(item, fits));
    match node {
        Node::BigInt(digits) if !is_hexadecimal(digits) => Err(format!(
            "the integer {digits:?} is not hexadecimal with a 0x in front"
        )),
        Node::Tensor(leaf) if !fits(leaf) => Err(format!(
            "a leaf refers to tensor {}, which is not there or not as large",
            leaf.index
        )),
        Node::List(items) | Node::Tuple(items) | Node::Set(items) => all(items),
        Node::Dict(entries) => {
            let mut seen = HashSet::new();
            let twice = entries
                .iter()
                .filter_map(|(key, _)| key.as_str())
                .find(|key| !seen.insert(*key));
            if let Some(key) = twice {
                return Err(format!("a dictionary holds the key {key:?} twice"));
            }
            entries
                .iter()
                .try_for_each(|(key, value)| check(key, fits).and_then(|()| check(value, fits)))
        }
        Node::Tagged { value, .. } => check(value, fits),
        _ => Ok(()),
    }
}

fn is_hexadecimal(digits: &str) -> bool {
    let hex = digits
        .strip_prefix('-')
        .unwrap_or(digits)
        .strip_prefix("0x");
    hex.is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// A node with the names of the tensors that it refers to by index.
pub(super) struct Tree<'a> {
    pub(super) node: &'a Node,
    pub(super) keys: &'a [&'a str],
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
            Node::Float(value) => single(to, "float", &float_text(*value)),
            Node::Complex(re, im) => single(to, "complex", &[number(*re), number(*im)]),
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
            let View {
                dtype,
                shape,
                strides,
                offset,
            } = view;
            let value = json!({ "dtype": dtype.name(), "shape": shape, "strides": strides, "offset": offset });
            map.serialize_entry("view", &value)?;
        }
        map.end()
    }
}

fn single<S: Serializer>(to: S, key: &str, value: &impl Serialize) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(1))?;
    map.serialize_entry(key, value)?;
    map.end()
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
        let text = |key: &Node| key.as_str().unwrap_or_default().to_owned();
        to.collect_map(
            self.1
                .iter()
                .map(|(key, value)| (text(key), self.0.with(value))),
        )
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

/// A number as JSON; what JSON cannot say as text.
pub(super) fn number(value: f64) -> Value {
    if value.is_finite() {
        json!(value)
    } else {
        Value::String(float_text(value))
    }
}

/// Infinities by name, any NaN by its bits.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        format!("nan:{:016x}", value.to_bits())
    } else {
        if value > 0.0 { "inf" } else { "-inf" }.to_owned()
    }
}

pub(super) fn read_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => match text.as_str() {
            "inf" => Some(f64::INFINITY),
            "-inf" => Some(f64::NEG_INFINITY),
            nan => {
                let bits = u64::from_str_radix(nan.strip_prefix("nan:")?, 16).ok()?;
                Some(f64::from_bits(bits)).filter(|value| value.is_nan())
            }
        },
        _ => None,
    }
}

/// Reads a tree back; `index` finds a tensor by name and checks that a view fits it.
pub(super) fn read(
    value: &Value,
    index: &impl Fn(&str, Option<&View>) -> Option<usize>,
) -> Result<Node, String> {
    match value {
        Value::Null => Ok(Node::None),
        Value::Bool(value) => Ok(Node::Bool(*value)),
        Value::String(text) => Ok(Node::Str(text.clone())),
        Value::Number(number) => number
            .as_i64()
            .map(Node::Int)
            .or_else(|| number.as_f64().filter(|_| number.is_f64()).map(Node::Float))
            .ok_or_else(|| format!("the number {number} is out of range")),
        Value::Array(items) => read_all(items, index).map(Node::List),
        Value::Object(map) => read_object(map, index),
    }
}

fn read_all(
    items: &[Value],
    index: &impl Fn(&str, Option<&View>) -> Option<usize>,
) -> Result<Vec<Node>, String> {
    items.iter().map(|item| read(item, index)).collect()
}

fn read_object(
    map: &Map<String, Value>,
    index: &impl Fn(&str, Option<&View>) -> Option<usize>,
) -> Result<Node, String> {
    if let Some(name) = map.get("tensor") {
        return read_tensor(name, map, index);
    }
    if let (Some(Value::String(tag)), Some(value), 2) =
        (map.get("tag"), map.get("value"), map.len())
    {
        return Ok(Node::tagged(tag.clone(), read(value, index)?));
    }
    let mut entries = map.iter();
    let (Some((key, value)), None) = (entries.next(), entries.next()) else {
        return Err("an object with other keys than expected".to_owned());
    };
    match (key.as_str(), value) {
        ("tuple", Value::Array(items)) => Ok(Node::Tuple(read_all(items, index)?)),
        ("set", Value::Array(items)) => Ok(Node::Set(read_all(items, index)?)),
        ("dict", Value::Object(map)) => map
            .iter()
            .map(|(key, value)| Ok((Node::Str(key.clone()), read(value, index)?)))
            .collect::<Result<_, String>>()
            .map(Node::Dict),
        ("items", Value::Array(pairs)) => read_pairs(pairs, index),
        (key, value) => read_plain(key, value).ok_or_else(|| format!("a malformed {key:?}")),
    }
}

fn read_pairs(
    pairs: &[Value],
    index: &impl Fn(&str, Option<&View>) -> Option<usize>,
) -> Result<Node, String> {
    let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
        Some([key, value]) => Ok((read(key, index)?, read(value, index)?)),
        _ => Err("a malformed pair of key and value".to_owned()),
    };
    pairs
        .iter()
        .map(pair)
        .collect::<Result<_, String>>()
        .map(Node::Dict)
}

fn read_plain(key: &str, value: &Value) -> Option<Node> {
    match (key, value) {
        ("int", Value::String(digits)) => {
            is_hexadecimal(digits).then(|| Node::BigInt(digits.clone()))
        }
        ("float", Value::String(_)) => read_number(value).map(Node::Float),
        ("complex", Value::Array(parts)) => match parts.as_slice() {
            [re, im] => Some(Node::Complex(read_number(re)?, read_number(im)?)),
            _ => None,
        },
        ("bytes", Value::String(text)) => BASE64.decode(text).ok().map(Node::Bytes),
        _ => None,
    }
}

fn read_tensor(
    name: &Value,
    map: &Map<String, Value>,
    index: &impl Fn(&str, Option<&View>) -> Option<usize>,
) -> Result<Node, String> {
    let name = name.as_str().ok_or("a tensor without a name")?;
    let view = map
        .get("view")
        .map(|v| read_view(v).ok_or_else(|| format!("a malformed view of {name:?}")));
    let view = view.transpose()?;
    let kind = map
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
        .into();
    let index = index(name, view.as_ref()).ok_or_else(|| {
        format!("the tree refers to {name:?}, which is not there or not as large")
    })?;
    Ok(Node::Tensor(TensorRef { index, kind, view }))
}

fn read_view(value: &Value) -> Option<View> {
    let list = |key: &str| value.get(key).and_then(Value::as_array);
    Some(View {
        dtype: DType::from_name(value.get("dtype")?.as_str()?)?,
        shape: list("shape")?
            .iter()
            .map(Value::as_u64)
            .collect::<Option<_>>()?,
        strides: list("strides")?
            .iter()
            .map(Value::as_i64)
            .collect::<Option<_>>()?,
        offset: value.get("offset")?.as_u64()?,
    })
}

/// Whether a JSON text nests no deeper than a manifest may, found without recursion.
pub(super) fn nests_too_deep(json: &[u8]) -> bool {
    let (mut level, mut in_string, mut escaped) = (0usize, false, false);
    for &byte in json {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => level += 1,
            (false, b']' | b'}') => level = level.saturating_sub(1),
            _ => {}
        }
        if level > MAX_JSON_DEPTH {
            return true;
        }
    }
    false
}
