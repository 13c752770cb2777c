//! The unsafe room of torch's storages: what memory there is for a tensor. torch tells that too, but in calls that
//! take as long as all else that is asked of a plain tensor.
#![expect(
    unsafe_code,
    reason = "torch keeps it in objects of C++ behind pointers"
)]

use std::ops::Range;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// The quick way to the memory of the storages of a class of tensors, and of those derived from it.
pub(super) struct Storages {
    class: Py<PyType>,
    places: Places,
}

/// Where torch keeps what is wanted, in words from the start of an object. Nobody promises that it stays there: it
/// is looked up in tensors of which torch tells what must be found.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Places {
    /// In a tensor: its storage.
    storage: usize,
    /// In a storage: the address of its memory.
    data: usize,
    /// In a storage: the size of its memory, in bytes.
    size: usize,
}

/// Where the object of Python keeps its tensor, after what every object has. A torch that keeps it elsewhere may
/// also keep something else there at times, and is asked by calls.
const TENSOR: usize = 2;

/// How far the objects of C++ are looked through; both are longer.
const WORDS: usize = 8;

/// Sizes that are no other number in a storage.
const SIZES: [usize; 2] = [12_347, 7_919];

impl Storages {
    /// That of the tensors of this torch; `None` if they are not as expected.
    pub(super) fn of(torch: &Bound<'_, PyAny>, class: &Bound<'_, PyType>) -> Option<Storages> {
        let [one, other] = SIZES.map(|size| Places::of(torch, class, size).ok().flatten());
        let places = one.filter(|_| one == other)?;
        Some(Storages {
            class: class.clone().unbind(),
            places,
        })
    }

    /// The addresses of the memory behind a tensor at this moment; `None` if it is of another class, or has no
    /// storage whose size is a plain number.
    pub(super) fn look(&self, tensor: &Bound<'_, PyAny>) -> Option<Range<usize>> {
        let class = self.class.as_ptr().cast::<ffi::PyTypeObject>();
        // SAFETY: both are objects that are alive, and the second is a type.
        if unsafe { ffi::PyObject_TypeCheck(tensor.as_ptr(), class) } == 0 {
            return None;
        }
        let Places {
            storage,
            data,
            size,
        } = self.places;
        // SAFETY: an object of this class keeps its tensor there, and that its storage, as was found out; all three
        // are alive while the object is.
        let (start, len) = unsafe {
            let storage = word(word(tensor.as_ptr().expose_provenance(), TENSOR), storage);
            if storage == 0 {
                return None;
            }
            (word(storage, data), word(storage, size))
        };
        // torch sets the highest bit where the size is no plain number.
        isize::try_from(len).ok()?;
        Some(start..start.checked_add(len)?)
    }
}

impl Places {
    /// Those in a new tensor of so many bytes; `None` if they are not found.
    fn of(
        torch: &Bound<'_, PyAny>,
        class: &Bound<'_, PyType>,
        size: usize,
    ) -> PyResult<Option<Places>> {
        let keywords = PyDict::new(torch.py());
        keywords.set_item("dtype", torch.getattr("uint8")?)?;
        keywords.set_item("device", "cpu")?;
        let tensor = torch.call_method("empty", (size,), Some(&keywords))?;
        // In some modes of torch it is of a class of its own.
        if !tensor.get_type().is(class) {
            return Ok(None);
        }
        let storage = tensor.call_method0("untyped_storage")?;
        let tensor_at: usize = tensor.getattr("_cdata")?.extract()?;
        let storage_at: usize = storage.getattr("_cdata")?.extract()?;
        let data: usize = storage.call_method0("data_ptr")?.extract()?;
        if tensor_at == 0 || storage_at == 0 || data == 0 {
            return Ok(None);
        }
        // SAFETY: an object of a class with fields of its own is longer than what every object has.
        if unsafe { word(tensor.as_ptr().expose_provenance(), TENSOR) } != tensor_at {
            return Ok(None);
        }
        let place = |object: usize, value: usize| {
            // SAFETY: torch has told that its objects lie there; they are held, and longer.
            (1..WORDS).find(|&index| unsafe { word(object, index) } == value)
        };
        let places = || {
            Some(Places {
                storage: place(tensor_at, storage_at)?,
                data: place(storage_at, data)?,
                size: place(storage_at, size)?,
            })
        };
        Ok(places())
    }
}

/// # Safety
///
/// At `address` lies an object that is alive and has more than `index` words.
unsafe fn word(address: usize, index: usize) -> usize {
    // SAFETY: the caller vouches for it.
    unsafe { (address as *const usize).add(index).read() }
}
