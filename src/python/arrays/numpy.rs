//! NumPy arrays and scalars.

use std::borrow::Cow;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::{Array, Shown, logical, unsupported};
use crate::python::errors::Refusal;
use crate::python::known::{imported, text};
use crate::python::tensor::{Extent, Memory, array_struct};
use crate::state::DType;

pub(in crate::python) struct Numpy {
    array: Py<PyType>,
    generic: Py<PyType>,
    dtype: Py<PyType>,
    memmap: Py<PyType>,
}

/// How the elements of a NumPy type are stored.
struct Storage {
    dtype: DType,
    /// Extent of a further axis, where one element takes several.
    inner: Option<u64>,
    /// The NumPy type in words, where the stored one does not say it.
    logical: Option<String>,
}

impl Numpy {
    /// NumPy, if the user has imported it.
    pub(in crate::python) fn get(py: Python<'_>) -> PyResult<Option<&'static Numpy>> {
        static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();
        if let Some(numpy) = NUMPY.get(py) {
            return Ok(Some(numpy));
        }
        // While NumPy itself is being imported, its module is there but not complete.
        let Some(module) =
            imported(py, "numpy")?.filter(|module| module.hasattr("memmap").unwrap_or(false))
        else {
            return Ok(None);
        };
        let class = |name: &str| -> PyResult<Py<PyType>> {
            Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
        };
        NUMPY
            .get_or_try_init(py, || {
                Ok(Numpy {
                    array: class("ndarray")?,
                    generic: class("generic")?,
                    dtype: class("dtype")?,
                    memmap: class("memmap")?,
                })
            })
            .map(Some)
    }

    /// NumPy, imported because an array is wanted.
    pub(in crate::python) fn import(py: Python<'_>) -> PyResult<&'static Numpy> {
        py.import("numpy")?;
        Numpy::get(py)?
            .ok_or_else(|| PyValueError::new_err("NumPy cannot be used while it is being imported"))
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
        } = storage(&dtype)?;
        let raw = array_struct(array)?;
        let order: String = dtype.getattr(pyo3::intern!(py, "byteorder"))?.extract()?;
        // Only for types that are stored as numbers; the others are kept byte by byte, in their own order.
        let big_endian = order == ">" && stored != DType::U8;
        let strides = (!raw.contiguous).then(|| raw.strides.clone());
        let extent = Extent::new(raw.data, raw.itemsize, &raw.shape, strides.as_deref());
        let (shape, strides) = with_inner(raw.shape, strides, inner, stored.itemsize());
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
            writable: raw.writable,
            owner: array.clone(),
            copied: false,
        })
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
        let inner = usize::from(has_inner(shown, &dtype)?);
        let outer = shown.shape.len().saturating_sub(inner);
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
            return class.call1((py.import("ml_dtypes")?.getattr(name)?,));
        }
        if text.starts_with(['[', '{', '(']) {
            let literal = py.import("ast")?.getattr("literal_eval")?.call1((text,))?;
            return py
                .import("numpy.lib.format")?
                .getattr("descr_to_dtype")?
                .call1((literal,));
        }
        class.call1((text,))
    }
}

/// A NumPy type in words that [`Numpy::read_dtype`] reads.
pub(in crate::python) fn write_dtype(dtype: &Bound<'_, PyAny>) -> Result<String, Refusal> {
    let py = dtype.py();
    if dtype.getattr("hasobject")?.is_truthy()? {
        return Err(unsupported(
            "an array of Python objects; only arrays of numbers, text and bytes can be saved",
        ));
    }
    if !dtype.getattr("names")?.is_none() || !dtype.getattr("subdtype")?.is_none() {
        let descr = py
            .import("numpy.lib.format")?
            .getattr("dtype_to_descr")?
            .call1((dtype,))?;
        return Ok(descr.repr()?.to_string_lossy().into_owned());
    }
    let scalar = dtype.getattr("type")?;
    if text(&scalar.getattr("__module__")?)? == "ml_dtypes" {
        return Ok(format!("ml_dtypes.{}", text(&dtype.getattr("name")?)?));
    }
    Ok(dtype.getattr("str")?.extract()?)
}

fn storage(dtype: &Bound<'_, PyAny>) -> Result<Storage, Refusal> {
    let py = dtype.py();
    let kind: char = dtype.getattr(pyo3::intern!(py, "kind"))?.extract()?;
    let itemsize: u64 = dtype.getattr(pyo3::intern!(py, "itemsize"))?.extract()?;
    let plain = |dtype| {
        Ok(Storage {
            dtype,
            inner: None,
            logical: None,
        })
    };
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
    let builtin = scalar
        .getattr(pyo3::intern!(py, "__module__"))?
        .extract::<String>()?
        == "numpy";
    if let Some(number) = numbers.filter(|_| builtin) {
        let swapped = dtype
            .getattr(pyo3::intern!(py, "byteorder"))?
            .extract::<char>()?
            == '>';
        let logical = if swapped {
            Some(write_dtype(dtype)?)
        } else {
            None
        };
        return Ok(Storage {
            dtype: number,
            inner: None,
            logical,
        });
    }
    let text = write_dtype(dtype)?;
    match (kind, itemsize) {
        ('c', 16) => Ok(Storage {
            dtype: DType::F64,
            inner: Some(2),
            logical: Some(text),
        }),
        ('M' | 'm', 8) => Ok(Storage {
            dtype: DType::I64,
            inner: None,
            logical: Some(text),
        }),
        _ => match text.strip_prefix("ml_dtypes.").and_then(from_ml_name) {
            Some(known) => plain(known),
            None => Ok(Storage {
                dtype: DType::U8,
                inner: Some(itemsize),
                logical: Some(text),
            }),
        },
    }
}

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

/// Whether the last stored axis belongs to the element.
fn has_inner(shown: &Shown<'_>, dtype: &Bound<'_, PyAny>) -> PyResult<bool> {
    if logical(shown.kind).is_none() {
        return Ok(false);
    }
    let itemsize: usize = dtype.getattr("itemsize")?.extract()?;
    Ok(itemsize != shown.dtype.itemsize() || shown.dtype == DType::U8)
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
