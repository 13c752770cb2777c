//! The unsafe room of the bindings: memory that belongs to Python, and memory that is given to it.
#![expect(
    unsafe_code,
    reason = "memory owned by Python is reached through addresses"
)]

mod ground;
mod lend;

use std::ffi::{c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapMut;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use self::ground::{Share, ground};
pub(super) use self::lend::lend;
use crate::state::Region;

/// Memory of a Python object, by address.
///
/// Whoever makes one keeps the object alive, and its memory in place, for as long as the region is used:
/// until the copy is done, or until the save is done if the memory is borrowed. Other threads of the user
/// may write to it meanwhile; what is then read is one value or the other for each byte.
#[derive(Clone, Copy)]
pub(super) struct Foreign {
    address: usize,
    len: usize,
}

impl Foreign {
    /// # Safety
    ///
    /// `len` bytes from `address` on stay readable while the region is in use.
    unsafe fn new(address: usize, len: usize) -> Foreign {
        Foreign { address, len }
    }
}

impl Region for Foreign {
    fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: whoever called `Foreign::new` guarantees that these bytes are readable.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }

    fn widened(&self, low: usize, high: usize) -> Option<Arc<dyn Region>> {
        // SAFETY: regions of one state are all kept alive together, and are asked for stretches that they
        // cover together.
        Some(Arc::new(unsafe { Foreign::new(low, high - low) }))
    }
}

/// An array of a Python object: address of the first element, and first and one past the last byte.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) first: usize,
    low: usize,
    high: usize,
}

impl Extent {
    /// The extent of an array as its owner describes it. `strides` are in bytes.
    pub(super) fn new(
        first: usize,
        itemsize: usize,
        shape: &[u64],
        strides: Option<&[i64]>,
    ) -> Extent {
        if first == 0 || shape.contains(&0) {
            return Extent {
                first: 0,
                low: 0,
                high: 0,
            };
        }
        let (low, high) = if let Some(strides) = strides {
            crate::state::reach(first as i128, itemsize, shape, strides)
        } else {
            let elements: u64 = shape.iter().product();
            (
                first as i128,
                first as i128 + i128::from(elements) * itemsize as i128,
            )
        };
        Extent {
            first,
            low: low as usize,
            high: high as usize,
        }
    }

    /// Bytes from the lowest address to the first element.
    pub(super) fn offset(&self) -> usize {
        self.first - self.low
    }

    /// The memory, to copy out of.
    pub(super) fn region(&self) -> Foreign {
        // SAFETY: the frameworks guarantee that an array's own extent is readable while it lives, and the
        // caller of `Region` keeps the array alive.
        unsafe { Foreign::new(self.low, self.high - self.low) }
    }

    /// The memory, to restore into: that of a writable array which the caller holds, and which nothing else
    /// writes to at the same time; restoring makes sure of that among its own targets.
    pub(super) fn target<'a>(&self) -> &'a mut [u8] {
        if self.high == self.low {
            return &mut [];
        }
        // SAFETY: an extent is only made of a live array, and restoring holds on to that array, asks for
        // the memory of writable ones only, and for no two that overlap at the same time.
        unsafe { std::slice::from_raw_parts_mut(self.low as *mut u8, self.high - self.low) }
    }

    /// First and one past the last address.
    pub(super) fn bounds(&self) -> (usize, usize) {
        (self.low, self.high)
    }

    /// Whether two extents share a byte.
    pub(super) fn overlaps(&self, other: &Extent) -> bool {
        self.low < other.high && other.low < self.high
    }
}

/// Memory that restored arrays lie in; Python sees it through the buffer protocol, or borrows it by
/// [`lend`], and it is freed with the last of them.
#[pyclass(frozen, name = "Memory", module = "pitstop._native")]
pub(super) struct Memory {
    bytes: Arc<Bytes>,
}

enum Bytes {
    /// On the heap, at a multiple of 64 bytes.
    Heap { start: NonNull<u8>, len: usize },
    /// Fresh pages.
    Pages(Share),
    /// Private pages of a file.
    Mapped(MmapMut),
}

// SAFETY: the memory has one owner; Rust only writes to it before Python gets it.
unsafe impl Send for Bytes {}
// SAFETY: as above; afterwards Rust only hands out its address.
unsafe impl Sync for Bytes {}

/// From this size on, memory comes straight from the system, on huge pages where it can.
const MAPPED_FROM: usize = 1 << 20;
const ALIGNMENT: usize = 64;

impl Memory {
    /// Zeroed memory of each of the lengths, aligned to 64 bytes. Each is freed by itself.
    pub(super) fn zeroed(lengths: &[usize]) -> io::Result<Vec<Memory>> {
        if lengths.iter().sum::<usize>() < MAPPED_FROM {
            return lengths.iter().map(|&len| Memory::on_heap(len)).collect();
        }
        let pages = if cfg!(target_os = "linux") {
            ground(lengths)?
        } else {
            // A part of a map cannot be given back.
            let each = lengths.chunks(1).map(ground);
            each.collect::<io::Result<Vec<_>>>()?
                .into_iter()
                .flatten()
                .collect()
        };
        let of_pages = |share| Memory {
            bytes: Arc::new(Bytes::Pages(share)),
        };
        Ok(pages.into_iter().map(of_pages).collect())
    }

    fn on_heap(len: usize) -> io::Result<Memory> {
        let layout = heap_layout(len)?;
        // SAFETY: the layout is not of size zero.
        let start = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) });
        let start = start.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory {
            bytes: Arc::new(Bytes::Heap { start, len }),
        })
    }

    /// A private, writable map of a regular file of at least `len` bytes: changes stay in this process.
    pub(super) fn map_file(file: &File, len: u64) -> io::Result<Memory> {
        if file.metadata()?.len() < len {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file is not as long as it was written",
            ));
        }
        // SAFETY: checkpoints are never changed in place; what a foreign process does to the file while it
        // is mapped is outside what any process can guard against, and documented for `mmap=True`.
        let map = unsafe { memmap2::MmapOptions::new().map_copy(file)? };
        Ok(Memory {
            bytes: Arc::new(Bytes::Mapped(map)),
        })
    }

    /// The memory, while it has not yet been given to Python.
    ///
    /// # Panics
    ///
    /// If it was lent already.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = Arc::get_mut(&mut self.bytes).expect("nobody has borrowed the memory yet");
        let (start, len) = match bytes {
            Bytes::Heap { start, len } => (start.as_ptr(), *len),
            Bytes::Pages(share) => (share.start(), share.len()),
            Bytes::Mapped(map) => return map,
        };
        // SAFETY: `bytes` owns these, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    fn raw(&self) -> (*mut u8, usize) {
        match &*self.bytes {
            Bytes::Heap { start, len } => (start.as_ptr(), *len),
            Bytes::Pages(share) => (share.start(), share.len()),
            Bytes::Mapped(map) => (map.as_ptr().cast_mut(), map.len()),
        }
    }
}

fn heap_layout(len: usize) -> io::Result<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(len.max(1), ALIGNMENT).map_err(io::Error::other)
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Bytes::Heap { start, len } = self
            && let Ok(layout) = heap_layout(*len)
        {
            // SAFETY: allocated by `zeroed` with this very layout.
            unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
        }
    }
}

#[pymethods]
impl Memory {
    #[expect(clippy::needless_pass_by_value, reason = "the slot passes it by value")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let (start, len) = slf.get().raw();
        // SAFETY: CPython passes a view to fill; the memory lives as long as the object that the view holds.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                start.cast::<c_void>(),
                len as ffi::Py_ssize_t,
                0,
                flags,
            )
        };
        if filled == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }

    fn __len__(&self) -> usize {
        self.raw().1
    }
}

/// What NumPy's array interface says of an array.
/// <https://numpy.org/doc/stable/reference/arrays.interface.html#object.__array_struct__>
pub(super) struct NumpyArray {
    pub(super) data: usize,
    pub(super) itemsize: usize,
    pub(super) shape: Vec<u64>,
    /// In bytes; `None`: C order without gaps.
    pub(super) strides: Option<Vec<i64>>,
    pub(super) writable: bool,
}

#[repr(C)]
struct PyArrayInterface {
    two: c_int,
    nd: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *mut c_void,
}

const CONTIGUOUS: c_int = 0x1;
const WRITEABLE: c_int = 0x400;

/// Reads the `__array_struct__` of an array.
pub(super) fn array_struct(array: &Bound<'_, PyAny>) -> PyResult<NumpyArray> {
    let capsule = array.getattr(pyo3::intern!(array.py(), "__array_struct__"))?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(None)?.cast::<PyArrayInterface>();
    // SAFETY: NumPy puts a pointer to this structure into the capsule, which is alive.
    let interface = unsafe { pointer.as_ref() };
    if interface.two != 2 {
        return Err(PyValueError::new_err("not a NumPy array interface"));
    }
    let axes = interface.nd as usize;
    let list = |from: *const isize| match axes {
        0 => &[][..],
        // SAFETY: the structure holds `nd` extents and as many strides.
        _ => unsafe { std::slice::from_raw_parts(from, axes) },
    };
    let gaps = interface.flags & CONTIGUOUS == 0;
    Ok(NumpyArray {
        data: interface.data as usize,
        itemsize: interface.itemsize as usize,
        shape: list(interface.shape)
            .iter()
            .map(|&extent| extent as u64)
            .collect(),
        strides: gaps.then(|| {
            list(interface.strides)
                .iter()
                .map(|&stride| stride as i64)
                .collect()
        }),
        writable: interface.flags & WRITEABLE != 0,
    })
}
