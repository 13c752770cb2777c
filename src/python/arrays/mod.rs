//! Arrays of all kinds: what they are and where their memory is, and how to make them again.

mod buffer;
pub(super) mod jax;
pub(super) mod numpy;
pub(super) mod torch;

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::{self, Refusal};
use super::tensor::{Extent, Memory as PyMemory};
use crate::state::{DType, Data, Memory, Node, Tensor, TensorRef, View};

/// A Python array, described.
#[expect(
    clippy::struct_excessive_bools,
    reason = "four independent facts, not the states of a machine"
)]
pub(super) struct Array<'py> {
    /// Element type in a checkpoint.
    pub(super) dtype: DType,
    /// Shape in a checkpoint: with further axes where one element of the array takes several.
    pub(super) shape: Vec<u64>,
    /// Distance between neighbours in bytes; `None`: C order without gaps.
    pub(super) strides: Option<Vec<i64>>,
    pub(super) extent: Extent,
    pub(super) big_endian: bool,
    /// Framework, and after a colon the element type there if the checkpoint's does not say it.
    pub(super) kind: Cow<'static, str>,
    /// Nobody can change the memory.
    pub(super) immutable: bool,
    /// The memory may be written to.
    pub(super) writable: bool,
    /// What owns the memory: the array itself or a copy of it on the host. [`hold`] makes it hold on.
    pub(super) owner: Bound<'py, PyAny>,
    /// The memory is a copy on the host, not that of the array.
    pub(super) copied: bool,
}

/// Describes `object` if it is an array; `None` if it is something else.
pub(super) fn describe<'py>(object: &Bound<'py, PyAny>) -> Result<Option<Array<'py>>, Refusal> {
    let py = object.py();
    if let Some(torch) = torch::Torch::get(py)?
        && torch.is_tensor(object)?
    {
        return torch.describe(object).map(Some);
    }
    if let Some(numpy) = numpy::Numpy::get(py)? {
        if numpy.is_array(object)? {
            return numpy.describe(object).map(Some);
        }
        // Scalars have a buffer too, and are no arrays.
        if numpy.is_scalar(object)? {
            return Ok(None);
        }
    }
    if let Some(jax) = jax::Jax::get(py)?
        && jax.is_array(object)?
    {
        return jax.describe(object).map(Some);
    }
    buffer::describe(object)
}

/// What keeps memory in place while it is held, whatever is done to its `owner` meanwhile. Out of reach are only
/// calls that free memory under everybody who refers to it, such as `resize_` of torch to more elements.
pub(super) fn hold<'py>(owner: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = owner.py();
    if let Some(torch) = torch::Torch::get(py)?
        && torch.is_tensor(owner)?
    {
        return torch.hold(owner);
    }
    match numpy::Numpy::get(py)? {
        Some(numpy) if numpy.is_array(owner)? => numpy.hold(owner),
        _ => Ok(owner.clone()),
    }
}

impl Array<'_> {
    /// The tensor over the array's memory, which is valid while its owner is held.
    pub(super) fn into_tensor(self) -> PyResult<Tensor> {
        let memory = Memory {
            region: Arc::new(self.extent.region()),
            offset: self.extent.offset(),
            strides: self.strides,
            big_endian: self.big_endian,
            immutable: self.immutable,
        };
        Tensor::of_shape(self.dtype, self.shape, Data::Memory(memory))
            .map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// Whether several elements of `object`, which this describes, share memory, as in an array that was
    /// broadcast or in sliding windows.
    pub(super) fn overlaps_itself(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = object.py();
        if self.copied {
            // The copy on the host lies in a way of its own.
            let shape: Vec<u64> = object.getattr(pyo3::intern!(py, "shape"))?.extract()?;
            let strides = object.call_method0(pyo3::intern!(py, "stride"))?;
            return Ok(overlaps(1, &shape, &strides.extract::<Vec<i64>>()?));
        }
        let strides = self.strides.as_deref();
        Ok(strides.is_some_and(|strides| overlaps(self.dtype.itemsize(), &self.shape, strides)))
    }

    /// Type and shape in words, to compare in a mismatch.
    pub(super) fn words(&self) -> String {
        words(&self.kind, self.dtype, &self.shape)
    }
}

/// Whether elements of an array may share memory: whether a step along one axis is shorter than what the axes
/// with shorter steps reach over. Slicing, transposing and reversing never lead there. It also holds for axes
/// that cross without touching, which only `as_strided` makes. Strides are in the unit of `itemsize`.
fn overlaps(itemsize: usize, shape: &[u64], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return false;
    }
    let mut axes: Vec<(u64, u64)> = strides
        .iter()
        .zip(shape)
        .filter(|&(_, &extent)| extent > 1)
        .map(|(stride, &extent)| (stride.unsigned_abs(), extent))
        .collect();
    axes.sort_unstable();
    let mut reach = itemsize.max(1) as u64;
    axes.into_iter().any(|(stride, extent)| {
        let is_short = stride < reach;
        reach = reach.saturating_add(stride.saturating_mul(extent - 1));
        is_short
    })
}

/// Type and shape in words. What differs only in framework or byte order reads the same.
pub(super) fn words(kind: &str, dtype: DType, shape: &[u64]) -> String {
    match logical(kind).map(|logical| logical.trim_start_matches(['<', '>', '=', '|'])) {
        Some(logical) if !is_plain(logical) => format!("{dtype} {shape:?} ({logical})"),
        _ => format!("{dtype} {shape:?}"),
    }
}

/// NumPy type codes that only repeat the element type, for arrays in the other byte order.
fn is_plain(logical: &str) -> bool {
    let mut chars = logical.chars();
    let plain = chars.next().is_some_and(|c| "biufc".contains(c));
    plain && chars.all(|c| c.is_ascii_digit()) && logical != "c16"
}

/// The framework of a kind.
pub(super) fn framework(kind: &str) -> &str {
    kind.split_once(':')
        .map_or(kind, |(framework, _)| framework)
}

/// The element type in its framework, where the checkpoint's does not say it.
pub(super) fn logical(kind: &str) -> Option<&str> {
    kind.split_once(':').map(|(_, logical)| logical)
}

/// A stored tensor, or a window on one, that is to become an array again.
pub(super) struct Shown<'a> {
    pub(super) kind: &'a str,
    pub(super) dtype: DType,
    pub(super) shape: &'a [u64],
    /// In bytes; `None`: C order without gaps.
    pub(super) strides: Option<&'a [i64]>,
    /// Where its first element lies, in bytes from the start of the memory.
    pub(super) offset: u64,
}

impl<'a> Shown<'a> {
    /// What a leaf shows of a tensor that starts `start` bytes into its memory.
    pub(super) fn of(leaf: &'a TensorRef, tensor: &'a Tensor, start: u64) -> Shown<'a> {
        match &leaf.view {
            Some(View {
                dtype,
                shape,
                strides,
                offset,
            }) => Shown {
                kind: &leaf.kind,
                dtype: *dtype,
                shape,
                strides: Some(strides),
                offset: start + offset,
            },
            None => Shown {
                kind: &leaf.kind,
                dtype: tensor.dtype,
                shape: &tensor.shape,
                strides: None,
                offset: start,
            },
        }
    }
}

impl Shown<'_> {
    /// Size of its elements, in bytes.
    pub(super) fn nbytes(&self) -> usize {
        crate::state::size_of(self.dtype, self.shape) as usize
    }

    /// Refuses what is not stored as its kind says, whose array would reach beyond its bytes: elements of type
    /// `stored`; `inner`: so many of them side by side, along a last axis, are one element of the array.
    ///
    /// # Errors
    ///
    /// `ValueError`.
    fn check_stored(&self, stored: DType, inner: Option<u64>) -> PyResult<()> {
        let step = stored.itemsize() as i64;
        let is_inner = |inner: u64| {
            let strides = self.strides.map(<[i64]>::last);
            let close = strides.is_none_or(|last| inner < 2 || last == Some(&step));
            self.shape.last() == Some(&inner) && close
        };
        if self.dtype == stored && inner.is_none_or(is_inner) {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "the checkpoint says that an array of kind {:?} is stored as {} {:?}; refused",
            self.kind, self.dtype, self.shape
        )))
    }
}

/// Whether an array in the given framework does not lie where its bytes were read to, but gets a copy of them.
pub(super) fn is_copied(shown: &Shown<'_>, want: &str) -> bool {
    // torch has neither arrays that run backwards nor such whose elements lie between others.
    let unit = shown.dtype.itemsize() as i64 * if logical(shown.kind).is_some() { 2 } else { 1 };
    let is_odd = |&stride: &i64| stride < 0 || unit > 0 && stride % unit != 0;
    match framework(shown.kind) {
        "bytes" | "bytearray" | "array" => true,
        "memoryview" => false,
        _ => want == "jax" || want == "torch" && shown.strides.into_iter().flatten().any(is_odd),
    }
}

/// Makes the array over `memory` in the given framework.
pub(super) fn make<'py>(
    memory: &Bound<'py, PyMemory>,
    shown: &Shown<'_>,
    want: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = memory.py();
    match (want, framework(shown.kind)) {
        // Byte strings and the like are no arrays to their owners, whatever framework the arrays are to be in.
        (_, "bytes" | "bytearray" | "array" | "memoryview") => buffer::make(memory, shown),
        ("torch", _) => torch::Torch::import(py)?.make(memory, shown),
        ("jax", _) => jax::Jax::import(py)?.make(memory, shown),
        ("" | "numpy", _) => numpy::Numpy::import(py)?.make(memory, shown),
        (other, _) => Err(PyValueError::new_err(format!(
            "the checkpoint holds an array of kind {other:?}, which this pitstop does not know; a newer one may"
        ))),
    }
}

/// A leaf for a tensor about to be pushed.
pub(super) fn leaf(index: usize, kind: Cow<'static, str>) -> Node {
    Node::Tensor(TensorRef {
        index,
        kind,
        view: None,
    })
}

/// A framework that is wanted while somebody is still importing it.
fn incomplete(name: &str) -> PyErr {
    PyValueError::new_err(format!("{name} cannot be used while it is being imported"))
}

fn unsupported(why: impl Into<String>) -> Refusal {
    errors::Refusal::Unsupported(why.into())
}
