//! Single values: which node they are, and why some are none.

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyComplex, PyDict, PyFloat, PyFrozenSet, PyInt, PyList, PySet, PyString, PyTuple,
};

use crate::python::arrays::numpy::{self, Numpy};
use crate::python::arrays::torch::Torch;
use crate::python::errors::Refusal;
use crate::python::known::text;
use crate::state::Node;

pub(super) enum Container {
    List,
    Tuple,
    Dict,
    Set,
    FrozenSet,
}

pub(super) fn container_class(object: &Bound<'_, PyAny>) -> Option<Container> {
    if object.is_exact_instance_of::<PyDict>() {
        Some(Container::Dict)
    } else if object.is_exact_instance_of::<PyList>() {
        Some(Container::List)
    } else if object.is_exact_instance_of::<PyTuple>() {
        Some(Container::Tuple)
    } else if object.is_exact_instance_of::<PySet>() {
        Some(Container::Set)
    } else if object.is_exact_instance_of::<PyFrozenSet>() {
        Some(Container::FrozenSet)
    } else {
        None
    }
}

/// Values that are a node by themselves.
pub(super) fn plain(object: &Bound<'_, PyAny>) -> PyResult<Option<Node>> {
    if object.is_none() {
        return Ok(Some(Node::None));
    }
    if let Ok(value) = object.cast_exact::<PyBool>() {
        return Ok(Some(Node::Bool(value.is_true())));
    }
    if let Ok(value) = object.cast_exact::<PyFloat>() {
        return Ok(Some(Node::Float(value.value())));
    }
    if let Ok(value) = object.cast_exact::<PyInt>() {
        return integer(value).map(Some);
    }
    if let Ok(text) = object.cast_exact::<PyString>() {
        return Ok(Some(if let Ok(text) = text.to_str() {
            Node::Str(text.to_owned())
        } else {
            // Half of a surrogate pair: no Unicode text, but a Python string.
            let bytes = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
            Node::tagged("str.surrogatepass", Node::Bytes(bytes.extract()?))
        }));
    }
    if let Ok(value) = object.cast_exact::<PyComplex>() {
        return Ok(Some(Node::Complex(value.real(), value.imag())));
    }
    Ok(None)
}

fn integer(value: &Bound<'_, PyInt>) -> PyResult<Node> {
    match value.extract::<i64>() {
        Ok(small) => Ok(Node::Int(small)),
        // Hexadecimal, since CPython bounds the decimal digits that it converts.
        Err(_) => Ok(Node::BigInt(
            value.call_method1("__format__", ("#x",))?.extract()?,
        )),
    }
}

/// Values of NumPy and torch that are no arrays.
pub(super) fn framework_value(
    object: &Bound<'_, PyAny>,
) -> PyResult<Option<Result<Node, Refusal>>> {
    let py = object.py();
    if let Some(numpy) = Numpy::get(py)? {
        if numpy.is_scalar(object)? {
            return Ok(Some(scalar(object)));
        }
        if numpy.is_dtype(object)? {
            return Ok(Some(
                numpy::write_dtype(object).map(|text| Node::tagged("numpy.dtype", Node::Str(text))),
            ));
        }
    }
    let Some(torch) = Torch::get(py)? else {
        return Ok(None);
    };
    let class = object.get_type();
    if class.is(torch.size.bind(py)) {
        let extents: Vec<i64> = object.extract()?;
        let extents = Node::Tuple(extents.into_iter().map(Node::Int).collect());
        return Ok(Some(Ok(Node::tagged("torch.Size", extents))));
    }
    if class.is(torch.dtype.bind(py)) {
        let name = text(object)?;
        let name = name.strip_prefix("torch.").unwrap_or(&name).to_owned();
        return Ok(Some(Ok(Node::tagged("torch.dtype", Node::Str(name)))));
    }
    if class.is(torch.device.bind(py)) {
        return Ok(Some(Ok(Node::tagged(
            "torch.device",
            Node::Str(text(object)?),
        ))));
    }
    Ok(None)
}

fn scalar(object: &Bound<'_, PyAny>) -> Result<Node, Refusal> {
    let dtype = object.getattr("dtype")?;
    let class = dtype.getattr("type")?;
    if !object.get_type().is(&class) {
        let name = text(&class.getattr("__name__")?)?;
        return Err(Refusal::Unsupported(format!(
            "a subclass of {name} would lose what it adds; pass {name}(…) of it"
        )));
    }
    let words = numpy::write_dtype(&dtype)?;
    let mut bytes: Vec<u8> = object.call_method0("tobytes")?.extract()?;
    // NumPy shows zeros for text and bytes of no length.
    bytes.truncate(dtype.getattr("itemsize")?.extract()?);
    Ok(Node::tagged(
        format!("numpy.scalar:{words}"),
        Node::Bytes(bytes),
    ))
}
