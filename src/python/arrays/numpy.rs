//! NumPy arrays and scalars.

use std::borrow::Cow;

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType, PyWeakrefReference};

use super::{Array, Shown, incomplete, logical, unsupported};
use crate::python::errors::Refusal;
use crate::python::known::{once_imported, text};
use crate::python::tensor::{Extent, Memory, array_struct};
use crate::state::DType;

pub(in crate::python) struct Numpy {
    array: Py<PyType>,
    generic: Py<PyType>,
    dtype: Py<PyType>,
    memmap: Py<PyType>,
    asarray: Py<PyAny>,
    /// The element types of NumPy's own that are stored as they are: each is one object in all of the process.
    plain: Vec<(Py<PyAny>, DType)>,
}

fn is_writable(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = array.py();
    let flags = array.getattr(pyo3::intern!(py, "flags"))?;
    flags.getattr(pyo3::intern!(py, "writeable"))?.is_truthy()
}

/// How the elements of a NumPy type are stored.
struct Storage {
    dtype: DType,
    /// Extent of a further axis, where one element takes several.
    inner: Option<u64>,
    /// The NumPy type in words, where the stored one does not say it.
    logical: Option<String>,
    /// Stored in the other byte order. What is no number is kept byte by byte, in its own order.
    big_endian: bool,
}

impl Storage {
    fn plain(dtype: DType) -> Storage {
        Storage {
            dtype,
            inner: None,
            logical: None,
            big_endian: false,
        }
    }
}

impl Numpy {
    /// NumPy, if the user has imported it.
    pub(in crate::python) fn get(py: Python<'_>) -> PyResult<Option<&'static Numpy>> {
        static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
        let is_complete = |module: &Bound<'_, PyAny>| module.hasattr("memmap").unwrap_or(false);
        once_imported(py, &NUMPY, "numpy", is_complete, Numpy::find)
    }

    /// NumPy, imported because an array is wanted.
    pub(in crate::python) fn import(py: Python<'_>) -> PyResult<&'static Numpy> {
        py.import("numpy")?;
        Numpy::get(py)?.ok_or_else(|| incomplete("NumPy"))
    }

    fn find(module: &Bound<'_, PyAny>) -> PyResult<Numpy> {
        let class = |name: &str| -> PyResult<Py<PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        let dtype = class("dtype")?;
        let plain = |stored: DType| -> Option<PyResult<(Py<PyAny>, DType)>> {
            let found = dtype.bind(module.py()).call1((plain_name(stored)?,));
            Some(found.map(|found| (found.unbind(), stored)))
        };
        Ok(Numpy {
            plain: COMMON_FIRST
                .into_iter()
                .filter_map(plain)
                .collect::<PyResult<_>>()?,
            array: class("ndarray")?,
            generic: class("generic")?,
            memmap: class("memmap")?,
            asarray: module.getattr("asarray")?.unbind(),
            dtype,
        })
    }

    pub(in crate::python) fn is_array(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        object.is_instance(self.array.bind(object.py()))
    }

    pub(in crate::python) fn is_scalar(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        object.is_instance(self.generic.bind(object.py()))
    }

    pub(in crate::python) fn is_dtype(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        object.is_instance(self.dtype.bind(object.py()))
    }

    /// As `numpy.asarray`, which copies only what it has to.
    pub(super) fn view<'py>(&self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.asarray.bind(array.py()).call1((array,))
    }

    pub(super) fn describe<'py>(&self, array: &Bound<'py, PyAny>) -> Result<Array<'py>, Refusal> {
        let py = array.py();
        let class = array.get_type();
        if !class.is(self.array.bind(py)) && !class.is(self.memmap.bind(py)) {
            return Err(unsupported(
                "a subclass of ndarray would lose what it adds; pass numpy.asarray(…) of it",
            ));
        }
        let dtype = array.getattr(pyo3::intern!(py, "dtype"))?;
        let Storage {
            dtype: stored,
            inner,
            logical,
            big_endian,
        } = match self.plain.iter().find(|(plain, _)| plain.is(&dtype)) {
            Some((_, stored)) => Storage::plain(*stored),
            None => storage(&dtype)?,
        };
        let raw = array_struct(array)?;
        // NumPy leaves that out there for structures.
        let writable = raw.writable || logical.is_some() && is_writable(array)?;
        let extent = Extent::new(raw.data, raw.itemsize, &raw.shape, raw.strides.as_deref());
        let (shape, strides) = with_inner(raw.shape, raw.strides, inner, stored.itemsize());
        Ok(Array {
            dtype: stored,
            extent: if shape.contains(&0) {
                Extent::new(0, 1, &[0], None)
            } else {
                extent
            },
            shape,
            strides,
            big_endian,
            kind: kind("numpy", logical),
            immutable: false,
            writable,
            owner: array.clone(),
            copied: false,
        })
    }

    /// The array that owns the memory, which NumPy does not resize while there are weak references to it, with
    /// one of those; and what it has the memory from, if that is not its own.
    pub(super) fn hold<'py>(&self, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let name = pyo3::intern!(array.py(), "base");
        let (mut owner, mut base) = (array.clone(), array.getattr(name)?);
        while self.is_array(&base)? {
            (base, owner) = (base.getattr(name)?, base);
        }
        let pin = PyWeakrefReference::new(&owner)?;
        let held = (owner, pin, super::hold(&base)?);
        Ok(held.into_pyobject(array.py())?.into_any())
    }

    pub(super) fn make<'py>(
        &self,
        memory: &Bound<'py, Memory>,
        shown: &Shown<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = memory.py();
        let dtype = self.dtype_of(py, shown)?;
        if dtype.getattr("hasobject")?.is_truthy()? {
            return Err(PyValueError::new_err(
                "the checkpoint asks for an array of Python objects; refused",
            ));
        }
        let inner = inner(shown, &dtype)?;
        shown.check_stored(shown.dtype, inner)?;
        let outer = shown.shape.len() - usize::from(inner.is_some());
        let keywords = PyDict::new(py);
        keywords.set_item("dtype", &dtype)?;
        keywords.set_item("buffer", memory)?;
        keywords.set_item("offset", shown.offset)?;
        if let Some(strides) = shown.strides {
            keywords.set_item("strides", PyTuple::new(py, &strides[..outer])?)?;
        }
        let shape = PyTuple::new(py, &shown.shape[..outer])?;
        self.array.bind(py).call((shape,), Some(&keywords))
    }

    /// The NumPy type of a stored array.
    fn dtype_of<'py>(&self, py: Python<'py>, shown: &Shown<'_>) -> PyResult<Bound<'py, PyAny>> {
        match logical(shown.kind) {
            Some(text) => self.read_dtype(py, text),
            None => match plain_name(shown.dtype) {
                Some(name) => self.dtype.bind(py).call1((name,)),
                None => ml_dtype(py, shown.dtype),
            },
        }
    }

    /// The NumPy type that [`write_dtype`] wrote down.
    pub(in crate::python) fn read_dtype<'py>(
        &self,
        py: Python<'py>,
        text: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let class = self.dtype.bind(py);
        if let Some(name) = text.strip_prefix("ml_dtypes.") {
            let module = py.import("ml_dtypes")?;
            let found = module.getattr(name).and_then(|found| class.call1((found,)));
            return found.map_err(|error| no_dtype(py, text, error));
        }
        if text.starts_with(['[', '{', '(']) {
            let literal = py.import("ast")?.getattr("literal_eval")?;
            let from = py.import("numpy.lib.format")?.getattr("descr_to_dtype")?;
            let read = literal.call1((text,)).and_then(|read| from.call1((read,)));
            return read.map_err(|error| no_dtype(py, text, error));
        }
        class
            .call1((text,))
            .map_err(|error| no_dtype(py, text, error))
    }

    /// The scalar with these bytes, of the NumPy type that [`write_dtype`] wrote down.
    pub(in crate::python) fn make_scalar<'py>(
        &self,
        py: Python<'py>,
        dtype: &str,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let found = self.read_dtype(py, dtype)?;
        let itemsize: usize = found.getattr("itemsize")?.extract()?;
        // Text of no length may have been kept with the zeros that NumPy shows for it.
        let is_empty = itemsize == 0 && bytes.iter().all(|byte| *byte == 0);
        if bytes.len() != itemsize && !is_empty {
            return Err(PyValueError::new_err(format!(
                "the checkpoint says that {} bytes are a scalar of NumPy type {dtype:?}; refused",
                bytes.len()
            )));
        }
        let bytes = PyBytes::new(py, if is_empty { &[] } else { bytes });
        let kind: char = found.getattr("kind")?.extract()?;
        match kind {
            // Not by way of an array, to which NULs at the end are padding.
            'S' => found.getattr("type")?.call1((bytes,)),
            'U' => {
                let codec = if dtype.starts_with('>') {
                    "utf-32-be"
                } else {
                    "utf-32-le"
                };
                let text = bytes.call_method1("decode", (codec, "surrogatepass"))?;
                found.getattr("type")?.call1((text,))
            }
            // NumPy reads no elements of size zero.
            _ if is_empty => py
                .import("numpy")?
                .call_method1("zeros", ((), found))?
                .get_item(()),
            _ => py
                .import("numpy")?
                .call_method1("frombuffer", (bytes, found))?
                .get_item(0),
        }
    }
}

/// What to say of a text that is no NumPy type. What Python says varies, up to a `MemoryError`.
fn no_dtype(py: Python<'_>, text: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let start: String = text.chars().take(80).collect();
    let told = PyValueError::new_err(format!(
        "the checkpoint holds an array of NumPy type {start:?}, which this NumPy does not know"
    ));
    told.set_cause(py, Some(error));
    told
}

/// A NumPy type in words that [`Numpy::read_dtype`] reads.
pub(in crate::python) fn write_dtype(dtype: &Bound<'_, PyAny>) -> Result<String, Refusal> {
    if dtype.getattr("hasobject")?.is_truthy()? {
        return Err(unsupported(
            "an array of Python objects; only arrays of numbers, text and bytes can be saved",
        ));
    }
    if !dtype.getattr("names")?.is_none() || !dtype.getattr("subdtype")?.is_none() {
        return write_structure(dtype);
    }
    let scalar = dtype.getattr("type")?;
    match text(&scalar.getattr("__module__")?)?.as_str() {
        "numpy" => Ok(dtype.getattr("str")?.extract()?),
        "ml_dtypes" => Ok(format!("ml_dtypes.{}", text(&dtype.getattr("name")?)?)),
        _ => Err(unsupported(
            "an element type that is neither of NumPy nor of ml_dtypes",
        )),
    }
}

/// A structure in words, if it can be read back from them.
fn write_structure(dtype: &Bound<'_, PyAny>) -> Result<String, Refusal> {
    let py = dtype.py();
    let write = || -> PyResult<Option<String>> {
        let describe = py.import("numpy.lib.format")?.getattr("dtype_to_descr")?;
        let words = describe.call1((dtype,))?.repr()?;
        let words = words.to_string_lossy().into_owned();
        let again = Numpy::import(py)?.read_dtype(py, &words)?;
        Ok(again.eq(dtype)?.then_some(words))
    };
    match write() {
        Ok(Some(words)) => Ok(words),
        Err(error) if !error.is_instance_of::<PyException>(py) => Err(error.into()),
        // What Python says of fields that overlap, or nest too deep for its parser, varies.
        Ok(None) | Err(_) => Err(unsupported(
            "a NumPy type that cannot be written down so that it is read back as the same",
        )),
    }
}

fn storage(dtype: &Bound<'_, PyAny>) -> Result<Storage, Refusal> {
    let py = dtype.py();
    let kind: char = dtype.getattr(pyo3::intern!(py, "kind"))?.extract()?;
    let itemsize: u64 = dtype.getattr(pyo3::intern!(py, "itemsize"))?.extract()?;
    let order: char = dtype.getattr(pyo3::intern!(py, "byteorder"))?.extract()?;
    let swapped = order == '>';
    let numbers = match (kind, itemsize) {
        ('b', 1) => Some(DType::Bool),
        ('i', 1) => Some(DType::I8),
        ('i', 2) => Some(DType::I16),
        ('i', 4) => Some(DType::I32),
        ('i', 8) => Some(DType::I64),
        ('u', 1) => Some(DType::U8),
        ('u', 2) => Some(DType::U16),
        ('u', 4) => Some(DType::U32),
        ('u', 8) => Some(DType::U64),
        ('f', 2) => Some(DType::F16),
        ('f', 4) => Some(DType::F32),
        ('f', 8) => Some(DType::F64),
        ('c', 8) => Some(DType::C64),
        _ => None,
    };
    let scalar = dtype.getattr(pyo3::intern!(py, "type"))?;
    let builtin = text(&scalar.getattr(pyo3::intern!(py, "__module__"))?)? == "numpy";
    if let Some(number) = numbers.filter(|_| builtin) {
        return Ok(Storage {
            logical: swapped.then(|| write_dtype(dtype)).transpose()?,
            big_endian: swapped && number != DType::U8,
            ..Storage::plain(number)
        });
    }
    let text = write_dtype(dtype)?;
    if let Some(known) = text.strip_prefix("ml_dtypes.").and_then(from_ml_name) {
        return Ok(Storage {
            big_endian: swapped,
            ..Storage::plain(known)
        });
    }
    let (dtype, inner) = match (kind, itemsize) {
        ('c', 16) => (DType::F64, Some(2)),
        ('M' | 'm', 8) => (DType::I64, None),
        _ => (DType::U8, Some(itemsize)),
    };
    Ok(Storage {
        dtype,
        inner,
        logical: Some(text),
        big_endian: swapped && dtype != DType::U8,
    })
}

/// The element types that NumPy itself has, those that are looked for most often first.
const COMMON_FIRST: [DType; 13] = [
    DType::F32,
    DType::F64,
    DType::I64,
    DType::F16,
    DType::I32,
    DType::U8,
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::C64,
];

/// Element types that NumPy itself has.
fn plain_name(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "?",
        DType::I8 => "i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        _ => return None,
    })
}

const ML_NAMES: [(DType, &str); 6] = [
    (DType::BF16, "bfloat16"),
    (DType::F8E4M3, "float8_e4m3fn"),
    (DType::F8E5M2, "float8_e5m2"),
    (DType::F8E4M3Fnuz, "float8_e4m3fnuz"),
    (DType::F8E5M2Fnuz, "float8_e5m2fnuz"),
    (DType::F8E8M0, "float8_e8m0fnu"),
];

fn from_ml_name(name: &str) -> Option<DType> {
    ML_NAMES
        .iter()
        .find(|(_, known)| *known == name)
        .map(|(dtype, _)| *dtype)
}

fn ml_dtype(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    let Some((_, name)) = ML_NAMES.iter().find(|(known, _)| *known == dtype) else {
        return Err(PyValueError::new_err(format!(
            "NumPy has no element type for {dtype}; pass framework=\"torch\""
        )));
    };
    let module = py.import("ml_dtypes").map_err(|_| {
        PyValueError::new_err(format!(
            "NumPy has no element type {name} of its own: install ml_dtypes, or pass framework=\"torch\""
        ))
    })?;
    py.import("numpy")?
        .getattr("dtype")?
        .call1((module.getattr(*name)?,))
}

/// Extent of the last stored axis, if it belongs to the element.
fn inner(shown: &Shown<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if logical(shown.kind).is_none() {
        return Ok(None);
    }
    let itemsize: usize = dtype.getattr("itemsize")?.extract()?;
    let stored = shown.dtype.itemsize();
    if itemsize == stored && shown.dtype != DType::U8 {
        return Ok(None);
    }
    if stored == 0 || !itemsize.is_multiple_of(stored) {
        return Err(PyValueError::new_err(format!(
            "the checkpoint says that an array of kind {:?} is stored as {}; refused",
            shown.kind, shown.dtype
        )));
    }
    Ok(Some((itemsize / stored) as u64))
}

/// Shape and strides with the axis that one element spans.
pub(super) fn with_inner(
    mut shape: Vec<u64>,
    mut strides: Option<Vec<i64>>,
    inner: Option<u64>,
    itemsize: usize,
) -> (Vec<u64>, Option<Vec<i64>>) {
    if let Some(extent) = inner {
        shape.push(extent);
        if let Some(strides) = &mut strides {
            strides.push(itemsize as i64);
        }
    }
    (shape, strides)
}

pub(super) fn kind(framework: &'static str, logical: Option<String>) -> Cow<'static, str> {
    match logical {
        Some(logical) => format!("{framework}:{logical}").into(),
        None => framework.into(),
    }
}
