//! From Python objects to a state.

mod fields;
mod refusing;
mod values;
mod way;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple, PyType};

pub(super) use self::fields::dataclass_fields;
use self::fields::{further_attribute, makes_named_tuple};
use self::refusing::{UNHASHABLE, built_in, is_hashable, why_not};
use self::values::{Container, container_class, framework_value, plain};
use self::way::{Step, Way};
use super::arrays::{self, Array, jax::Jax, numpy::Numpy, torch::Torch};
use super::errors::Refusal;
use super::known::{Std, text, type_name};
use super::module_versions;
use crate::format::MAX_DEPTH;
use crate::state::{Node, State};

/// Byte strings up to this length are kept in the manifest; longer ones are stored like tensors.
const INLINE_BYTES: usize = 4096;

/// A state over memory that belongs to Python, and what keeps that memory in place.
pub(super) struct Flattened {
    pub(super) state: State,
    /// Owners of memory that is copied; needed until the copy is done.
    pub(super) owners: Vec<Py<PyAny>>,
    /// Owners of memory that is borrowed; needed until the save is done.
    pub(super) lenders: Vec<Py<PyAny>>,
}

/// Flattens `object`; `what` is what to call it in an error, such as `state`.
///
/// The memory stays where it is while the owners are held and no code of the user runs: for copying it at once,
/// while the caller waits.
pub(super) fn flatten(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Flattened> {
    flatten_with(object, what, false)
}

/// As [`flatten`], for memory that is read while code of the user runs: it stays where it is whatever is done
/// to the arrays, as far as [`arrays::hold`] can see to it. Costs up to a microsecond more an array.
pub(super) fn flatten_and_hold(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Flattened> {
    flatten_with(object, what, true)
}

fn flatten_with(object: &Bound<'_, PyAny>, what: &str, hold: bool) -> PyResult<Flattened> {
    let mut flattener = Flattener {
        what,
        hold,
        held: 0,
        state: State::default(),
        owners: Vec::new(),
        lenders: Vec::new(),
    };
    let root = flattener.node(object, None)?;
    flattener.state.root = root;
    Ok(Flattened {
        state: flattener.state.share_memory(),
        owners: flattener.owners,
        lenders: flattener.lenders,
    })
}

/// The node of a dictionary key, to compare keys by.
pub(super) fn key_node(key: &Bound<'_, PyAny>) -> PyResult<Node> {
    Ok(flatten(key, "key")?.state.root)
}

struct Flattener<'a> {
    what: &'a str,
    hold: bool,
    /// How many of the owners hold the memory already.
    held: usize,
    state: State,
    owners: Vec<Py<PyAny>>,
    lenders: Vec<Py<PyAny>>,
}

type Parent<'a, 'py> = Option<&'a Way<'a, 'py>>;

impl Flattener<'_> {
    fn place(&self, way: Parent<'_, '_>) -> String {
        let mut place = self.what.to_owned();
        if let Some(way) = way {
            way.write(&mut place);
        }
        place
    }

    fn refuse(&self, object: &Bound<'_, PyAny>, way: Parent<'_, '_>, why: &str) -> PyErr {
        Refusal::Unsupported(why.to_owned()).at(&self.place(way), object)
    }

    fn node<'py>(&mut self, object: &Bound<'py, PyAny>, way: Parent<'_, 'py>) -> PyResult<Node> {
        if let Some(node) = plain(object)? {
            return Ok(node);
        }
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return self.bytes(bytes, way);
        }
        if let Some(class) = container_class(object) {
            self.check_nesting(object, way)?;
            return match class {
                Container::List => Ok(Node::List(self.items(
                    object,
                    object.cast::<PyList>()?.iter(),
                    way,
                )?)),
                Container::Tuple => Ok(Node::Tuple(self.items(
                    object,
                    object.cast::<PyTuple>()?.iter(),
                    way,
                )?)),
                Container::Dict => self.dict(object, object.cast::<PyDict>()?, way),
                Container::Set => self.set(object, way).map(Node::Set),
                Container::FrozenSet => {
                    Ok(Node::tagged("frozenset", Node::Set(self.set(object, way)?)))
                }
            };
        }
        match arrays::describe(object) {
            Ok(Some(array)) => return self.array(object, array, way),
            Ok(None) => {}
            Err(refusal) => match self.jax_key(object, way) {
                Some(result) => return result,
                None => return Err(refusal.at(&self.place(way), object)),
            },
        }
        if let Some(node) = framework_value(object)? {
            return node.map_err(|refusal| refusal.at(&self.place(way), object));
        }
        self.check_nesting(object, way)?;
        self.rich(object, way)
    }

    fn check_nesting(&self, object: &Bound<'_, PyAny>, way: Parent<'_, '_>) -> PyResult<()> {
        let Some(way) = way else { return Ok(()) };
        if way.passes(object) {
            return Err(self.refuse(object, Some(way), "a container that holds itself"));
        }
        if way.depth() >= MAX_DEPTH / 2 {
            let why = format!("nested deeper than {} containers", MAX_DEPTH / 2);
            return Err(self.refuse(object, Some(way), &why));
        }
        Ok(())
    }

    fn items<'py>(
        &mut self,
        container: &Bound<'py, PyAny>,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        way: Parent<'_, 'py>,
    ) -> PyResult<Vec<Node>> {
        let item = |(index, item): (usize, Bound<'py, PyAny>)| {
            self.node(
                &item,
                Some(&Way {
                    parent: way,
                    container,
                    step: Step::Index(index),
                }),
            )
        };
        items.enumerate().map(item).collect()
    }

    fn dict<'py>(
        &mut self,
        container: &Bound<'py, PyAny>,
        dict: &Bound<'py, PyDict>,
        way: Parent<'_, 'py>,
    ) -> PyResult<Node> {
        let mut entries = Vec::with_capacity(dict.len());
        // A copy, since an object in it that is asked for its state may change it.
        for (key, value) in dict.copy()?.iter() {
            let way = Way {
                parent: way,
                container,
                step: Step::Key(&key),
            };
            entries.push((self.key(&key, &way)?, self.node(&value, Some(&way))?));
        }
        Ok(Node::Dict(entries))
    }

    fn key<'py>(&mut self, key: &Bound<'py, PyAny>, way: &Way<'_, 'py>) -> PyResult<Node> {
        match plain(key)? {
            None | Some(Node::Float(_) | Node::Complex(..)) => {}
            Some(node) => return Ok(node),
        }
        let stored = self.state.tensors.len();
        let scalar = Numpy::get(key.py())?.map_or(Ok(false), |numpy| numpy.is_scalar(key))?;
        if !scalar && !key.is_exact_instance_of::<PyTuple>() {
            return Err(self.refuse(
                key,
                Some(way),
                "a dictionary key that is no str, int, bool, None or tuple",
            ));
        }
        let node = self.node(key, Some(way))?;
        if self.state.tensors.len() > stored {
            return Err(self.refuse(key, Some(way), "a dictionary key that holds an array"));
        }
        if !is_hashable(&node) {
            return Err(self.refuse(key, Some(way), UNHASHABLE));
        }
        Ok(node)
    }

    fn set<'py>(&mut self, set: &Bound<'py, PyAny>, way: Parent<'_, 'py>) -> PyResult<Vec<Node>> {
        let items: Vec<Bound<'py, PyAny>> = set.try_iter()?.collect::<PyResult<_>>()?;
        let nodes = self.items(set, items.iter().cloned(), way)?;
        if let Some(index) = nodes.iter().position(|node| !is_hashable(node)) {
            let way = Way {
                parent: way,
                container: set,
                step: Step::Index(index),
            };
            return Err(self.refuse(&items[index], Some(&way), UNHASHABLE));
        }
        Ok(nodes)
    }

    fn bytes(&mut self, bytes: &Bound<'_, PyBytes>, way: Parent<'_, '_>) -> PyResult<Node> {
        if bytes.as_bytes().len() <= INLINE_BYTES {
            return Ok(Node::Bytes(bytes.as_bytes().to_vec()));
        }
        match arrays::describe(bytes.as_any()) {
            Ok(Some(array)) => {
                let array = Array {
                    kind: "bytes".into(),
                    immutable: true,
                    ..array
                };
                self.push(array)
                    .map_err(|e| Refusal::from(e).at(&self.place(way), bytes.as_any()))
            }
            Ok(None) => Err(self.refuse(bytes.as_any(), way, "its memory cannot be reached")),
            Err(refusal) => Err(refusal.at(&self.place(way), bytes.as_any())),
        }
    }

    fn push(&mut self, array: Array<'_>) -> PyResult<Node> {
        let leaf = arrays::leaf(self.state.tensors.len(), array.kind.clone());
        let owners = if array.immutable {
            &mut self.lenders
        } else {
            &mut self.owners
        };
        owners.push(array.owner.clone().unbind());
        if self.hold {
            self.hold_seen(array.owner.py())?;
        }
        self.state.tensors.push(array.into_tensor()?);
        Ok(leaf)
    }

    /// Holds the memory of all arrays so far, since code of the user is about to run.
    fn hold_seen(&mut self, py: Python<'_>) -> PyResult<()> {
        for owner in &mut self.owners[self.held..] {
            *owner = arrays::hold(owner.bind(py))?.unbind();
        }
        self.held = self.owners.len();
        Ok(())
    }

    fn array<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
        array: Array<'py>,
        way: Parent<'_, 'py>,
    ) -> PyResult<Node> {
        let of_torch = arrays::framework(&array.kind) == "torch";
        let leaf = self
            .push(array)
            .map_err(|e| Refusal::from(e).at(&self.place(way), object))?;
        if !of_torch {
            return Ok(leaf);
        }
        let py = object.py();
        let grad: bool = object
            .getattr(pyo3::intern!(py, "requires_grad"))?
            .extract()?;
        let parameter = Torch::get(py)?.is_some_and(|torch| torch.is_parameter(object));
        Ok(match (parameter, grad) {
            (true, true) => Node::tagged("torch.Parameter", leaf),
            (true, false) => Node::tagged("torch.Parameter:frozen", leaf),
            (false, true) => Node::tagged("torch.requires_grad", leaf),
            (false, false) => leaf,
        })
    }

    /// A typed random key of JAX: an array of another kind, kept as its numbers and the name of its generator.
    fn jax_key<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
        way: Parent<'_, 'py>,
    ) -> Option<PyResult<Node>> {
        let py = object.py();
        let is_key = || -> PyResult<bool> {
            match Jax::get(py)? {
                Some(jax) => Ok(jax.is_array(object)? && jax.is_key(object)?),
                None => Ok(false),
            }
        };
        if !is_key().unwrap_or(false) {
            return None;
        }
        let mut make = || -> PyResult<Node> {
            let random = py.import("jax.random")?;
            let implementation = text(&random.call_method1("key_impl", (object,))?)?;
            let data = random.call_method1("key_data", (object,))?;
            let node = self.node(&data, way)?;
            Ok(Node::tagged(format!("jax.key:{implementation}"), node))
        };
        Some(make())
    }

    /// Everything that is neither plain, nor a built-in container, nor an array.
    fn rich<'py>(&mut self, object: &Bound<'py, PyAny>, way: Parent<'_, 'py>) -> PyResult<Node> {
        let py = object.py();
        let std = Std::get(py)?;
        let class = object.get_type();
        let is = |known: &Py<PyType>| class.is(known.bind(py));
        if is(&std.ordered_dict) || is(&std.counter) {
            let tag = if is(&std.counter) {
                "collections.Counter".to_owned()
            } else {
                module_versions::tag(object)?
            };
            return Ok(Node::tagged(
                tag,
                self.dict(object, object.cast::<PyDict>()?, way)?,
            ));
        }
        if is(&std.default_dict) {
            return self.default_dict(object, way);
        }
        if is(&std.deque) {
            let maxlen: Option<usize> = object.getattr("maxlen")?.extract()?;
            let tag = maxlen.map_or("collections.deque".to_owned(), |n| {
                format!("collections.deque:{n}")
            });
            // A copy, since an object in it that is asked for its state may change it.
            let items: Vec<_> = object.try_iter()?.collect::<PyResult<_>>()?;
            let items = self.items(object, items.into_iter(), way)?;
            return Ok(Node::tagged(tag, Node::List(items)));
        }
        if is(&std.simple_namespace) {
            let fields = object.getattr("__dict__")?.cast_into::<PyDict>()?;
            // A copy, as of any dictionary.
            let fields = self.fields(object, fields.copy()?.iter(), way)?;
            return Ok(Node::tagged("types.SimpleNamespace", fields));
        }
        if has_state(object)? {
            self.hold_seen(py)?;
            let state = object.call_method0(pyo3::intern!(py, "state_dict"));
            let state = state.inspect_err(|error| {
                let note = format!("pitstop: raised by state_dict of {}", self.place(way));
                // A note that cannot be added must not take the place of the error.
                let _ = error.value(py).call_method1("add_note", (note,));
            })?;
            let way = Way {
                parent: way,
                container: object,
                step: Step::State,
            };
            return Ok(Node::tagged(
                format!("object:{}", type_name(object)),
                self.node(&state, Some(&way))?,
            ));
        }
        if let (Ok(tuple), true) = (object.cast::<PyTuple>(), class.hasattr("_fields")?) {
            return self.named_tuple(tuple, way);
        }
        if class.hasattr("__dataclass_fields__")?
            && !object.is_instance_of::<PyType>()
            && built_in(object)?.is_none()
        {
            let fields = dataclass_fields(object)?;
            self.refuse_further(object, &fields, way)?;
            let node = self.fields(object, fields.into_iter(), way)?;
            let tag = format!("dataclass:{}", type_name(object));
            return Ok(Node::tagged(tag, node));
        }
        Err(self.refuse(object, way, &why_not(object)?))
    }

    fn named_tuple<'py>(
        &mut self,
        tuple: &Bound<'py, PyTuple>,
        way: Parent<'_, 'py>,
    ) -> PyResult<Node> {
        let class = tuple.get_type();
        let (name, names) = (class.name()?, class.getattr("_fields")?);
        let names: Vec<Bound<'py, PyAny>> = names.try_iter()?.collect::<PyResult<_>>()?;
        if names.len() != tuple.len() || !makes_named_tuple(&name, &names)? {
            let why = "no named tuple of its names and items can be made; pass tuple(…) of it";
            return Err(self.refuse(tuple, way, why));
        }
        self.refuse_further(tuple, &[], way)?;
        let node = self.fields(tuple, names.into_iter().zip(tuple.iter()), way)?;
        let tag = format!("namedtuple:{}", name.to_string_lossy());
        Ok(Node::tagged(tag, node))
    }

    fn refuse_further<'py>(
        &self,
        object: &Bound<'py, PyAny>,
        fields: &[(Bound<'py, PyAny>, Bound<'py, PyAny>)],
        way: Parent<'_, 'py>,
    ) -> PyResult<()> {
        let Some(name) = further_attribute(object, fields)? else {
            return Ok(());
        };
        let why = format!("its attribute {name} is no field, and would be lost; make it one");
        Err(self.refuse(object, way, &why))
    }

    fn fields<'py>(
        &mut self,
        container: &Bound<'py, PyAny>,
        fields: impl Iterator<Item = (Bound<'py, PyAny>, Bound<'py, PyAny>)>,
        way: Parent<'_, 'py>,
    ) -> PyResult<Node> {
        let mut entries = Vec::new();
        for (name, value) in fields {
            let name: String = name.extract()?;
            let way = Way {
                parent: way,
                container,
                step: Step::Field(&name),
            };
            let value = self.node(&value, Some(&way))?;
            entries.push((Node::Str(name), value));
        }
        Ok(Node::Dict(entries))
    }

    fn default_dict<'py>(
        &mut self,
        object: &Bound<'py, PyAny>,
        way: Parent<'_, 'py>,
    ) -> PyResult<Node> {
        let factory = object.getattr("default_factory")?;
        let name = if factory.is_none() {
            "None".to_owned()
        } else {
            FACTORIES
                .iter()
                .find(|name| {
                    factory
                        .py()
                        .import("builtins")
                        .and_then(|b| b.getattr(**name))
                        .is_ok_and(|f| f.is(&factory))
                })
                .map(|name| (*name).to_owned())
                .ok_or_else(|| {
                    let why = format!(
                        "its default_factory must be one of {}, or None",
                        FACTORIES.join(", ")
                    );
                    self.refuse(object, way, &why)
                })?
        };
        let entries = self.dict(object, object.cast::<PyDict>()?, way)?;
        Ok(Node::tagged(
            format!("collections.defaultdict:{name}"),
            entries,
        ))
    }
}

/// Built-in types that a `defaultdict` may make its defaults with.
pub(super) const FACTORIES: [&str; 10] = [
    "int", "float", "complex", "bool", "str", "bytes", "list", "tuple", "dict", "set",
];

/// Whether it is an object that gives and takes its state.
pub(super) fn has_state(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    if object.is_instance_of::<PyType>() {
        return Ok(false);
    }
    let callable = |name| -> PyResult<bool> {
        Ok(object
            .getattr_opt(name)?
            .is_some_and(|method| method.is_callable()))
    };
    Ok(callable(pyo3::intern!(py, "state_dict"))?
        && callable(pyo3::intern!(py, "load_state_dict"))?)
}
