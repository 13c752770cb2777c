use std::ops::Range;

use crate::state::{DType, Memory, Tensor};

/// How the elements of an array lie in memory, axis by axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Axes outside the innermost stretch without gaps: extent and stride in bytes, outermost first.
    outer: Vec<(usize, isize)>,
    /// Length of that stretch, in bytes.
    run: usize,
    /// Where the first element lies, in bytes from the start of the memory.
    offset: usize,
    /// Width of the units to reverse, in bytes; 1: nothing to do.
    swap: usize,
}

impl Layout {
    /// The layout of an array of the given type, shape and strides (in bytes; `None`: C order, no gaps),
    /// whose first element lies `offset` bytes into the memory.
    pub fn new(
        dtype: DType,
        shape: &[u64],
        strides: Option<&[i64]>,
        offset: usize,
        big_endian: bool,
    ) -> Layout {
        let swap = if big_endian {
            dtype.swap_width().max(1)
        } else {
            1
        };
        let Some(strides) = strides else {
            let run = crate::state::size_of(dtype, shape) as usize;
            return Layout {
                outer: Vec::new(),
                run,
                offset,
                swap,
            };
        };
        let mut outer: Vec<(usize, isize)> = shape
            .iter()
            .zip(strides)
            .map(|(&extent, &stride)| (extent as usize, stride as isize))
            .collect();
        outer.retain(|&(extent, _)| extent != 1);
        let mut run = dtype.itemsize();
        while let Some((extent, _)) = outer.pop_if(|&mut (_, stride)| stride == run as isize) {
            run *= extent;
        }
        Layout {
            outer,
            run,
            offset,
            swap,
        }
    }

    /// The layout of a tensor in memory.
    pub(super) fn of(tensor: &Tensor, memory: &Memory) -> Layout {
        Layout::new(
            tensor.dtype,
            &tensor.shape,
            memory.strides.as_deref(),
            memory.offset,
            memory.big_endian,
        )
    }

    /// Copies the bytes `range` of the stored form (C order, little-endian) out of `memory`.
    pub fn gather(&self, memory: &[u8], range: Range<usize>, into: &mut [u8]) {
        self.for_each_run(range, |at, stored, len| {
            into[stored..stored + len].copy_from_slice(&memory[at..at + len]);
        });
        self.swap_bytes(into);
    }

    /// Copies `stored`, the whole stored form, to where the elements lie in `memory`.
    pub fn scatter(&self, stored: &mut [u8], memory: &mut [u8]) {
        self.swap_bytes(stored);
        self.for_each_run(0..stored.len(), |at, start, len| {
            memory[at..at + len].copy_from_slice(&stored[start..start + len]);
        });
    }

    fn swap_bytes(&self, bytes: &mut [u8]) {
        if self.swap > 1 {
            bytes.chunks_exact_mut(self.swap).for_each(<[u8]>::reverse);
        }
    }

    /// Calls `visit(memory offset, offset within the range, length)` for each stretch without gaps that the
    /// bytes `range` of the stored form are made of.
    fn for_each_run(&self, range: Range<usize>, mut visit: impl FnMut(usize, usize, usize)) {
        if range.is_empty() {
            return;
        }
        let mut index = vec![0usize; self.outer.len()];
        let mut rest = range.start / self.run;
        let mut at = self.offset as isize;
        for (axis, &(extent, stride)) in self.outer.iter().enumerate().rev() {
            index[axis] = rest % extent;
            rest /= extent;
            at += index[axis] as isize * stride;
        }
        let (mut stored, mut skip) = (0, range.start % self.run);
        loop {
            let len = (self.run - skip).min(range.len() - stored);
            visit(at as usize + skip, stored, len);
            stored += len;
            skip = 0;
            if stored == range.len() {
                return;
            }
            for (axis, &(extent, stride)) in self.outer.iter().enumerate().rev() {
                index[axis] += 1;
                at += stride;
                if index[axis] < extent {
                    break;
                }
                at -= extent as isize * stride;
                index[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_transpose_is_read_in_its_own_order() {
        let memory: Vec<u8> = (0..6).collect();
        let layout = Layout::new(DType::U8, &[3, 2], Some(&[1, 3]), 0, false);
        let mut out = [0; 6];
        layout.gather(&memory, 0..6, &mut out);
        assert_eq!(out, [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn a_reversed_big_endian_array_is_turned_round() {
        let memory = [0, 1, 0, 2, 0, 3];
        let layout = Layout::new(DType::U16, &[3], Some(&[-2]), 4, true);
        let mut out = [0; 6];
        layout.gather(&memory, 0..6, &mut out);
        assert_eq!(out, [3, 0, 2, 0, 1, 0]);
    }

    proptest! {
        #[test]
        fn any_range_is_the_same_part_of_the_whole(
            extents in prop::collection::vec(1u64..5, 0..4),
            order in any::<[u8; 4]>(),
            reversed in any::<[bool; 4]>(),
            cut in any::<(u16, u16)>(),
        ) {
            // Strides of a C-ordered array whose axes were permuted and some of them reversed.
            let mut axes: Vec<usize> = (0..extents.len()).collect();
            axes.sort_by_key(|&axis| order[axis]);
            let (mut strides, mut stride) = (vec![0i64; extents.len()], 2i64);
            for &axis in axes.iter().rev() {
                strides[axis] = stride;
                stride *= extents[axis] as i64;
            }
            let mut offset = 0;
            for axis in 0..extents.len() {
                if reversed[axis] {
                    offset += (extents[axis] as i64 - 1) * strides[axis];
                    strides[axis] = -strides[axis];
                }
            }
            let memory: Vec<u8> = (0..stride as usize).map(|i| i as u8).collect();
            let layout = Layout::new(DType::U16, &extents, Some(&strides), offset as usize, false);
            let mut whole = vec![0; memory.len()];
            layout.gather(&memory, 0..memory.len(), &mut whole);
            let a = usize::from(cut.0) % (whole.len() + 1);
            let b = usize::from(cut.1) % (whole.len() + 1);
            let range = a.min(b)..a.max(b);
            let mut part = vec![0; range.len()];
            layout.gather(&memory, range.clone(), &mut part);
            prop_assert_eq!(&part, &whole[range]);
            let mut back = vec![0; memory.len()];
            layout.scatter(&mut whole, &mut back);
            prop_assert_eq!(back, memory);
        }
    }
}
