use std::io;
use std::ops::Range;

use super::{ReadError, read_at};
use crate::format::checksum::Running;
use crate::state::{Checksum, DType, Data, Tensor};

/// Reads the stored form of a tensor (C order, little-endian), piece by piece from its first byte to its last,
/// and compares checksums on the way. It takes no memory of its own to speak of, however large the tensor is.
///
/// What it has given counts once it has come to the end without an error.
///
/// # Example
///
/// ```
/// use pitstop::Tensor;
/// use pitstop::snapshot::TensorReader;
///
/// let tensor = Tensor::from_vec(vec![1u8, 2, 3], &[3])?;
/// let (mut reader, mut window) = (TensorReader::new(&tensor)?, [0; 2]);
/// assert_eq!(reader.read(&mut window)?, [1, 2]);
/// assert_eq!(reader.read(&mut window)?, [3]);
/// assert!(reader.read(&mut window)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TensorReader<'a> {
    tensor: &'a Tensor,
    parts: Vec<Part<'a>>,
    /// Bytes read so far.
    at: u64,
    bounce: Vec<u8>,
}

/// One part of the tensor, which is read in its own order as the whole is read in its.
struct Part<'a> {
    tensor: &'a Tensor,
    runs: Runs,
    /// The first run of which not all is read.
    next: u64,
    comparison: Option<(Checksum, Running)>,
}

impl<'a> TensorReader<'a> {
    /// At the first byte of `tensor`.
    ///
    /// # Errors
    ///
    /// If it is in pieces that do not begin and end at whole bytes of it.
    pub fn new(tensor: &'a Tensor) -> Result<TensorReader<'a>, ReadError> {
        let part = |tensor: &'a Tensor, runs| Part {
            tensor,
            runs,
            next: 0,
            comparison: tensor
                .checksum
                .map(|known| (known, Running::new(tensor.nbytes()))),
        };
        let parts = match &tensor.data {
            Data::Pieces(pieces) => pieces
                .iter()
                .map(|piece| {
                    let runs = Runs::of_piece(tensor, &piece.offset, &piece.tensor.shape)?;
                    Some(part(&piece.tensor, runs))
                })
                .collect::<Option<_>>()
                .ok_or_else(|| unreadable(tensor, io::ErrorKind::Unsupported.into()))?,
            _ => vec![part(tensor, Runs::whole(tensor))],
        };
        Ok(TensorReader {
            tensor,
            parts,
            at: 0,
            bounce: Vec::new(),
        })
    }

    /// The next bytes: as many as `window` takes, or as there are left; none at the end.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if it cannot be read, or, with the last bytes, if it is damaged.
    pub fn read<'w>(&mut self, window: &'w mut [u8]) -> Result<&'w [u8], ReadError> {
        let left = self.tensor.nbytes() - self.at;
        let len = left.min(window.len() as u64) as usize;
        let window = &mut window[..len];
        for part in &mut self.parts {
            part.read(self.at, window, &mut self.bounce)
                .map_err(|source| unreadable(self.tensor, source))?;
        }
        self.at += len as u64;
        if self.at == self.tensor.nbytes() {
            self.parts
                .iter_mut()
                .try_for_each(|part| part.compare(self.tensor))?;
        }
        Ok(window)
    }
}

fn unreadable(tensor: &Tensor, source: io::Error) -> ReadError {
    ReadError::Io {
        tensor: tensor.name.clone(),
        source,
    }
}

impl Part<'_> {
    /// Reads what of it lies in the window, which starts at byte `at` of the whole.
    fn read(&mut self, at: u64, window: &mut [u8], bounce: &mut Vec<u8>) -> io::Result<()> {
        let end = at + window.len() as u64;
        let mut first = None;
        let mut stretches: Vec<Range<usize>> = Vec::new();
        while self.next < self.runs.count {
            let start = self.runs.start(self.next);
            let stop = (start + self.runs.len).min(end);
            let from = start.max(at);
            if from >= stop {
                break;
            }
            first.get_or_insert(self.next * self.runs.len + (from - start));
            stretches.push((from - at) as usize..(stop - at) as usize);
            if stop < start + self.runs.len {
                break;
            }
            self.next += 1;
        }
        let Some(first) = first else { return Ok(()) };
        let bytes = match stretches.as_slice() {
            [only] => {
                read_at(self.tensor, first, &mut window[only.clone()])?;
                &window[only.clone()]
            }
            several => {
                bounce.resize(several.iter().map(Range::len).sum(), 0);
                read_at(self.tensor, first, bounce)?;
                let mut rest = bounce.as_slice();
                for stretch in several {
                    let (bytes, others) = rest.split_at(stretch.len());
                    window[stretch.clone()].copy_from_slice(bytes);
                    rest = others;
                }
                bounce
            }
        };
        if let Some((_, running)) = &mut self.comparison {
            running.update(bytes);
        }
        Ok(())
    }

    /// Compares its checksum, once.
    fn compare(&mut self, whole: &Tensor) -> Result<(), ReadError> {
        let Some((known, running)) = self.comparison.take() else {
            return Ok(());
        };
        if running.finish() == known {
            return Ok(());
        }
        let file = match &self.tensor.data {
            Data::Stored(stored) => Some(stored.source.name().to_owned()),
            _ => None,
        };
        Err(ReadError::Damaged {
            tensor: whole.name.clone(),
            file,
        })
    }
}

/// Where the bytes of a part lie in the whole: in runs of one length, which are in the same order in both.
struct Runs {
    /// Bytes of a run.
    len: u64,
    count: u64,
    /// Where the first starts.
    start: u64,
    /// The axes along which runs follow each other, the first outermost: extent in the part, and distance in
    /// bytes in the whole.
    axes: Vec<(u64, u64)>,
}

impl Runs {
    fn whole(tensor: &Tensor) -> Runs {
        Runs {
            len: tensor.nbytes(),
            count: u64::from(tensor.nbytes() > 0),
            start: 0,
            axes: Vec::new(),
        }
    }

    /// `None` if a run would not begin and end at whole bytes.
    fn of_piece(whole: &Tensor, offset: &[u64], shape: &[u64]) -> Option<Runs> {
        if shape.contains(&0) || whole.nbytes() == 0 {
            return Some(Runs {
                count: 0,
                ..Runs::whole(whole)
            });
        }
        let bytes = |elements: u64| DType::nbytes(whole.dtype, elements);
        let (mut len, mut start, mut stride) = (1, 0, 1);
        let mut axes = Vec::new();
        // As long as an axis is there in full, runs that follow each other along the next one are one run.
        let mut joined = true;
        for (axis, &extent) in whole.shape.iter().enumerate().rev() {
            if joined {
                len *= shape[axis];
            } else {
                axes.push((shape[axis], bytes(stride)?));
            }
            joined &= shape[axis] == extent;
            start += offset[axis] * stride;
            stride *= extent;
        }
        axes.reverse();
        Some(Runs {
            len: bytes(len)?,
            count: axes.iter().map(|(extent, _)| extent).product(),
            start: bytes(start)?,
            axes,
        })
    }

    /// Where a run starts, in bytes.
    fn start(&self, run: u64) -> u64 {
        let mut rest = run;
        let along = |&(extent, distance): &(u64, u64)| {
            let index = rest % extent;
            rest /= extent;
            index * distance
        };
        self.start + self.axes.iter().rev().map(along).sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum;
    use crate::snapshot::load;
    use crate::state::Piece;

    fn piece(offset: &[u64], shape: &[u64]) -> Piece {
        let count = shape.iter().product::<u64>() as u16;
        let seed = offset.iter().fold(1, |seed, at| seed * 31 + *at as u16);
        let values = (0..count).map(|i| i.wrapping_mul(257).wrapping_add(seed));
        let mut tensor = Tensor::from_vec(values.collect(), shape).unwrap();
        tensor.checksum = tensor.bytes().map(checksum::of);
        Piece {
            offset: offset.to_vec(),
            tensor,
        }
    }

    fn of_pieces(shape: &[u64], pieces: Vec<Piece>) -> Tensor {
        Tensor::new(DType::U16, shape, Data::Pieces(pieces)).unwrap()
    }

    fn read(tensor: &Tensor, window: usize) -> Result<Vec<u8>, ReadError> {
        let (mut reader, mut all) = (TensorReader::new(tensor)?, Vec::new());
        let mut window = vec![0; window];
        loop {
            match reader.read(&mut window)? {
                [] => return Ok(all),
                bytes => all.extend_from_slice(bytes),
            }
        }
    }

    #[test]
    fn pieces_come_in_the_order_of_the_whole_however_it_is_cut() {
        let cases = [
            of_pieces(
                &[4, 6],
                vec![piece(&[0, 0], &[2, 6]), piece(&[2, 0], &[2, 6])],
            ),
            of_pieces(
                &[4, 6],
                vec![piece(&[0, 4], &[4, 2]), piece(&[0, 0], &[4, 4])],
            ),
            of_pieces(
                &[4, 6],
                vec![
                    piece(&[0, 0], &[4, 4]),
                    piece(&[0, 4], &[2, 2]),
                    piece(&[2, 4], &[2, 2]),
                    piece(&[0, 0], &[0, 6]),
                ],
            ),
            of_pieces(
                &[3, 4, 5],
                vec![piece(&[0, 0, 0], &[3, 2, 5]), piece(&[0, 2, 0], &[3, 2, 5])],
            ),
            of_pieces(&[0, 4], vec![piece(&[0, 0], &[0, 4])]),
            of_pieces(&[], vec![piece(&[], &[])]),
        ];
        for tensor in cases {
            let loaded = load(std::slice::from_ref(&tensor)).unwrap().remove(0);
            for window in [1, 2, 3, 7, 16, 1000] {
                let read = read(&tensor, window).unwrap();
                assert_eq!(
                    read,
                    loaded.bytes().unwrap(),
                    "{:?} by {window}",
                    tensor.shape
                );
            }
        }
    }

    #[test]
    fn damage_of_any_piece_shows_at_the_end_and_not_later() {
        for damaged in [0, 1] {
            let mut pieces = vec![piece(&[0, 4], &[4, 2]), piece(&[0, 0], &[4, 4])];
            pieces[damaged].tensor.checksum = Some(Checksum(1));
            let tensor = of_pieces(&[4, 6], pieces);
            let mut reader = TensorReader::new(&tensor).unwrap();
            let mut window = [0; 24];
            assert_eq!(reader.read(&mut window).unwrap().len(), 24);
            let error = reader.read(&mut window).unwrap_err();
            assert!(matches!(error, ReadError::Damaged { .. }), "{error}");
        }
    }

    #[test]
    fn an_empty_tensor_is_compared_too() {
        let mut tensor = Tensor::from_vec(Vec::<u8>::new(), &[0]).unwrap();
        tensor.checksum = Some(Checksum(1));
        assert!(read(&tensor, 8).is_err());
    }
}
