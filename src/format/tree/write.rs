//! A tree as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Real;
use crate::format::json::Json;
use crate::state::{Node, TensorRef, View};

/// Writes a node, with the names of the tensors that it refers to by index.
pub(in crate::format) fn write(node: &Node, keys: &[&str], json: &mut Json) {
    let list = |items: &[Node], json: &mut Json| {
        json.list(items, |json, item| write(item, keys, json));
    };
    match node {
        Node::None => json.raw("null"),
        Node::Bool(value) => json.raw(if *value { "true" } else { "false" }),
        Node::Int(value) => json.value(value),
        Node::Float(value) if value.is_finite() => json.value(value),
        Node::Str(text) => json.text(text),
        Node::List(items) => list(items, json),
        Node::BigInt(digits) => single(json, "int", |json| json.text(digits)),
        Node::Float(value) => single(json, "float", |json| json.value(&Real(*value))),
        Node::Complex(re, im) => {
            single(json, "complex", |json| json.value(&[Real(*re), Real(*im)]));
        }
        Node::Bytes(bytes) => single(json, "bytes", |json| json.text(&BASE64.encode(bytes))),
        Node::Tuple(items) => single(json, "tuple", |json| list(items, json)),
        Node::Set(items) => single(json, "set", |json| list(items, json)),
        Node::Dict(entries) => dict(entries, keys, json),
        Node::Tensor(leaf) => tensor(leaf, keys[leaf.index], json),
        Node::Tagged { tag, value } => {
            json.raw("{\"tag\":");
            json.text(tag);
            json.raw(",\"value\":");
            write(value, keys, json);
            json.raw("}");
        }
    }
}

/// An object with one key.
fn single(json: &mut Json, key: &str, value: impl FnOnce(&mut Json)) {
    json.raw("{\"");
    json.raw(key);
    json.raw("\":");
    value(json);
    json.raw("}");
}

fn dict(entries: &[(Node, Node)], keys: &[&str], json: &mut Json) {
    let text = |(key, value): &'_ (Node, Node), json: &mut Json| {
        json.text(key.as_str().unwrap_or_default());
        json.raw(":");
        write(value, keys, json);
    };
    let pair = |(key, value): &'_ (Node, Node), json: &mut Json| {
        json.list([key, value], |json, node| write(node, keys, json));
    };
    if entries.iter().all(|(key, _)| matches!(key, Node::Str(_))) {
        single(json, "dict", |json| {
            json.object(entries, |json, entry| text(entry, json));
        });
    } else {
        single(json, "items", |json| {
            json.list(entries, |json, entry| pair(entry, json));
        });
    }
}

fn tensor(leaf: &TensorRef, key: &str, json: &mut Json) {
    json.raw("{\"tensor\":");
    json.text(key);
    if !leaf.kind.is_empty() {
        json.raw(",\"kind\":");
        json.text(&leaf.kind);
    }
    if let Some(view) = &leaf.view {
        let View {
            dtype,
            shape,
            strides,
            offset,
        } = view;
        json.raw(",\"view\":{\"dtype\":");
        json.text(dtype.name());
        json.raw(",\"shape\":");
        json.numbers(shape);
        json.raw(",\"strides\":");
        json.value(strides);
        json.raw(",\"offset\":");
        json.number(*offset);
        json.raw("}");
    }
    json.raw("}");
}
