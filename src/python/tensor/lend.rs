//! Lending memory to other libraries as DLPack tensors. They give it back without Python, on any thread.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::{Bytes, Memory};
use crate::python::dlpack::{DL_CPU, DlTensor};
use crate::state::{count, reach};

const NAME: &CStr = c"dltensor";

#[repr(C)]
struct ManagedTensor {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// What a lent tensor points to; it lives until the deleter is called.
struct Lent {
    managed: ManagedTensor,
    /// Extents, then strides.
    _axes: Box<[i64]>,
    _memory: Arc<Bytes>,
}

/// A DLPack capsule of the elements at `offset` bytes into the memory. `dtype`: type code and bits;
/// `strides` in elements, never negative; `None`: C order.
///
/// # Errors
///
/// `ValueError` if they do not lie in the memory.
pub(in crate::python) fn lend<'py>(
    memory: &Bound<'py, Memory>,
    offset: u64,
    dtype: (u8, u8),
    shape: &[u64],
    strides: Option<&[i64]>,
) -> PyResult<Bound<'py, PyCapsule>> {
    let py = memory.py();
    let memory = memory.get();
    if !is_within(
        memory.raw().1,
        offset,
        u64::from(dtype.1 / 8),
        shape,
        strides,
    ) {
        return Err(PyValueError::new_err("an array reaches outside its memory"));
    }
    let axes: Box<[i64]> = shape
        .iter()
        .map(|&extent| extent as i64)
        .chain(strides.unwrap_or_default().iter().copied())
        .collect();
    let tensor = DlTensor {
        data: memory.raw().0.wrapping_add(offset as usize).cast(),
        device_type: DL_CPU,
        device_id: 0,
        ndim: shape.len() as i32,
        code: dtype.0,
        bits: dtype.1,
        lanes: 1,
        shape: axes.as_ptr(),
        strides: strides.map_or(std::ptr::null(), |_| axes[shape.len()..].as_ptr()),
        byte_offset: 0,
    };
    let lent = Box::into_raw(Box::new(Lent {
        managed: ManagedTensor {
            tensor,
            context: std::ptr::null_mut(),
            deleter: Some(give_back),
        },
        _axes: axes,
        _memory: memory.bytes.clone(),
    }));
    // SAFETY: `lent` was just made, and belongs to the capsule from here on, or to whoever renames it.
    unsafe {
        let managed = &raw mut (*lent).managed;
        (*managed).context = lent.cast();
        let capsule = ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(unused));
        let capsule =
            Bound::from_owned_ptr_or_err(py, capsule).inspect_err(|_| give_back(managed))?;
        Ok(capsule.cast_into_unchecked())
    }
}

/// Whether these elements lie within the first `len` bytes. Whoever gets a capsule believes it.
fn is_within(
    len: usize,
    offset: u64,
    itemsize: u64,
    shape: &[u64],
    strides: Option<&[i64]>,
) -> bool {
    if shape.contains(&0) {
        return true;
    }
    // In elements, from the first one on.
    let (low, high) = match strides {
        Some(strides) if strides.len() == shape.len() => reach(0, 1, shape, strides),
        Some(_) => return false,
        None => (0, count(shape).map_or(i128::MAX, i128::from)),
    };
    let end = high.checked_mul(i128::from(itemsize));
    let end = end.and_then(|end| end.checked_add(i128::from(offset)));
    low >= 0 && end.is_some_and(|end| end <= len as i128)
}

/// The end of a lent tensor.
unsafe extern "C" fn give_back(managed: *mut ManagedTensor) {
    // SAFETY: DLPack calls this once, with the tensor that `lend` made.
    unsafe { drop(Box::from_raw((*managed).context.cast::<Lent>())) };
}

/// The end of a capsule: whoever took the tensor has renamed it; else the tensor ends too.
unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
    // SAFETY: CPython passes the capsule that `lend` made, whose pointer has that name until it is taken.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            give_back(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}
