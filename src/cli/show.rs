use serde_json::{Map, Value, json};

use super::FINE;
use super::arguments::Show;
use super::failure::Failure;
use super::json;
use super::place::Place;
use super::screen::{Screen, Style};
use super::table::{Align, Cell, Table};
use crate::format::{node_json, node_value};
use crate::{Data, Node, Opened, Tensor, TensorRef};

/// So many values of a list are shown.
const SHOWN: usize = 8;

pub(super) fn run(arguments: &Show, screen: &mut Screen<'_>) -> Result<u8, Failure> {
    let opened = Place::at(&arguments.dir)?.open(arguments.step, screen)?;
    if screen.is_json() {
        screen.document(&document(&opened))?;
        return Ok(FINE);
    }
    let info = &opened.info;
    screen.styled(Style::Heading, &format!("step {}", info.step))?;
    let tensors = json::count(opened.state.tensors.len(), "tensor");
    screen.line(&format!("path      {}", info.path.display()))?;
    screen.line(&format!("saved     {} UTC", json::time(info.created)))?;
    screen.line(&format!(
        "size      {} in {tensors}",
        json::size(info.nbytes)
    ))?;
    if !info.metrics.is_empty() {
        screen.line(&format!("metrics   {}", json::short_metrics(&info.metrics)))?;
    }
    if info.metadata != Node::None {
        screen.line(&format!("metadata  {}", json::plain(&info.metadata)))?;
    }
    screen.line("")?;
    screen.table(&tree(&opened))?;
    Ok(FINE)
}

fn tree(opened: &Opened) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("DTYPE", Align::Left),
        ("SHAPE", Align::Left),
        ("SIZE", Align::Right),
        // The last, which pads no other however long it is.
        ("VALUE", Align::Left),
    ]);
    let mut walk = Walk {
        tensors: &opened.state.tensors,
        keys: keys(opened),
        table: &mut table,
    };
    walk.visit(&opened.state.root, "state", 0, "");
    table
}

fn keys(opened: &Opened) -> Vec<&str> {
    opened
        .state
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect()
}

struct Walk<'a> {
    tensors: &'a [Tensor],
    keys: Vec<&'a str>,
    table: &'a mut Table,
}

impl Walk<'_> {
    /// A row for the node and for each one in it; `tags` are those around it, each with a space behind.
    fn visit(&mut self, node: &Node, name: &str, depth: usize, tags: &str) {
        let several = |kind: &str, items: usize| format!("{tags}{kind} of {items}");
        match node {
            Node::Tagged { tag, value } => {
                // The versions of torch's modules fill pages.
                let tag = tag.split_once(":{").map_or(tag.as_str(), |(tag, _)| tag);
                self.visit(value, name, depth, &format!("{tags}{tag} "));
            }
            Node::Tensor(leaf) => self.tensor(leaf, name, depth, tags),
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => {
                let kind = match node {
                    Node::List(_) => "list",
                    Node::Tuple(_) => "tuple",
                    _ => "set",
                };
                let several = several(kind, items.len());
                if !items.is_empty() && items.iter().all(is_plain) {
                    let line = format!("{several}: {}", first(items));
                    self.row(name, depth, line, Style::Plain);
                    return;
                }
                self.row(name, depth, several, Style::Faint);
                for (i, item) in items.iter().enumerate() {
                    self.visit(item, &i.to_string(), depth + 1, "");
                }
            }
            Node::Dict(entries) => {
                self.row(name, depth, several("dict", entries.len()), Style::Faint);
                for (key, value) in entries {
                    self.visit(value, &key.name(), depth + 1, "");
                }
            }
            value => {
                let value = node_json(value, &self.keys);
                self.row(name, depth, format!("{tags}{value}"), Style::Plain);
            }
        }
    }

    fn row(&mut self, name: &str, depth: usize, value: String, style: Style) {
        let [dtype, shape, size] = ["", "", ""].map(Cell::from);
        let value = Cell::styled(value, style);
        self.table
            .row([indented(name, depth), dtype, shape, size, value]);
    }

    fn tensor(&mut self, leaf: &TensorRef, name: &str, depth: usize, tags: &str) {
        let tensor = &self.tensors[leaf.index];
        let (dtype, shape, size, part) = if let Some(view) = &leaf.view {
            let part = format!(", part of {}", tensor.name);
            (view.dtype, &view.shape, String::new(), part)
        } else {
            let size = json::size(tensor.nbytes());
            (tensor.dtype, &tensor.shape, size, String::new())
        };
        let kind = if leaf.kind.is_empty() {
            "tensor"
        } else {
            &leaf.kind
        };
        self.table.row([
            indented(name, depth),
            dtype.name().into(),
            format!("{shape:?}").into(),
            size.into(),
            Cell::styled(format!("{tags}{kind}{part}"), Style::Faint),
        ]);
    }
}

/// Whether it is written as it is, with nothing in it to look into.
fn is_plain(node: &Node) -> bool {
    !matches!(
        node,
        Node::Tensor(_)
            | Node::List(_)
            | Node::Tuple(_)
            | Node::Set(_)
            | Node::Dict(_)
            | Node::Tagged { .. }
    )
}

/// The first of many plain values, in a line.
fn first(items: &[Node]) -> String {
    let mut values: Vec<String> = items
        .iter()
        .take(SHOWN)
        .map(|item| node_json(item, &[]))
        .collect();
    if items.len() > SHOWN {
        values.push("…".to_owned());
    }
    values.join(", ")
}

fn indented(name: &str, depth: usize) -> Cell {
    format!("{:1$}{name}", "", 2 * depth).into()
}

fn document(opened: &Opened) -> Value {
    let mut all = json::info(&opened.info);
    let keys = keys(opened);
    all.insert("metadata".into(), node_value(&opened.info.metadata, &[]));
    all.insert("tree".into(), node_value(&opened.state.root, &keys));
    let tensors = opened.state.tensors.iter().map(|tensor| {
        let mut files: Vec<String> = match &tensor.data {
            Data::Pieces(pieces) => pieces
                .iter()
                .filter_map(|piece| file(&piece.tensor))
                .collect(),
            _ => file(tensor).into_iter().collect(),
        };
        files.dedup();
        let entry = json!({
            "dtype": tensor.dtype.name(),
            "shape": tensor.shape,
            "bytes": tensor.nbytes(),
            "files": files,
        });
        (tensor.name.clone(), entry)
    });
    all.insert(
        "tensors".into(),
        Value::Object(tensors.collect::<Map<_, _>>()),
    );
    Value::Object(all)
}

/// Name of the file that a tensor lies in.
fn file(tensor: &Tensor) -> Option<String> {
    match &tensor.data {
        Data::Stored(stored) => {
            let path = std::path::Path::new(stored.source.name());
            Some(path.file_name()?.to_string_lossy().into_owned())
        }
        _ => None,
    }
}
