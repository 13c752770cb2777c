//! How things are written: for programs as JSON, for people in short.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::format::{float_value, node_value};
use crate::{CheckpointInfo, Node};

pub(super) use crate::renderer::figures::{bytes as size, time};

/// Metrics by name.
pub(super) fn metrics(metrics: &BTreeMap<String, f64>) -> Value {
    let metrics = metrics
        .iter()
        .map(|(name, &value)| (name.clone(), float_value(value)));
    Value::Object(metrics.collect::<Map<_, _>>())
}

/// Plain values for people: dictionaries with text keys are objects. What JSON has no value for is as in a manifest.
pub(super) fn plain(node: &Node) -> Value {
    let text = |key: &Node| key.as_str().map(str::to_owned);
    match node {
        Node::List(items) => Value::Array(items.iter().map(plain).collect()),
        Node::Dict(entries) if entries.iter().all(|(key, _)| text(key).is_some()) => {
            let entries = entries
                .iter()
                .filter_map(|(key, value)| Some((text(key)?, plain(value))));
            Value::Object(entries.collect())
        }
        other => node_value(other, &[]),
    }
}

/// A path; what is no Unicode in it is replaced.
pub(super) fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// What is known of a checkpoint without looking into it.
pub(super) fn info(info: &CheckpointInfo) -> Map<String, Value> {
    let mut all = Map::new();
    all.insert("step".into(), info.step.into());
    all.insert("path".into(), path(&info.path).into());
    all.insert(
        "created".into(),
        json!(humantime::format_rfc3339_millis(info.created).to_string()),
    );
    all.insert("bytes".into(), info.nbytes.into());
    all.insert("metrics".into(), metrics(&info.metrics));
    all
}

/// A number, rounded to six digits.
pub(super) fn short(value: f64) -> String {
    let exact = format!("{value:?}");
    if exact.len() <= 8 {
        return exact;
    }
    let rounded = format!("{value:.5e}").parse::<f64>();
    rounded.map_or(exact, |rounded| format!("{rounded:?}"))
}

/// Metrics in a line.
pub(super) fn short_metrics(metrics: &BTreeMap<String, f64>) -> String {
    let metrics = metrics
        .iter()
        .map(|(name, value)| format!("{name} {}", short(*value)));
    metrics.collect::<Vec<_>>().join(", ")
}

/// So many things, with the right ending.
pub(super) fn count(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_spared_the_last_digits() {
        for (value, text) in [
            (2.0 / 3.0, "0.666667"),
            (1e-9 / 3.0, "3.33333e-10"),
            (1_234_567.0, "1234570.0"),
            (1.5, "1.5"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn people_see_json_as_they_know_it() {
        let inner = Node::List(vec![Node::Int(1), Node::dict([("b", Node::None)])]);
        let infinite = Node::Tuple(vec![Node::Float(f64::INFINITY)]);
        let node = Node::dict([("a", inner), ("c", infinite)]);
        assert_eq!(
            plain(&node).to_string(),
            r#"{"a":[1,{"b":null}],"c":{"tuple":[{"float":"inf"}]}}"#
        );
        let numbered = Node::Dict(vec![(Node::Int(1), Node::Bool(true))]);
        assert_eq!(plain(&numbered), node_value(&numbered, &[]));
    }

    #[test]
    fn what_json_has_no_number_for_is_a_text() {
        let of = |value| float_value(value).to_string();
        assert_eq!(
            [of(0.5), of(f64::INFINITY), of(-0.0)],
            ["0.5", "\"inf\"", "-0.0"]
        );
        assert!(of(f64::NAN).starts_with("\"nan:"));
    }
}
