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
        screen.line(&format!("metadata  {}", node_json(&info.metadata, &[])))?;
    }
    screen.line("")?;
    screen.table(&tree(&opened))?;
    Ok(FINE)
}

fn tree(opened: &Opened) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("VALUE", Align::Left),
        ("DTYPE", Align::Left),
        ("SHAPE", Align::Left),
        ("SIZE", Align::Right),
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
                self.row(name, depth, several(kind, items.len()), Style::Faint);
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
        self.table
            .row([indented(name, depth), Cell::styled(value, style)]);
    }

    fn tensor(&mut self, leaf: &TensorRef, name: &str, depth: usize, tags: &str) {
        let tensor = &self.tensors[leaf.index];
        let (dtype, shape, size) = match &leaf.view {
            Some(view) => (view.dtype, &view.shape, format!("part of {}", tensor.name)),
            None => (tensor.dtype, &tensor.shape, json::size(tensor.nbytes())),
        };
        let kind = if leaf.kind.is_empty() {
            "tensor"
        } else {
            &leaf.kind
        };
        self.table.row([
            indented(name, depth),
            Cell::styled(format!("{tags}{kind}"), Style::Faint),
            dtype.name().into(),
            format!("{shape:?}").into(),
            size.into(),
        ]);
    }
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
