//! Tensors that share memory become one stored tensor and views of it.

use std::collections::HashMap;
use std::sync::Arc;

use super::tensor::extent;
use super::{DType, Data, Memory, Node, State, Tensor, View};

/// A tensor in memory, by absolute addresses.
struct Placed {
    index: usize,
    start: usize,
    low: usize,
    high: usize,
}

/// Tensors that their leaves no longer point at, by index.
type Moved = HashMap<usize, Target>;

/// What a leaf points at instead.
struct Target {
    index: usize,
    view: Option<View>,
}

impl State {
    /// Finds tensors that share memory and keeps each stretch of memory once.
    ///
    /// Tensors that are the same view of the same memory become one. Of those that merely overlap, the one
    /// that spans all the others (or else a flat tensor over their common memory) is kept, and the others
    /// become views of it. Memory that no single [`Region`](super::Region) covers is left as it is.
    /// Afterwards no two tensors of the state overlap, and none is unused.
    #[must_use]
    pub fn share_memory(self) -> State {
        let State { root, mut tensors } = self;
        let mut placed: Vec<Placed> = (0..)
            .zip(&tensors)
            .filter_map(|(index, tensor)| place(index, tensor))
            .collect();
        placed.sort_unstable_by_key(|p| (p.low, std::cmp::Reverse(p.high), p.index));
        let mut moved = HashMap::new();
        for group in overlapping(&placed).filter(|group| group.len() > 1) {
            let distinct = merge_identical(group, &tensors, &mut moved);
            if distinct.len() > 1 {
                share_group(&distinct, &mut tensors, &mut moved);
            }
        }
        compact(root, tensors, &moved)
    }
}

fn place(index: usize, tensor: &Tensor) -> Option<Placed> {
    let Data::Memory(memory) = &tensor.data else {
        return None;
    };
    let nbytes = tensor.nbytes();
    if nbytes == 0 {
        return None;
    }
    let base = memory.region.bytes().as_ptr() as usize;
    let (low, high) = extent(tensor.dtype, &tensor.shape, nbytes, memory)?;
    let at = |offset: i128| base + offset as usize;
    Some(Placed {
        index,
        start: base + memory.offset,
        low: at(low),
        high: at(high),
    })
}

/// The groups of tensors that hang together because each shares memory with another; `placed` is sorted.
fn overlapping(placed: &[Placed]) -> impl Iterator<Item = &[Placed]> {
    let mut end = 0;
    placed.chunk_by(move |one, next| {
        end = one.high.max(end);
        next.low < end
    })
}

/// Points tensors that are the same view of the same memory at the first of them; returns the rest.
fn merge_identical<'a>(
    group: &'a [Placed],
    tensors: &[Tensor],
    moved: &mut Moved,
) -> Vec<&'a Placed> {
    let mut seen = HashMap::new();
    let mut distinct = Vec::new();
    for placed in group {
        let tensor = &tensors[placed.index];
        let Data::Memory(memory) = &tensor.data else {
            continue;
        };
        let key = (
            placed.start,
            tensor.dtype,
            &tensor.shape,
            &memory.strides,
            memory.big_endian,
        );
        let index = *seen.entry(key).or_insert(placed.index);
        if index == placed.index {
            distinct.push(placed);
        } else {
            moved.insert(placed.index, Target { index, view: None });
        }
    }
    distinct
}

fn share_group(group: &[&Placed], tensors: &mut Vec<Tensor>, moved: &mut Moved) {
    let low = group.iter().map(|p| p.low).min().unwrap_or(0);
    let high = group.iter().map(|p| p.high).max().unwrap_or(0);
    if !byte_order_agrees(group, tensors) {
        return;
    }
    let spans = |p: &&&Placed| {
        p.low == low && p.high == high && tensors[p.index].bytes_in_memory_order().is_some()
    };
    let base = match group.iter().find(spans) {
        Some(p) => p.index,
        None => match flat_tensor(group, low, high, tensors) {
            Some(tensor) => {
                tensors.push(tensor);
                tensors.len() - 1
            }
            None => return,
        },
    };
    for p in group.iter().filter(|p| p.index != base) {
        let view = view_of(p, low, &tensors[p.index]);
        let target = Target {
            index: base,
            view: Some(view),
        };
        moved.insert(p.index, target);
    }
}

/// A view cannot say that its bytes are swapped, so all of a group must agree; and swapping is by element,
/// so a swapped group must be of one type.
fn byte_order_agrees(group: &[&Placed], tensors: &[Tensor]) -> bool {
    let swapped = |p: &Placed| matches!(&tensors[p.index].data, Data::Memory(m) if m.big_endian);
    let first = group[0];
    group.iter().all(|p| {
        swapped(p) == swapped(first)
            && (!swapped(first) || tensors[p.index].dtype == tensors[first.index].dtype)
    })
}

fn view_of(placed: &Placed, low: usize, tensor: &Tensor) -> View {
    let strides = match &tensor.data {
        Data::Memory(Memory {
            strides: Some(strides),
            ..
        }) => strides.clone(),
        _ => c_strides(tensor.dtype, &tensor.shape),
    };
    View {
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        strides,
        offset: (placed.start - low) as u64,
    }
}

/// The strides of a C-ordered array without gaps, in bytes.
pub(super) fn c_strides(dtype: DType, shape: &[u64]) -> Vec<i64> {
    let mut stride = dtype.itemsize() as i64;
    let mut strides = vec![0; shape.len()];
    for (axis, &extent) in shape.iter().enumerate().rev() {
        strides[axis] = stride;
        stride = stride.saturating_mul(extent as i64);
    }
    strides
}

/// A one-dimensional tensor over the memory of the whole group, if one region covers it.
fn flat_tensor(group: &[&Placed], low: usize, high: usize, tensors: &[Tensor]) -> Option<Tensor> {
    let memory = group.iter().find_map(|p| match &tensors[p.index].data {
        Data::Memory(memory) => span(memory, low, high),
        _ => None,
    })?;
    let dtype = tensors[group[0].index].dtype;
    let item = dtype.itemsize();
    let uniform = group.iter().all(|p| {
        tensors[p.index].dtype == dtype
            && (p.low - low).is_multiple_of(item)
            && (p.start - low).is_multiple_of(item)
    });
    let dtype = match (
        uniform && (high - low).is_multiple_of(item),
        memory.big_endian,
    ) {
        (true, _) => dtype,
        (false, false) => DType::U8,
        (false, true) => return None,
    };
    Tensor::new(
        dtype,
        &[((high - low) / dtype.itemsize()) as u64],
        Data::Memory(memory),
    )
    .ok()
}

/// The addresses `low..high` as memory like `memory`.
fn span(memory: &Memory, low: usize, high: usize) -> Option<Memory> {
    let base = memory.region.bytes().as_ptr() as usize;
    let covered = base <= low && high <= base + memory.region.bytes().len();
    let (region, offset) = if covered {
        (Arc::clone(&memory.region), low - base)
    } else {
        (memory.region.widened(low, high)?, 0)
    };
    Some(Memory {
        region,
        offset,
        strides: None,
        ..memory.clone()
    })
}

/// Drops the tensors that no leaf refers to and renumbers the rest in the order of the tree.
fn compact(mut root: Node, tensors: Vec<Tensor>, moved: &Moved) -> State {
    if moved.is_empty() && is_compact(&root, tensors.len()) {
        return State { root, tensors };
    }
    let mut numbers = vec![None; tensors.len()];
    let mut slots: Vec<Option<Tensor>> = tensors.into_iter().map(Some).collect();
    let mut kept = Vec::new();
    root.for_each_tensor_mut(&mut |leaf| {
        // The tensor that this one was merged into may itself have become a view.
        while let Some(target) = moved.get(&leaf.index) {
            leaf.index = target.index;
            if target.view.is_some() {
                leaf.view.clone_from(&target.view);
            }
        }
        let Some(slot) = slots.get_mut(leaf.index) else {
            return;
        };
        leaf.index = *numbers[leaf.index].get_or_insert_with(|| {
            kept.extend(slot.take());
            kept.len() - 1
        });
    });
    State {
        root,
        tensors: kept,
    }
}

/// Whether each tensor has one leaf, in the order of the tree.
fn is_compact(root: &Node, tensors: usize) -> bool {
    let (mut leaves, mut in_order) = (0, true);
    root.for_each_tensor(&mut |leaf| {
        in_order &= leaf.index == leaves;
        leaves += 1;
    });
    in_order && leaves == tensors
}

impl Tensor {
    /// The bytes in memory if they lie in C order without gaps, whatever their byte order.
    fn bytes_in_memory_order(&self) -> Option<&[u8]> {
        let Data::Memory(memory) = &self.data else {
            return None;
        };
        let dense = memory
            .strides
            .as_ref()
            .is_none_or(|s| *s == c_strides(self.dtype, &self.shape));
        let end = memory.offset.checked_add(self.nbytes() as usize)?;
        dense.then(|| memory.region.bytes().get(memory.offset..end))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Region, TensorRef};

    fn region(bytes: usize) -> Arc<dyn Region> {
        Arc::new((0..bytes).map(|i| i as u8).collect::<Vec<u8>>())
    }

    fn tensor(
        region: &Arc<dyn Region>,
        offset: usize,
        shape: &[u64],
        strides: Option<&[i64]>,
    ) -> Tensor {
        let memory = Memory {
            offset,
            strides: strides.map(<[i64]>::to_vec),
            ..Memory::whole(Arc::clone(region))
        };
        Tensor::new(DType::U16, shape, Data::Memory(memory)).unwrap()
    }

    fn shared(tensors: Vec<Tensor>) -> (State, Vec<TensorRef>) {
        let mut state = State::default();
        let leaves = tensors.into_iter().map(|t| state.push(t)).collect();
        state.root = Node::List(leaves);
        let state = state.share_memory();
        let mut leaves = Vec::new();
        state
            .root
            .for_each_tensor(&mut |leaf| leaves.push(leaf.clone()));
        (state, leaves)
    }

    #[test]
    fn tied_weights_are_one_tensor() {
        let memory = region(64);
        let (state, leaves) = shared(vec![
            tensor(&memory, 0, &[4], None),
            tensor(&memory, 0, &[4], None),
        ]);
        assert_eq!(state.tensors.len(), 1);
        assert!(
            leaves
                .iter()
                .all(|leaf| leaf.index == 0 && leaf.view.is_none())
        );
    }

    #[test]
    fn tied_transposes_that_overlap_another_view_resolve_to_one_base() {
        let memory = region(64);
        let transposed = [2, 4].map(i64::from);
        let (state, leaves) = shared(vec![
            tensor(&memory, 0, &[2, 2], Some(&transposed)),
            tensor(&memory, 0, &[2, 2], Some(&transposed)),
            tensor(&memory, 0, &[8], None),
        ]);
        assert_eq!(state.tensors.len(), 1);
        assert_eq!(leaves[0].view, leaves[1].view);
        assert_eq!(leaves[0].view.as_ref().unwrap().strides, transposed);
        assert!(leaves[2].view.is_none());
    }

    #[test]
    fn a_slice_becomes_a_view_of_the_whole() {
        let memory = region(64);
        let (state, leaves) = shared(vec![
            tensor(&memory, 8, &[2], None),
            tensor(&memory, 0, &[8], None),
        ]);
        assert_eq!(state.tensors.len(), 1);
        assert_eq!(state.tensors[0].shape, [8]);
        assert_eq!(leaves[0].view.as_ref().unwrap().offset, 8);
    }

    #[test]
    fn sliding_windows_share_a_flat_tensor() {
        let memory = region(64);
        let (state, leaves) = shared(vec![
            tensor(&memory, 4, &[4], None),
            tensor(&memory, 8, &[4], None),
        ]);
        assert_eq!(state.tensors.len(), 1);
        assert_eq!(
            (state.tensors[0].shape.as_slice(), state.tensors[0].dtype),
            (&[6][..], DType::U16)
        );
        assert_eq!(state.tensors[0].bytes().unwrap()[0], 4);
        assert_eq!(
            leaves
                .iter()
                .map(|l| l.view.as_ref().unwrap().offset)
                .collect::<Vec<_>>(),
            [0, 4]
        );
    }

    #[test]
    fn neighbours_in_one_buffer_stay_apart() {
        let memory = region(64);
        let (state, leaves) = shared(vec![
            tensor(&memory, 0, &[4], None),
            tensor(&memory, 8, &[4], None),
        ]);
        assert_eq!(state.tensors.len(), 2);
        assert!(leaves.iter().all(|leaf| leaf.view.is_none()));
    }

    #[test]
    fn a_reversed_view_starts_at_its_last_element() {
        let memory = region(16);
        let (state, leaves) = shared(vec![
            tensor(&memory, 0, &[8], None),
            tensor(&memory, 14, &[8], Some(&[-2])),
        ]);
        assert_eq!(state.tensors.len(), 1);
        let view = leaves[1].view.as_ref().unwrap();
        assert_eq!((view.offset, view.strides.as_slice()), (14, &[-2][..]));
    }
}
