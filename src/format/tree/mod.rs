//! The state tree as JSON: plain where JSON says the same, an object with one telling key where it does not.

mod read;
mod real;
mod write;

use std::collections::HashSet;

use serde::Deserialize as _;
use serde_json::Value;

use super::json::Json;
use super::order::surely_distinct;
use crate::state::{Node, TensorRef};

pub(super) use read::{ReadTree, Text};
pub(super) use real::Real;
pub(super) use write::write;

/// Deepest nesting of containers that a checkpoint may hold. Readers recurse; this bounds their stack.
pub const MAX_DEPTH: usize = 256;

/// A tree as JSON, in the form that it has in a manifest; `keys` are the names of the tensors, by index.
///
/// # Panics
///
/// If a leaf refers to a tensor that has no key.
///
/// # Example
///
/// ```
/// use pitstop::{Node, format::node_json};
///
/// let node = Node::Tuple(vec![Node::Int(1), Node::Float(f64::INFINITY)]);
/// assert_eq!(node_json(&node, &[]), r#"{"tuple":[1,{"float":"inf"}]}"#);
/// ```
pub fn node_json(node: &Node, keys: &[&str]) -> String {
    let mut json = Json::default();
    write(node, keys, &mut json);
    String::from_utf8(json.0).expect("JSON is text")
}

/// The same as a value of `serde_json`.
///
/// # Panics
///
/// As [`node_json`].
pub(crate) fn node_value(node: &Node, keys: &[&str]) -> Value {
    let json = node_json(node, keys);
    let mut json = serde_json::Deserializer::from_str(&json);
    // Trees may nest deeper than its limit.
    json.disable_recursion_limit();
    Value::deserialize(&mut json).expect("it was written as JSON")
}

/// A number, as that of a metric; infinities and NaN, for which JSON has none, as text.
pub(crate) fn float_value(value: f64) -> Value {
    let value = node_value(&Node::Float(value), &[]);
    value.get("float").cloned().unwrap_or(value)
}

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
            check_keys(entries)?;
            entries
                .iter()
                .try_for_each(|(key, value)| check(key, fits).and_then(|()| check(value, fits)))
        }
        Node::Tagged { value, .. } => check(value, fits),
        _ => Ok(()),
    }
}

/// No text is there twice.
fn check_keys(entries: &[(Node, Node)]) -> Result<(), String> {
    let texts = || entries.iter().filter_map(|(key, _)| key.as_str());
    if surely_distinct(texts()) {
        return Ok(());
    }
    let mut seen = HashSet::new();
    match texts().find(|key| !seen.insert(*key)) {
        Some(key) => Err(format!("a dictionary holds the key {key:?} twice")),
        None => Ok(()),
    }
}

fn is_hexadecimal(digits: &str) -> bool {
    let hex = digits
        .strip_prefix('-')
        .unwrap_or(digits)
        .strip_prefix("0x");
    hex.is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}
