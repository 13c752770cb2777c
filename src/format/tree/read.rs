//! A tree from JSON, straight into nodes.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{MAX_DEPTH, Real, check_keys, is_hexadecimal};
use crate::state::{DType, Node, TensorRef, View};

/// How numbers come if some crate has switched on `arbitrary_precision` of `serde_json`: the only key of an
/// object, whose value is their text.
const NUMBER: &str = "$serde_json::private::Number";

/// Text, where it lies if it holds no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(in crate::format) struct Text<'a>(#[serde(borrow)] pub(in crate::format) Cow<'a, str>);

/// A tree whose leaves do not know their tensors yet: each has the index of a name.
pub(in crate::format) struct ReadTree<'a> {
    root: Node,
    names: Vec<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for ReadTree<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut names = Vec::new();
        let reading = Reading {
            names: &mut names,
            levels: MAX_DEPTH,
        };
        let root = reading.deserialize(from)?;
        Ok(ReadTree { root, names })
    }
}

impl ReadTree<'_> {
    /// The tree, with the tensors that `index` finds by their names and sees fit for the views.
    pub(in crate::format) fn resolve(
        self,
        index: impl Fn(&str, Option<&View>) -> Option<usize>,
    ) -> Result<Node, String> {
        let ReadTree { mut root, names } = self;
        let mut missing = None;
        root.for_each_tensor_mut(&mut |leaf| {
            let name = &names[leaf.index];
            match index(name, leaf.view.as_ref()) {
                Some(index) => leaf.index = index,
                None => missing = Some(name),
            }
        });
        match missing {
            Some(name) => Err(format!(
                "the tree refers to {name:?}, which is not there or not as large"
            )),
            None => Ok(root),
        }
    }
}

/// Reads a node that may hold so many levels of containers.
struct Reading<'a, 'de> {
    names: &'a mut Vec<Cow<'de, str>>,
    levels: usize,
}

impl<'de> Reading<'_, 'de> {
    /// For what lies at the same level.
    fn again(&mut self) -> Reading<'_, 'de> {
        Reading {
            names: self.names,
            levels: self.levels,
        }
    }

    /// For what lies in a container.
    fn inner<E: Error>(&mut self) -> Result<Reading<'_, 'de>, E> {
        let levels = self.levels.checked_sub(1);
        Ok(Reading {
            levels: levels.ok_or_else(|| E::custom("it nests too deep"))?,
            names: self.names,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_, 'de> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Node, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_, 'de> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        let value = i64::try_from(value);
        value
            .map(Node::Int)
            .map_err(|_| E::custom("an integer out of range"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Str(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Node, A::Error> {
        Items(self).visit_seq(seq).map(Node::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Node, A::Error> {
        Object::default().read(self, map)
    }
}

/// What an object says, whatever the order of its keys.
#[derive(Default)]
struct Object<'de> {
    /// How many keys it has.
    keys: usize,
    tensor: Option<usize>,
    kind: Option<Text<'de>>,
    view: Option<ReadView<'de>>,
    tag: Option<String>,
    value: Option<Node>,
    /// What the one key that stands for itself says.
    plain: Option<Node>,
}

#[derive(Deserialize)]
struct ReadView<'a> {
    #[serde(borrow)]
    dtype: Text<'a>,
    shape: Vec<u64>,
    strides: Vec<i64>,
    offset: u64,
}

impl<'de> Object<'de> {
    fn read<A: MapAccess<'de>>(
        mut self,
        mut reading: Reading<'_, 'de>,
        mut map: A,
    ) -> Result<Node, A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            self.keys += 1;
            match &*key {
                "tensor" => {
                    let Text(name) = map.next_value()?;
                    self.tensor = Some(reading.names.len());
                    reading.names.push(name);
                }
                "kind" => self.kind = Some(map.next_value()?),
                "view" => self.view = Some(map.next_value()?),
                "tag" => self.tag = Some(map.next_value()?),
                "value" => self.value = Some(map.next_value_seed(reading.inner()?)?),
                key => self.plain = plain(key, &mut reading, &mut map)?,
            }
        }
        self.node().map_err(A::Error::custom)
    }

    fn node(self) -> Result<Node, &'static str> {
        match self {
            Object {
                tensor: Some(index),
                kind,
                view,
                ..
            } => Ok(Node::Tensor(TensorRef {
                index,
                kind: kind.map_or("".into(), |Text(kind)| known_kind(&kind)),
                view: view.map(ReadView::view).transpose()?,
            })),
            Object {
                keys: 2,
                tag: Some(tag),
                value: Some(value),
                ..
            } => Ok(Node::tagged(tag, value)),
            Object {
                keys: 1,
                plain: Some(node),
                ..
            } => Ok(node),
            _ => Err("an object with other keys than expected"),
        }
    }
}

/// The value of a key that stands for itself; `None` for a key that nobody knows.
fn plain<'de, A: MapAccess<'de>>(
    key: &str,
    reading: &mut Reading<'_, 'de>,
    map: &mut A,
) -> Result<Option<Node>, A::Error> {
    let malformed = || A::Error::custom(format!("a malformed {key:?}"));
    let node = match key {
        "tuple" => Node::Tuple(map.next_value_seed(Items(reading.again()))?),
        "set" => Node::Set(map.next_value_seed(Items(reading.again()))?),
        "dict" => Node::Dict(map.next_value_seed(Entries(reading.again()))?),
        "items" => Node::Dict(map.next_value_seed(Pairs(reading.again()))?),
        "complex" => {
            let [Real(re), Real(im)] = map.next_value()?;
            Node::Complex(re, im)
        }
        "int" | "float" | "bytes" | NUMBER => {
            let Text(text) = map.next_value()?;
            from_text(key, &text).ok_or_else(malformed)?
        }
        _ => {
            map.next_value::<IgnoredAny>()?;
            return Ok(None);
        }
    };
    Ok(Some(node))
}

fn from_text(key: &str, text: &str) -> Option<Node> {
    match key {
        "int" => is_hexadecimal(text).then(|| Node::BigInt(text.to_owned())),
        "float" => Real::from_text(text).map(|Real(value)| Node::Float(value)),
        "bytes" => BASE64.decode(text).ok().map(Node::Bytes),
        _ if text.contains(['.', 'e', 'E']) => text.parse().ok().map(Node::Float),
        _ => text.parse().ok().map(Node::Int),
    }
}

/// Most leaves are of one of these, and need no text of their own.
fn known_kind(kind: &str) -> Cow<'static, str> {
    let known = ["numpy", "torch", "jax"]
        .into_iter()
        .find(|&known| known == kind);
    known.map_or_else(|| Cow::Owned(kind.to_owned()), Cow::Borrowed)
}

impl ReadView<'_> {
    fn view(self) -> Result<View, &'static str> {
        Ok(View {
            dtype: DType::from_name(&self.dtype.0).ok_or("a view of an unknown element type")?,
            shape: self.shape,
            strides: self.strides,
            offset: self.offset,
        })
    }
}

/// The items of a list.
struct Items<'a, 'de>(Reading<'a, 'de>);
/// The entries of an object, as those of a dictionary.
struct Entries<'a, 'de>(Reading<'a, 'de>);
/// A list of pairs, as the entries of a dictionary.
struct Pairs<'a, 'de>(Reading<'a, 'de>);
/// A list of key and value.
struct Pair<'a, 'de>(Reading<'a, 'de>);

impl<'de> DeserializeSeed<'de> for Items<'_, 'de> {
    type Value = Vec<Node>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, 'de> {
    type Value = Vec<Node>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self.0.inner()?)? {
            items.push(item);
        }
        Ok(items)
    }
}

impl<'de> DeserializeSeed<'de> for Entries<'_, 'de> {
    type Value = Vec<(Node, Node)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entries<'_, 'de> {
    type Value = Vec<(Node, Node)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key()? {
            entries.push((Node::Str(key), map.next_value_seed(self.0.inner()?)?));
        }
        check_keys(&entries).map_err(A::Error::custom)?;
        Ok(entries)
    }
}

impl<'de> DeserializeSeed<'de> for Pairs<'_, 'de> {
    type Value = Vec<(Node, Node)>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_, 'de> {
    type Value = Vec<(Node, Node)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pairs")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = seq.next_element_seed(Pair(self.0.again()))? {
            entries.push(entry);
        }
        check_keys(&entries).map_err(A::Error::custom)?;
        Ok(entries)
    }
}

impl<'de> DeserializeSeed<'de> for Pair<'_, 'de> {
    type Value = (Node, Node);

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Pair<'_, 'de> {
    type Value = (Node, Node);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair of key and value")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        let key = seq.next_element_seed(self.0.inner()?)?;
        let value = seq.next_element_seed(self.0.inner()?)?;
        key.zip(value)
            .ok_or_else(|| A::Error::custom("a malformed pair of key and value"))
    }
}
