//! The unsafe room of DLPack: what its structures say of an array in host memory.
//! <https://dmlc.github.io/dlpack/latest/c_api.html>
#![expect(unsafe_code, reason = "DLPack is structures of C behind pointers")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

/// What DLPack says of an array.
pub(super) struct DlpackArray {
    pub(super) data: usize,
    /// Type code, bits and lanes of an element.
    pub(super) dtype: (u8, u8, u16),
    pub(super) shape: Vec<u64>,
    /// In elements; `None`: C order without gaps.
    pub(super) strides: Option<Vec<i64>>,
}

#[repr(C)]
pub(super) struct DlTensor {
    pub(super) data: *mut c_void,
    pub(super) device_type: i32,
    pub(super) device_id: i32,
    pub(super) ndim: i32,
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
    pub(super) shape: *const i64,
    pub(super) strides: *const i64,
    pub(super) byte_offset: u64,
}

pub(super) const DL_CPU: i32 = 1;

impl DlTensor {
    /// Copies what it says; `None` if the array is not in host memory.
    ///
    /// # Safety
    ///
    /// `shape` and `strides` point to `ndim` numbers each, or are null where DLPack allows that.
    unsafe fn read(&self) -> Option<DlpackArray> {
        if self.device_type != DL_CPU {
            return None;
        }
        let axes = usize::try_from(self.ndim).unwrap_or(0);
        let list = |from: *const i64| match axes {
            0 => &[][..],
            // SAFETY: the caller vouches for `ndim` numbers; null strides are not asked for.
            _ => unsafe { std::slice::from_raw_parts(from, axes) },
        };
        let shape = list(self.shape);
        let gaps = !self.strides.is_null() && !is_c_order(shape, list(self.strides));
        Some(DlpackArray {
            data: self.data as usize + self.byte_offset as usize,
            dtype: (self.code, self.bits, self.lanes),
            shape: shape.iter().map(|&extent| extent as u64).collect(),
            strides: gaps.then(|| list(self.strides).to_vec()),
        })
    }
}

/// Whether an array lies in C order without gaps. The stride of an axis that is never stepped along is free.
fn is_c_order(shape: &[i64], strides: &[i64]) -> bool {
    let mut dense = 1i64;
    let mut axes = shape.iter().zip(strides).rev();
    shape.contains(&0)
        || axes.all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == dense;
            dense = dense.saturating_mul(extent);
            fits
        })
}

/// Reads a DLPack capsule, which goes on owning what it describes; `None` if that is not in host memory.
pub(super) fn of_capsule(capsule: &Bound<'_, PyCapsule>) -> PyResult<Option<DlpackArray>> {
    let pointer = capsule.pointer_checked(Some(c"dltensor"))?;
    // SAFETY: a capsule of this name points to a managed tensor, which starts with the tensor itself; it is
    // filled in as DLPack says.
    Ok(unsafe { pointer.cast::<DlTensor>().as_ref().read() })
}

/// The functions by which a framework shows arrays of a class without a capsule: `DLPackExchangeAPI`.
#[repr(C)]
struct Functions {
    major: u32,
    minor: u32,
    older: *const c_void,
    allocate: *const c_void,
    managed_from_object: *const c_void,
    managed_to_object: *const c_void,
    view_of_object: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int>,
    current_stream: *const c_void,
}

/// The version whose structures are written down here; another minor version only adds to them.
const MAJOR: u32 = 1;

/// The quick way to look at arrays of a class and of those derived from it.
pub(super) struct Exchange {
    class: Py<PyType>,
    view: unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int,
}

impl Exchange {
    /// That of `class`; `None` if it offers none that is known here.
    pub(super) fn of(class: &Bound<'_, PyType>) -> Option<Exchange> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?;
        let capsule = capsule.cast_into::<PyCapsule>().ok()?;
        let pointer = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
        // SAFETY: a capsule of this name points to such a table, which lives as long as the process. Every
        // version starts with its number, and this one goes on as declared.
        let view = unsafe {
            match pointer.cast::<u32>().as_ref() {
                &MAJOR => pointer.cast::<Functions>().as_ref().view_of_object?,
                _ => return None,
            }
        };
        Some(Exchange {
            class: class.clone().unbind(),
            view,
        })
    }

    /// What `array` is at this moment; `None` if it is of another class, is not in host memory, or is
    /// something that DLPack has no words for.
    pub(super) fn look(&self, array: &Bound<'_, PyAny>) -> Option<DlpackArray> {
        let class = self.class.as_ptr().cast::<ffi::PyTypeObject>();
        let mut tensor = MaybeUninit::<DlTensor>::uninit();
        // SAFETY: the function takes an object of the class, which is checked, and a structure to fill, which
        // it has done if it returns 0. What that points to stays until the array is used again, and it is
        // copied before anything else happens.
        unsafe {
            if ffi::PyObject_TypeCheck(array.as_ptr(), class) == 0 {
                return None;
            }
            if (self.view)(array.as_ptr().cast(), tensor.as_mut_ptr()) != 0 {
                drop(PyErr::take(array.py()));
                return None;
            }
            tensor.assume_init_ref().read()
        }
    }
}
