use std::sync::Arc;

use thiserror::Error;

use super::{Checksum, DType, Data, Element, Memory, Piece};

/// An array of numbers: element type, shape, and where the bytes lie.
#[derive(Debug, Clone)]
pub struct Tensor {
    /// Name within the checkpoint, such as `"model.wte.weight"`. Saving fills it in; a restored tensor has it.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extent along each axis, in elements. Empty for a single number.
    pub shape: Vec<u64>,
    /// Where its bytes lie.
    pub data: Data,
    /// Checksum of its bytes in stored form, once known.
    pub checksum: Option<Checksum>,
}

/// The shape does not fit the data.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a tensor of type {dtype} and shape {shape:?} does not fit: {why}")]
pub struct ShapeError {
    dtype: DType,
    shape: Vec<u64>,
    why: String,
}

impl Tensor {
    /// A tensor of the given type over `data`.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if the size is no whole number of bytes or overflows, if the data in memory does not
    /// hold it, or if pieces do not tile it.
    pub fn new(dtype: DType, shape: &[u64], data: Data) -> Result<Tensor, ShapeError> {
        Tensor::of_shape(dtype, shape.to_vec(), data)
    }

    /// As [`new`](Self::new), of a shape that it keeps.
    pub(crate) fn of_shape(
        dtype: DType,
        shape: Vec<u64>,
        data: Data,
    ) -> Result<Tensor, ShapeError> {
        let fail = |why: &str| ShapeError {
            dtype,
            shape: shape.clone(),
            why: why.to_owned(),
        };
        let elements = count(&shape).ok_or_else(|| fail("too many elements"))?;
        let nbytes = dtype
            .nbytes(elements)
            .ok_or_else(|| fail("not a whole number of bytes"))?;
        match &data {
            Data::Memory(memory) => {
                let (low, high) = extent(dtype, &shape, nbytes, memory)
                    .ok_or_else(|| fail("its strides reach outside the memory"))?;
                if low < 0 || high > memory.region.bytes().len() as i128 {
                    return Err(fail("it reaches outside the memory"));
                }
            }
            Data::Stored(_) => {}
            Data::Pieces(pieces) => {
                check_tiling(dtype, &shape, elements, pieces).map_err(|why| fail(&why))?;
            }
        }
        Ok(Tensor {
            name: String::new(),
            dtype,
            shape,
            data,
            checksum: None,
        })
    }

    /// A tensor that owns its numbers, in C order.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `values` are not exactly as many as the shape says.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: &[u64]) -> Result<Tensor, ShapeError> {
        if count(shape) != Some(values.len() as u64) {
            return Err(ShapeError {
                dtype: T::DTYPE,
                shape: shape.to_vec(),
                why: format!("there are {} elements", values.len()),
            });
        }
        Tensor::new(
            T::DTYPE,
            shape,
            Data::Memory(Memory::whole(Arc::new(values))),
        )
    }

    /// A copy of the given numbers, in C order.
    ///
    /// # Errors
    ///
    /// [`ShapeError`] if `values` are not exactly as many as the shape says.
    pub fn copy_of<T: Element>(values: &[T], shape: &[u64]) -> Result<Tensor, ShapeError> {
        Tensor::from_vec(values.to_vec(), shape)
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        count(&self.shape).unwrap_or(0)
    }

    /// Size of the stored form, in bytes.
    pub fn nbytes(&self) -> u64 {
        size_of(self.dtype, &self.shape)
    }

    /// What it is stored as: itself, or its pieces.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Tensor> {
        let (whole, pieces) = match &self.data {
            Data::Pieces(pieces) => (None, pieces.as_slice()),
            _ => (Some(self), [].as_slice()),
        };
        let pieces = pieces.iter().map(|piece| &piece.tensor);
        whole.into_iter().chain(pieces)
    }

    /// The bytes, if they lie in memory exactly as they are stored.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.data {
            Data::Memory(memory) => memory.contiguous(self.nbytes() as usize),
            _ => None,
        }
    }

    /// A copy of the numbers, if the type is `T` and the bytes lie in memory.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        let bytes = self.bytes().filter(|_| self.dtype == T::DTYPE)?;
        Some(bytemuck::pod_collect_to_vec(bytes))
    }
}

/// Number of elements of a shape; `None` on overflow.
pub(crate) fn count(shape: &[u64]) -> Option<u64> {
    // An axis of extent 0 makes the array empty, however large the others are.
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1u64, |product, &extent| product.checked_mul(extent))
}

/// Size in bytes of a tensor whose size was checked when it was made.
pub(crate) fn size_of(dtype: DType, shape: &[u64]) -> u64 {
    count(shape)
        .and_then(|elements| dtype.nbytes(elements))
        .unwrap_or(0)
}

/// First and one past the last byte of a tensor in memory, from the start of its region.
pub(super) fn extent(
    dtype: DType,
    shape: &[u64],
    nbytes: u64,
    memory: &Memory,
) -> Option<(i128, i128)> {
    let start = memory.offset as i128;
    let Some(strides) = &memory.strides else {
        return Some((start, start + i128::from(nbytes)));
    };
    if strides.len() != shape.len() || dtype.itemsize() == 0 {
        return None;
    }
    if nbytes == 0 {
        return Some((start, start));
    }
    Some(reach(start, dtype.itemsize(), shape, strides))
}

/// First and one past the last byte that a strided array reaches; it has at least one element, which
/// starts at `start`.
pub(crate) fn reach(start: i128, itemsize: usize, shape: &[u64], strides: &[i64]) -> (i128, i128) {
    let (mut low, mut high) = (start, start + itemsize as i128);
    for (&extent, &stride) in shape.iter().zip(strides) {
        let reach = i128::from(extent - 1) * i128::from(stride);
        if reach < 0 {
            low = low.saturating_add(reach);
        } else {
            high = high.saturating_add(reach);
        }
    }
    (low, high)
}

/// Pieces tile a tensor if they lie inside it, do not overlap, and have as many elements together.
fn check_tiling(
    dtype: DType,
    shape: &[u64],
    elements: u64,
    pieces: &[Piece],
) -> Result<(), String> {
    if dtype.itemsize() == 0 {
        return Err("elements smaller than a byte cannot be divided into pieces".to_owned());
    }
    let mut total = 0u64;
    for (i, piece) in pieces.iter().enumerate() {
        if piece.tensor.dtype != dtype {
            return Err(format!("piece {i} is of type {}", piece.tensor.dtype));
        }
        if piece.offset.len() != shape.len() || piece.tensor.shape.len() != shape.len() {
            return Err(format!("piece {i} has another number of axes"));
        }
        let inside = shape.iter().zip(&piece.offset).zip(&piece.tensor.shape);
        if inside
            .clone()
            .any(|((whole, at), len)| at.checked_add(*len).is_none_or(|end| end > *whole))
        {
            return Err(format!("piece {i} reaches outside"));
        }
        total = total.saturating_add(piece.tensor.elements());
    }
    if total != elements {
        return Err(format!("its pieces hold {total} of {elements} elements"));
    }
    match overlapping(pieces, COMPARISONS) {
        Ok(None) => Ok(()),
        Ok(Some((i, j))) => Err(format!("pieces {i} and {j} overlap")),
        Err(TooEntangled) => Err("its pieces are too many and too entangled to compare".to_owned()),
    }
}

/// So many pairs of pieces are compared at most, which takes seconds. Pieces of a grid, such as shards are, come
/// nowhere near as long as they are fewer than half a million.
const COMPARISONS: usize = 1 << 30;

/// There are more pairs to compare than may be.
struct TooEntangled;

/// The first pair of pieces that share an element. Sorted along one axis, so that pieces that merely follow each
/// other there are never compared.
fn overlapping(pieces: &[Piece], most: usize) -> Result<Option<(usize, usize)>, TooEntangled> {
    let span = |i: usize, axis: usize| {
        let piece = &pieces[i];
        (
            piece.offset[axis],
            piece.offset[axis] + piece.tensor.shape[axis],
        )
    };
    let mut order: Vec<usize> = (0..pieces.len())
        .filter(|&i| pieces[i].tensor.elements() > 0)
        .collect();
    let axes = pieces.first().map_or(0, |piece| piece.offset.len());
    let starts = |axis: &usize| {
        let mut starts: Vec<u64> = order.iter().map(|&i| span(i, *axis).0).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    // Where they start at the most places, the fewest lie side by side.
    let Some(along) = (0..axes).max_by_key(starts) else {
        return Ok((order.len() > 1).then(|| (order[0], order[1])));
    };
    order.sort_by_key(|&i| span(i, along).0);
    let mut left = most;
    for (rank, &i) in order.iter().enumerate() {
        for &j in order[rank + 1..]
            .iter()
            .take_while(|&&j| span(j, along).0 < span(i, along).1)
        {
            left = left.checked_sub(1).ok_or(TooEntangled)?;
            let meet =
                |axis| span(i, axis).0 < span(j, axis).1 && span(j, axis).0 < span(i, axis).1;
            if (0..axes).all(meet) {
                return Ok(Some((i, j)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: [u64; 2], shape: [u64; 2]) -> Piece {
        let bytes = vec![0u8; (shape[0] * shape[1]) as usize];
        Piece {
            offset: offset.to_vec(),
            tensor: Tensor::from_vec(bytes, &shape).unwrap(),
        }
    }

    #[test]
    fn pieces_side_by_side_along_any_axis_are_not_compared() {
        let row: Vec<_> = (0..500).map(|at| piece([0, at], [4, 1])).collect();
        let column: Vec<_> = (0..500).map(|at| piece([at, 0], [1, 4])).collect();
        assert!(matches!(overlapping(&row, 0), Ok(None)));
        assert!(matches!(overlapping(&column, 0), Ok(None)));
        // Rows of ten: each is compared with those of its row.
        let grid: Vec<_> = (0..500).map(|i| piece([i / 10, i % 10], [1, 1])).collect();
        assert!(matches!(overlapping(&grid, 50 * 45), Ok(None)));
    }

    #[test]
    fn pieces_that_overlap_along_every_axis_are_compared_so_long_and_no_longer() {
        let crossing: Vec<_> = (0..100)
            .map(|at| piece([at, 99 - at], [100, 100]))
            .collect();
        assert!(matches!(overlapping(&crossing, 10), Ok(Some(_))));
        let pinwheel = [
            piece([0, 0], [3, 1]),
            piece([0, 1], [1, 3]),
            piece([1, 3], [3, 1]),
            piece([3, 0], [1, 3]),
            piece([1, 1], [2, 2]),
        ];
        assert!(matches!(overlapping(&pinwheel, 100), Ok(None)));
        assert!(overlapping(&pinwheel, 3).is_err());
    }

    #[test]
    fn elements_smaller_than_a_byte_come_in_one_piece() {
        let half = Data::Memory(Memory::whole(Arc::new(vec![0u8; 2])));
        let half = Tensor::new(DType::F4, &[4], half).unwrap();
        let piece = |at| Piece {
            offset: vec![at],
            tensor: half.clone(),
        };
        let pieces = Data::Pieces(vec![piece(0), piece(4)]);
        assert!(Tensor::new(DType::F4, &[8], pieces).is_err());
    }
}
