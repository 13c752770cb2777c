//! Where the bytes of what was saved go to, to compare arrays that share memory.

use pyo3::prelude::*;

use crate::python::arrays::{Array, Shown};
use crate::python::known::text;
use crate::python::tensor::Extent;
use crate::state::{Tensor, TensorRef};

/// An array that is to be filled, in host memory or elsewhere.
pub(super) struct Filled {
    pub(super) name: String,
    /// Index of the tensor that it is filled from.
    pub(super) index: usize,
    /// It is filled from all of that tensor, and not from a view of it.
    pub(super) whole: bool,
    /// What its addresses are addresses in: empty for host memory.
    pub(super) memory: String,
    /// What its bytes mean: whether torch is to conjugate, and to negate, them.
    pub(super) flags: [bool; 2],
    /// The addresses that it spans. They are compared, and nothing is reached through them.
    pub(super) extent: Extent,
    pub(super) place: Place,
}

impl Filled {
    /// An array whose own memory is filled.
    pub(super) fn on_host(
        array: &Array<'_>,
        leaf: &TensorRef,
        tensor: &Tensor,
        name: &str,
    ) -> Filled {
        let extent = array.extent;
        let strides = array.strides.as_deref();
        let shown = Shown::of(leaf, tensor, 0);
        Filled {
            name: name.to_owned(),
            index: leaf.index,
            whole: leaf.view.is_none(),
            memory: String::new(),
            flags: [false; 2],
            extent,
            place: Place::new(extent.first, strides, array.big_endian, &shown),
        }
    }

    /// A tensor of torch that is filled by copying: on another device, or one whose bytes do not say what its
    /// values are.
    pub(super) fn elsewhere(
        target: &Bound<'_, PyAny>,
        leaf: &TensorRef,
        tensor: &Tensor,
        name: &str,
    ) -> PyResult<Filled> {
        let py = target.py();
        let is = |method: &str| -> PyResult<bool> { target.call_method0(method)?.extract() };
        let mut memory = String::new();
        if !target.getattr(pyo3::intern!(py, "is_cpu"))?.is_truthy()? {
            memory = text(&target.getattr(pyo3::intern!(py, "device"))?)?;
        }
        let flags = [is("is_conj")?, is("is_neg")?];
        let address: PyResult<usize> = target
            .call_method0(pyo3::intern!(py, "data_ptr"))
            .and_then(|address| address.extract::<usize>());
        let first = if let Ok(address @ 1..) = address {
            address
        } else {
            // A device without addresses: only the same object is known to be the same memory.
            let object = target.as_ptr().addr();
            memory = format!("object {object}");
            object
        };
        let item: usize = target
            .call_method0(pyo3::intern!(py, "element_size"))?
            .extract()?;
        let shape: Vec<u64> = target.getattr(pyo3::intern!(py, "shape"))?.extract()?;
        let steps: Vec<i64> = target
            .call_method0(pyo3::intern!(py, "stride"))?
            .extract()?;
        let mut strides: Vec<i64> = steps.iter().map(|step| step * item as i64).collect();
        let extent = Extent::new(first, item, &shape, Some(&strides));
        let shown = Shown::of(leaf, tensor, 0);
        if shown.shape.len() > strides.len() {
            // One element of torch is several in the checkpoint, side by side.
            strides.push(shown.dtype.itemsize() as i64);
        }
        Ok(Filled {
            name: name.to_owned(),
            index: leaf.index,
            whole: leaf.view.is_none(),
            memory,
            flags,
            extent,
            place: Place::new(first, Some(&strides), false, &shown),
        })
    }
}

/// Which byte of a stored tensor goes to which address: runs of bytes, repeated along axes.
#[derive(PartialEq)]
pub(super) struct Place {
    /// The lowest address.
    low: i64,
    /// Where the run there lies in the stored tensor.
    saved: i64,
    /// Bytes that lie side by side in memory as in the stored tensor.
    run: i64,
    /// The bytes of a run are in the other order in memory.
    swapped: bool,
    /// Short steps in memory first. What one axis spans is shorter than a step along the next.
    axes: Vec<Axis>,
}

/// So many runs, each a step further in memory and in the stored tensor.
#[derive(PartialEq)]
struct Axis {
    step: i64,
    saved: i64,
    count: i64,
}

impl Place {
    /// That of an array which starts at `first`, and whose elements do not share memory.
    fn new(first: usize, strides: Option<&[i64]>, swapped: bool, shown: &Shown<'_>) -> Place {
        let item = shown.dtype.itemsize() as i64;
        let mut place = Place {
            low: first as i64,
            saved: shown.offset as i64,
            run: shown.nbytes() as i64,
            swapped,
            axes: Vec::new(),
        };
        // What is packed below a byte has no strides, and what is empty may have any.
        if item == 0 || place.run == 0 {
            return place;
        }
        place.run = shown.dtype.swap_width() as i64;
        let mut axes = vec![Axis {
            step: place.run,
            saved: place.run,
            count: item / place.run,
        }];
        let in_memory = strides.map_or_else(|| c_order(shown.shape, item), <[i64]>::to_vec);
        let in_saved = shown
            .strides
            .map_or_else(|| c_order(shown.shape, item), <[i64]>::to_vec);
        for ((step, saved), &count) in in_memory.into_iter().zip(in_saved).zip(shown.shape) {
            let mut next = Axis {
                step,
                saved,
                count: count as i64,
            };
            if count > 1 && step < 0 {
                place.low += step * (next.count - 1);
                place.saved += saved * (next.count - 1);
                next.step = -step;
                next.saved = -saved;
            }
            axes.push(next);
        }
        axes.retain(|axis| axis.count > 1);
        axes.sort_unstable_by_key(|axis| axis.step);
        for axis in axes {
            place.push(axis);
        }
        place
    }

    /// Adds an axis with longer steps than all others, as a part of the last one if it only goes on with that.
    fn push(&mut self, axis: Axis) {
        let goes_on = |step: i64, saved: i64| axis.step == step && axis.saved == saved;
        match self.axes.last_mut() {
            Some(last) if goes_on(last.step * last.count, last.saved * last.count) => {
                last.count *= axis.count;
            }
            None if !self.swapped && goes_on(self.run, self.run) => self.run *= axis.count,
            _ => self.axes.push(axis),
        }
    }

    /// Whether no address gets one byte of the stored tensor here and another one of it there.
    pub(super) fn agrees(&self, other: &Place) -> bool {
        let as_saved = self.lies_as_saved() && other.lies_as_saved();
        if self == other || as_saved && self.low - self.saved == other.low - other.saved {
            return true;
        }
        // Where runs meet, one of them begins inside the other.
        self.swapped == other.swapped && self.fits(other) && other.fits(self)
    }

    /// Whether memory and stored tensor differ in nothing but where they start.
    fn lies_as_saved(&self) -> bool {
        !self.swapped && self.axes.iter().all(|axis| axis.step == axis.saved)
    }

    /// Whether what each run begins with goes to where `other` has the same byte, or nothing.
    fn fits(&self, other: &Place) -> bool {
        let count: i64 = self.axes.iter().map(|axis| axis.count).product();
        (0..count).all(|mut nth| {
            let mut address = self.low;
            for axis in &self.axes {
                address += nth % axis.count * axis.step;
                nth /= axis.count;
            }
            let there = other.saved_at(address);
            there.is_none() || there == self.saved_at(address)
        })
    }

    /// The byte of the stored tensor that goes to an address.
    fn saved_at(&self, address: i64) -> Option<i64> {
        let (mut rest, mut saved) = (address - self.low, self.saved);
        if rest < 0 {
            return None;
        }
        for axis in self.axes.iter().rev() {
            let steps = (rest / axis.step).min(axis.count - 1);
            rest -= steps * axis.step;
            saved += steps * axis.saved;
        }
        let byte = if self.swapped {
            self.run - 1 - rest
        } else {
            rest
        };
        (rest < self.run).then_some(saved + byte)
    }
}

/// The strides of an array in C order without gaps.
fn c_order(shape: &[u64], item: i64) -> Vec<i64> {
    let mut strides = vec![item; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis] as i64);
    }
    strides
}
