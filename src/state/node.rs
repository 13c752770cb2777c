use std::borrow::Cow;

use super::DType;

/// A value in the tree of a [`State`](super::State).
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Node {
    /// Nothing.
    #[default]
    None,
    /// A truth value.
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// An integer that does not: `0x` and hexadecimal digits, with a leading `-` if negative.
    BigInt(String),
    /// A double-precision number; every bit is kept, NaN payloads included.
    Float(f64),
    /// A complex number, real and imaginary part.
    Complex(f64, f64),
    /// Text.
    Str(String),
    /// Raw bytes, kept in the manifest: for short strings of bytes, not for arrays.
    Bytes(Vec<u8>),
    /// A tensor.
    Tensor(TensorRef),
    /// A list.
    List(Vec<Node>),
    /// A tuple.
    Tuple(Vec<Node>),
    /// A set, in any order.
    Set(Vec<Node>),
    /// A dictionary, in its order; keys are any plain values.
    Dict(Vec<(Node, Node)>),
    /// A value that stands for something richer, which only the front end that wrote it can rebuild.
    Tagged {
        /// What it is, such as `"collections.OrderedDict"`.
        tag: String,
        /// What it is made of.
        value: Box<Node>,
    },
}

/// A tensor leaf: which tensor of the state, seen how.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorRef {
    /// Index into [`State::tensors`](super::State::tensors).
    pub index: usize,
    /// What the leaf was to its owner, such as `"numpy"` or `"torch"`; empty if that does not matter.
    pub kind: Cow<'static, str>,
    /// The part of the tensor's memory that the leaf shows; `None`: the tensor itself.
    pub view: Option<View>,
}

/// A window on the memory of a stored tensor, for leaves that share memory with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Element type of the view.
    pub dtype: DType,
    /// Shape of the view, in elements.
    pub shape: Vec<u64>,
    /// Distance between neighbours along each axis, in bytes; may be negative or zero.
    pub strides: Vec<i64>,
    /// Where its first element lies, in bytes from the start of the stored tensor.
    pub offset: u64,
}

impl Node {
    /// A dictionary with text keys, in the given order.
    pub fn dict<K: Into<String>>(entries: impl IntoIterator<Item = (K, Node)>) -> Node {
        Node::Dict(
            entries
                .into_iter()
                .map(|(key, value)| (Node::Str(key.into()), value))
                .collect(),
        )
    }

    /// Wraps `value` in a tag.
    pub fn tagged(tag: impl Into<String>, value: Node) -> Node {
        Node::Tagged {
            tag: tag.into(),
            value: Box::new(value),
        }
    }

    /// The entry of a dictionary under a text key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match self {
            Node::Dict(entries) => entries
                .iter()
                .find(|(k, _)| matches!(k, Node::Str(s) if s == key))
                .map(|(_, v)| v),
            _ => None,
        }
    }

    /// Whether it is a tensor, whatever it stands for.
    pub(crate) fn is_leaf(&self) -> bool {
        match self {
            Node::Tensor(_) => true,
            Node::Tagged { value, .. } => value.is_leaf(),
            _ => false,
        }
    }

    /// How this dictionary key appears in names, such as `exp_avg` or `0`.
    pub fn name(&self) -> String {
        match self {
            Node::Str(text) | Node::BigInt(text) => text.clone(),
            Node::Int(value) => value.to_string(),
            Node::Bool(value) => if *value { "True" } else { "False" }.to_owned(),
            Node::None => "None".to_owned(),
            Node::Float(value) => value.to_string(),
            Node::Tuple(items) => items.iter().map(Node::name).collect::<Vec<_>>().join(","),
            Node::Tagged { value, .. } => value.name(),
            _ => "key".to_owned(),
        }
    }

    /// The part of the tree whose leaves `keep` accepts by name: the path of keys and indices, joined by
    /// dots. Entries of dictionaries that hold none are left out; items of lists and tuples become `None`, so
    /// that the others keep their index. `None` if no leaf is kept.
    pub fn select(&self, keep: &mut impl FnMut(&str) -> bool) -> Option<Node> {
        self.select_under("", keep)
    }

    fn select_under(&self, path: &str, keep: &mut impl FnMut(&str) -> bool) -> Option<Node> {
        let join = |name: &str| {
            if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            }
        };
        let mut items = |items: &[Node]| {
            let kept: Vec<Option<Node>> = items
                .iter()
                .enumerate()
                .map(|(i, item)| item.select_under(&join(&i.to_string()), keep))
                .collect();
            let any = kept.iter().any(Option::is_some);
            any.then(|| kept.into_iter().map(Option::unwrap_or_default).collect())
        };
        match self {
            Node::List(list) => items(list).map(Node::List),
            Node::Tuple(tuple) => items(tuple).map(Node::Tuple),
            Node::Dict(entries) => {
                let kept = entries.iter().filter_map(|(key, value)| {
                    Some((key.clone(), value.select_under(&join(&key.name()), keep)?))
                });
                Some(kept.collect::<Vec<_>>())
                    .filter(|kept| !kept.is_empty())
                    .map(Node::Dict)
            }
            Node::Tagged { tag, value } => {
                Some(Node::tagged(tag.clone(), value.select_under(path, keep)?))
            }
            leaf => keep(path).then(|| leaf.clone()),
        }
    }

    /// The value if this is an integer that fits.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Node::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The value if this is a floating-point number.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Node::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// The text if this is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Node::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Calls `visit` on every tensor leaf, in the order of the tree.
    pub fn for_each_tensor(&self, visit: &mut impl FnMut(&TensorRef)) {
        match self {
            Node::Tensor(leaf) => visit(leaf),
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => {
                for item in items {
                    item.for_each_tensor(visit);
                }
            }
            Node::Dict(entries) => {
                for (key, value) in entries {
                    key.for_each_tensor(visit);
                    value.for_each_tensor(visit);
                }
            }
            Node::Tagged { value, .. } => value.for_each_tensor(visit),
            _ => {}
        }
    }

    /// Calls `visit` on every tensor leaf, in the order of the tree, to change it.
    pub fn for_each_tensor_mut(&mut self, visit: &mut impl FnMut(&mut TensorRef)) {
        match self {
            Node::Tensor(leaf) => visit(leaf),
            Node::List(items) | Node::Tuple(items) | Node::Set(items) => {
                for item in items {
                    item.for_each_tensor_mut(visit);
                }
            }
            Node::Dict(entries) => {
                for (key, value) in entries {
                    key.for_each_tensor_mut(visit);
                    value.for_each_tensor_mut(visit);
                }
            }
            Node::Tagged { value, .. } => value.for_each_tensor_mut(visit),
            _ => {}
        }
    }
}

impl From<bool> for Node {
    fn from(value: bool) -> Node {
        Node::Bool(value)
    }
}

impl From<i64> for Node {
    fn from(value: i64) -> Node {
        Node::Int(value)
    }
}

impl From<f64> for Node {
    fn from(value: f64) -> Node {
        Node::Float(value)
    }
}

impl From<&str> for Node {
    fn from(value: &str) -> Node {
        Node::Str(value.to_owned())
    }
}

impl From<String> for Node {
    fn from(value: String) -> Node {
        Node::Str(value)
    }
}
