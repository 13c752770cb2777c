//! Arrays of other libraries, through DLPack or the buffer protocol.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyCapsule, PyMemoryView};

use super::numpy::{kind, with_inner};
use super::{Array, Shown, framework, logical, unsupported};
use crate::python::dlpack;
use crate::python::errors::Refusal;
use crate::python::known::Std;
use crate::python::tensor::{Extent, Memory};
use crate::state::DType;

pub(super) fn describe<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Array<'py>>, Refusal> {
    if object.hasattr(pyo3::intern!(object.py(), "__dlpack__"))? {
        return from_dlpack(object).map(Some);
    }
    match PyUntypedBuffer::get(object) {
        Ok(buffer) => from_buffer(object, &buffer).map(Some),
        Err(_) => Ok(None),
    }
}

fn from_dlpack<'py>(object: &Bound<'py, PyAny>) -> Result<Array<'py>, Refusal> {
    let capsule = object.call_method0("__dlpack__")?;
    let not_host = || unsupported("an array that is not in host memory; copy it to the host first");
    let raw = dlpack::of_capsule(capsule.cast::<PyCapsule>().map_err(PyErr::from)?)?
        .ok_or_else(not_host)?;
    let (stored, inner) = match raw.dtype {
        (0, 8, 1) => (DType::I8, None),
        (0, 16, 1) => (DType::I16, None),
        (0, 32, 1) => (DType::I32, None),
        (0, 64, 1) => (DType::I64, None),
        (1, 8, 1) => (DType::U8, None),
        (1, 16, 1) => (DType::U16, None),
        (1, 32, 1) => (DType::U32, None),
        (1, 64, 1) => (DType::U64, None),
        (2, 16, 1) => (DType::F16, None),
        (2, 32, 1) => (DType::F32, None),
        (2, 64, 1) => (DType::F64, None),
        (4, 16, 1) => (DType::BF16, None),
        (5, 64, 1) => (DType::C64, None),
        (5, 128, 1) => (DType::F64, Some(2)),
        (6, 8, 1) => (DType::Bool, None),
        (code, bits, _) => {
            return Err(unsupported(format!(
                "an array of DLPack type {code} with {bits} bits"
            )));
        }
    };
    let itemsize = stored.itemsize() * inner.map_or(1, |n: u64| n as usize);
    let strides: Option<Vec<i64>> = raw.strides.map(|strides| {
        strides
            .into_iter()
            .map(|stride| stride * itemsize as i64)
            .collect()
    });
    let extent = Extent::new(raw.data, itemsize, &raw.shape, strides.as_deref());
    let (shape, strides) = with_inner(raw.shape, strides, inner, stored.itemsize());
    Ok(Array {
        dtype: stored,
        shape,
        strides,
        extent,
        big_endian: false,
        kind: kind("numpy", inner.map(|_| "<c16".to_owned())),
        immutable: false,
        writable: false,
        owner: capsule,
        copied: false,
    })
}

fn from_buffer<'py>(
    object: &Bound<'py, PyAny>,
    buffer: &PyUntypedBuffer,
) -> Result<Array<'py>, Refusal> {
    let py = object.py();
    refuse_subclass(object)?;
    let format = buffer.format().to_str().unwrap_or("?").to_owned();
    let code = format.trim_start_matches(['@', '=', '<', '>', '!']);
    let stored = match (code, buffer.item_size()) {
        ("b", 1) => DType::I8,
        ("B" | "c", 1) => DType::U8,
        ("?", 1) => DType::Bool,
        ("h", 2) => DType::I16,
        ("H", 2) => DType::U16,
        ("i" | "l" | "q" | "n", 4) => DType::I32,
        ("I" | "L" | "Q" | "N", 4) => DType::U32,
        ("i" | "l" | "q" | "n", 8) => DType::I64,
        ("I" | "L" | "Q" | "N", 8) => DType::U64,
        ("e", 2) => DType::F16,
        ("f", 4) => DType::F32,
        ("d", 8) => DType::F64,
        _ => return Err(unsupported(format!("a buffer of format {format:?}"))),
    };
    let swapped = format.starts_with(['>', '!']) && stored.itemsize() > 1;
    let class = object.get_type();
    let kind = if class.is(Std::get(py)?.array.bind(py)) {
        kind("array", Some(object.getattr("typecode")?.extract()?))
    } else if object.is_instance_of::<PyByteArray>() {
        "bytearray".into()
    } else {
        kind(
            "memoryview",
            (stored != DType::U8 || code != "B").then(|| code.to_owned()),
        )
    };
    if buffer
        .suboffsets()
        .is_some_and(|offsets| offsets.iter().any(|offset| *offset >= 0))
    {
        return Err(unsupported("a buffer that is not one stretch of memory"));
    }
    let shape: Vec<u64> = buffer.shape().iter().map(|&extent| extent as u64).collect();
    let strides: Vec<i64> = buffer
        .strides()
        .iter()
        .map(|&stride| stride as i64)
        .collect();
    let strides = (!buffer.is_c_contiguous()).then_some(strides);
    let extent = Extent::new(
        buffer.buf_ptr() as usize,
        buffer.item_size(),
        &shape,
        strides.as_deref(),
    );
    // A view of its own pins the memory: a bytearray cannot be resized while the view lives.
    let owner = PyMemoryView::from(object)?.into_any();
    Ok(Array {
        dtype: stored,
        shape,
        strides,
        extent,
        big_endian: swapped,
        kind,
        immutable: false,
        writable: !buffer.readonly(),
        owner,
        copied: false,
    })
}

/// Refuses what would come back without what its class adds.
fn refuse_subclass(object: &Bound<'_, PyAny>) -> Result<(), Refusal> {
    let py = object.py();
    let known = [
        (py.get_type::<PyBytes>(), "bytes"),
        (py.get_type::<PyByteArray>(), "bytearray"),
        (Std::get(py)?.array.bind(py).clone(), "array.array"),
    ];
    for (class, name) in known {
        if object.is_instance(&class)? && !object.get_type().is(&class) {
            let why = format!("a subclass of {name} would lose what it adds; pass {name}(…) of it");
            return Err(unsupported(why));
        }
    }
    Ok(())
}

pub(super) fn make<'py>(
    memory: &Bound<'py, Memory>,
    shown: &Shown<'_>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    let start = shown.offset as usize;
    let len = shown.nbytes();
    let whole = PyMemoryView::from(memory.as_any())?;
    let strides = shown.strides.filter(|_| {
        shown.shape.len() != 1 || shown.strides != Some(&[shown.dtype.itemsize() as i64])
    });
    if strides.is_some() {
        return strided(memory, shown);
    }
    let bytes = whole.get_item(pyo3::types::PySlice::new(
        py,
        start as isize,
        (start + len) as isize,
        1,
    ))?;
    match framework(shown.kind) {
        "bytes" => py.get_type::<PyBytes>().call1((bytes,)),
        "bytearray" => py.get_type::<PyByteArray>().call1((bytes,)),
        "array" => {
            let array = Std::get(py)?
                .array
                .bind(py)
                .call1((logical(shown.kind).unwrap_or("B"),))?;
            array.call_method1("frombytes", (bytes,))?;
            Ok(array)
        }
        _ => {
            let code = logical(shown.kind).unwrap_or("B");
            let is_empty = shown.shape.contains(&0);
            // `cast` takes no empty shape with several axes, and no half floats before Python 3.12.
            if code == "e" || is_empty && shown.shape.len() > 1 {
                return strided(memory, shown);
            }
            if is_empty {
                return bytes.call_method1("cast", (code,));
            }
            bytes.call_method1("cast", (code, shown.shape.to_vec()))
        }
    }
}

/// What only NumPy can show, such as a view with gaps of memory that others share.
fn strided<'py>(memory: &Bound<'py, Memory>, shown: &Shown<'_>) -> PyResult<Bound<'py, PyAny>> {
    let plain = Shown {
        kind: "numpy",
        ..*shown
    };
    let array = super::numpy::Numpy::import(memory.py())?.make(memory, &plain)?;
    match framework(shown.kind) {
        "memoryview" => Ok(PyMemoryView::from(&array)?.into_any()),
        "array" | "bytearray" | "bytes" => {
            let bytes = array.call_method0("tobytes")?;
            match framework(shown.kind) {
                "bytes" => Ok(bytes),
                "bytearray" => memory.py().get_type::<PyByteArray>().call1((bytes,)),
                _ => {
                    let class = Std::get(memory.py())?.array.bind(memory.py());
                    class.call1((logical(shown.kind).unwrap_or("B"), bytes))
                }
            }
        }
        other => Err(PyValueError::new_err(format!(
            "unknown kind of array {other:?}"
        ))),
    }
}
