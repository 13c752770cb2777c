//! Looking into objects: what they hold, and whether any of it is to be filled in place.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::python::arrays::{self, Array};
use crate::python::errors::Refusal;
use crate::python::flatten::{dataclass_fields, has_state, key_node};
use crate::python::known::{Std, join, text};
use crate::state::Node;

/// The object as an array; `None` if it is something else, or an array of a kind that cannot be filled.
pub(super) fn array_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Array<'py>>> {
    match arrays::describe(object) {
        Ok(array) => Ok(array),
        Err(Refusal::Unsupported(_)) => Ok(None),
        Err(Refusal::Python(error)) => Err(error),
    }
}

/// Refuses what holds itself, which would be walked through without end.
pub(super) fn refuse_cycles(object: &Bound<'_, PyAny>) -> PyResult<()> {
    walk(object, &mut HashMap::new())
}

/// `seen` says of each container whether it is still being walked through.
fn walk(object: &Bound<'_, PyAny>, seen: &mut HashMap<usize, bool>) -> PyResult<()> {
    if is_plain(object) {
        return Ok(());
    }
    let children: Vec<Bound<'_, PyAny>> = if let Ok(dict) = object.cast::<PyDict>() {
        dict.values().iter().collect()
    } else if let Some(items) = items_of(object)? {
        items
    } else if let Some(fields) = fields_of(object)? {
        fields.into_iter().map(|(_, value)| value).collect()
    } else {
        return Ok(());
    };
    let address = object.as_ptr().addr();
    match seen.insert(address, true) {
        Some(true) => return Err(PyValueError::new_err("into: a container that holds itself")),
        Some(false) => {}
        None => children.iter().try_for_each(|child| walk(child, seen))?,
    }
    seen.insert(address, false);
    Ok(())
}

/// Values that hold nothing else, told by their type alone.
pub(super) fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyBytes>()
}

/// Dictionaries whose keys come with use, if they hold plain values.
pub(super) fn grows(dict: &Bound<'_, PyAny>) -> PyResult<bool> {
    let std = Std::get(dict.py())?;
    let class = dict.get_type();
    let known = [&std.counter, &std.default_dict];
    Ok(known.iter().any(|known| class.is(known.bind(dict.py()))) && !is_fillable(dict)?)
}

/// Whether it is, or holds, an array or an object that takes a state.
pub(super) fn is_fillable(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_plain(object) {
        return Ok(false);
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return any_fillable(dict.values().iter());
    }
    if let Some(items) = items_of(object)? {
        return any_fillable(items.into_iter());
    }
    if array_of(object)?.is_some() || has_state(object)? {
        return Ok(true);
    }
    match fields_of(object)? {
        Some(fields) => any_fillable(fields.into_iter().map(|(_, value)| value)),
        None => Ok(false),
    }
}

fn any_fillable<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<bool> {
    for item in items {
        if is_fillable(&item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Items of a list, a tuple, or a deque.
pub(super) fn items_of<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(Some(list.iter().collect()));
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Ok(Some(tuple.iter().collect()));
    }
    if object.is_instance(Std::get(object.py())?.deque.bind(object.py()))? {
        return object.try_iter()?.collect::<PyResult<Vec<_>>>().map(Some);
    }
    Ok(None)
}

type Fields<'py> = Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

/// Names and values of a named tuple, a dataclass, or a simple namespace.
pub(super) fn fields_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Fields<'py>>> {
    let py = object.py();
    let class = object.get_type();
    if let (Ok(tuple), true) = (object.cast::<PyTuple>(), class.hasattr("_fields")?) {
        let names: Vec<_> = class
            .getattr("_fields")?
            .try_iter()?
            .collect::<PyResult<_>>()?;
        return Ok(Some(names.into_iter().zip(tuple.iter()).collect()));
    }
    if class.hasattr("__dataclass_fields__")? {
        return dataclass_fields(object).map(Some);
    }
    if object.is_instance(Std::get(py)?.simple_namespace.bind(py))? {
        let fields = object.getattr("__dict__")?.cast_into::<PyDict>()?;
        return Ok(Some(fields.iter().collect()));
    }
    Ok(None)
}

/// Adds the names of all leaves of an object.
pub(super) fn leaf_names(
    object: &Bound<'_, PyAny>,
    name: &str,
    names: &mut Vec<String>,
) -> PyResult<()> {
    let children: Vec<(String, Bound<'_, PyAny>)> = if let Ok(dict) = object.cast::<PyDict>() {
        // A copy: another thread may change it meanwhile.
        dict.copy()?
            .iter()
            .map(|(key, value)| Ok((key_node(&key)?.name(), value)))
            .collect::<PyResult<_>>()?
    } else if let Some(fields) = fields_of(object)? {
        fields
            .into_iter()
            .map(|(name, value)| Ok((text(&name)?, value)))
            .collect::<PyResult<_>>()?
    } else if let Some(items) = items_of(object)? {
        items
            .into_iter()
            .enumerate()
            .map(|(i, item)| (i.to_string(), item))
            .collect()
    } else {
        Vec::new()
    };
    if children.is_empty() {
        names.push(name.to_owned());
    }
    children
        .into_iter()
        .try_for_each(|(child, value)| leaf_names(&value, &join(name, &child), names))
}

/// A value in its wrapping: what a tagged container or tensor is made of.
pub(super) fn peeled(node: &Node) -> &Node {
    match node {
        Node::Tagged { tag, value }
            if !tag.starts_with("numpy.") && !tag.starts_with("jax.key") =>
        {
            peeled(value)
        }
        other => other,
    }
}

/// Adds the names of all leaves of a node.
pub(super) fn saved_names(node: &Node, name: &str, names: &mut Vec<String>) {
    match peeled(node) {
        Node::Dict(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                saved_names(value, &join(name, &key.name()), names);
            }
        }
        Node::List(items) | Node::Tuple(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                saved_names(item, &join(name, &i.to_string()), names);
            }
        }
        _ => names.push(name.to_owned()),
    }
}
