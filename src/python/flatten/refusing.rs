//! What would not come back, or not as it was, and is refused.

use pyo3::prelude::*;
use pyo3::types::{
    PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString,
    PyTuple, PyType,
};

use crate::python::arrays;
use crate::python::known::{Std, imported};
use crate::state::Node;

pub(super) const UNHASHABLE: &str =
    "in a set or a key, where it would come back as something that cannot be hashed";

/// Whether what is built of the node may be in a set, or a key.
pub(super) fn is_hashable(node: &Node) -> bool {
    match node {
        Node::List(_) | Node::Set(_) | Node::Dict(_) => false,
        Node::Tuple(items) => items.iter().all(is_hashable),
        // A tensor of torch is itself, whatever it holds.
        Node::Tensor(leaf) => matches!(arrays::framework(&leaf.kind), "bytes" | "torch"),
        Node::Tagged { tag, value } => match value.as_ref() {
            // Its items have been looked at.
            Node::Set(_) => tag == "frozenset",
            Node::Dict(fields) if tag.starts_with("namedtuple:") => {
                fields.iter().all(|(_, value)| is_hashable(value))
            }
            value => is_hashable(value),
        },
        _ => true,
    }
}

/// The built-in class that the class of `object` adds something to.
pub(super) fn built_in(object: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    let py = object.py();
    let base = if object.is_instance_of::<PyDict>() {
        "dict"
    } else if object.is_instance_of::<PyList>() {
        "list"
    } else if object.is_instance_of::<PyTuple>() {
        "tuple"
    } else if object.is_instance_of::<PySet>() {
        "set"
    } else if object.is_instance_of::<PyFrozenSet>() {
        "frozenset"
    } else if object.is_instance_of::<PyString>() {
        "str"
    } else if object.is_instance_of::<PyBytes>() {
        "bytes"
    } else if object.is_instance_of::<PyByteArray>() {
        "bytearray"
    } else if object.is_instance_of::<PyInt>() {
        "int"
    } else if object.is_instance_of::<PyFloat>() {
        "float"
    } else if object.is_instance_of::<PyComplex>() {
        "complex"
    } else if object.is_instance(Std::get(py)?.deque.bind(py))? {
        "collections.deque"
    } else {
        return Ok(None);
    };
    Ok(Some(base))
}

const RNG: &str = "a random generator is saved as pitstop.Rng(generator)";
const TEXT: &str = "save str(…) of it";
const ISO: &str = "save isoformat() of it";

/// What to save instead of objects of some classes: module, name, advice.
const INSTEAD: [(&str, &str, &str); 13] = [
    ("random", "Random", RNG),
    ("numpy.random", "Generator", RNG),
    ("numpy.random", "BitGenerator", RNG),
    ("numpy.random", "RandomState", RNG),
    ("torch", "Generator", RNG),
    ("pathlib", "PurePath", TEXT),
    ("decimal", "Decimal", TEXT),
    ("fractions", "Fraction", TEXT),
    ("datetime", "date", ISO),
    ("datetime", "time", ISO),
    ("datetime", "timedelta", "save total_seconds() of it"),
    ("enum", "Enum", "save its value or its name"),
    ("builtins", "range", "save list(…) of it"),
];

fn instead(object: &Bound<'_, PyAny>) -> PyResult<Option<&'static str>> {
    for (module, name, advice) in INSTEAD {
        // What has not been imported has no objects.
        let Some(module) = imported(object.py(), module)? else {
            continue;
        };
        if let Some(class) = module.getattr_opt(name)?
            && class.is_instance_of::<PyType>()
            && object.is_instance(&class)?
        {
            return Ok(Some(advice));
        }
    }
    Ok(None)
}

/// Why the object cannot be saved, and what to do.
pub(super) fn why_not(object: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Some(base) = built_in(object)? {
        return Ok(format!(
            "a subclass of {base} would lose what it adds; pass {base}(…) of it"
        ));
    }
    let why = if let Some(advice) = instead(object)? {
        advice
    } else if object.is_callable() {
        "code cannot be saved; build it again when you resume"
    } else {
        "cannot be saved; give it state_dict() and load_state_dict(), or save what it is made of"
    };
    Ok(why.to_owned())
}
