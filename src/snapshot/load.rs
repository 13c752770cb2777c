use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thiserror::Error;

use super::transfer::{self, Crew, Digest};
use super::{Layout, Watch, read};
use crate::state::{Data, Memory, Piece, Tensor};

/// Why a stored tensor was not given back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Its bytes are not those that were written.
    #[error("tensor {tensor:?} in {file} is damaged: its bytes are not those that were written", file = .file.as_deref().unwrap_or("memory"))]
    Damaged {
        /// Name of the tensor.
        tensor: String,
        /// File it lies in, if known.
        file: Option<String>,
    },
    /// Its bytes cannot be read.
    #[error("tensor {tensor:?} cannot be read: {source}")]
    Io {
        /// Name of the tensor.
        tensor: String,
        /// What the system reported.
        source: io::Error,
    },
}

/// A tensor and the memory that its stored form (C order, little-endian) goes to: as many bytes as it has.
pub struct Target<'a> {
    /// What to read.
    pub tensor: &'a Tensor,
    /// Where to.
    pub into: &'a mut [u8],
}

/// Reads the tensors into memory of their own and compares their checksums.
///
/// # Errors
///
/// The first of them, in order, that is damaged or cannot be read.
pub fn load(tensors: &[Tensor]) -> Result<Vec<Tensor>, ReadError> {
    let mut buffers: Vec<Vec<u8>> = tensors
        .iter()
        .map(|t| vec![0; t.nbytes() as usize])
        .collect();
    let targets = tensors
        .iter()
        .zip(&mut buffers)
        .map(|(tensor, into)| Target { tensor, into })
        .collect();
    load_into(targets, &AtomicBool::new(false))?;
    let loaded = tensors.iter().zip(buffers).map(|(tensor, bytes)| Tensor {
        data: Data::Memory(Memory::whole(Arc::new(bytes))),
        ..tensor.clone()
    });
    Ok(loaded.collect())
}

/// Reads each tensor into the memory given for it and compares its checksum. On an error the memory of any
/// of the targets may have been written to. Setting `stop` ends it early, with an `Interrupted` error.
///
/// # Errors
///
/// The first of them, in order, that is damaged or cannot be read.
///
/// # Panics
///
/// If a target is not as many bytes long as its tensor.
pub fn load_into(targets: Vec<Target<'_>>, stop: &AtomicBool) -> Result<(), ReadError> {
    let mut jobs = Vec::with_capacity(targets.len());
    let mut in_pieces = Vec::new();
    for Target { tensor, into } in targets {
        assert_eq!(
            into.len() as u64,
            tensor.nbytes(),
            "the target is as long as the tensor"
        );
        match &tensor.data {
            Data::Pieces(pieces) => in_pieces.push((tensor, pieces, into)),
            _ => jobs.push((tensor, Some(into))),
        }
    }
    compare(jobs, stop)?;
    in_pieces
        .into_iter()
        .try_for_each(|(tensor, pieces, into)| assemble(tensor, pieces, into, stop))
}

/// Reads the tensors without keeping them and compares their checksums; those without one are not read.
///
/// # Errors
///
/// The first of them, in order, that is damaged or cannot be read.
pub fn verify(tensors: &[Tensor]) -> Result<(), ReadError> {
    let parts = tensors.iter().flat_map(Tensor::parts);
    let known = parts.filter(|tensor| tensor.checksum.is_some());
    compare(
        known.map(|tensor| (tensor, None)).collect(),
        &AtomicBool::new(false),
    )
}

/// As [`verify`], but goes on after an error: all that are damaged or cannot be read, in order. Those that are
/// in memory are not looked at. Once `watch` ends it, each that was not read says `Interrupted`.
pub fn verify_all(tensors: &[Tensor], watch: Watch<'_>) -> Vec<ReadError> {
    let parts = tensors.iter().flat_map(Tensor::parts);
    let known = parts.filter(|tensor| tensor.checksum.is_some());
    let jobs = known.filter_map(|tensor| match &tensor.data {
        Data::Stored(stored) => Some(read::Job {
            tensor,
            stored,
            into: None,
        }),
        _ => None,
    });
    let mut failures: Vec<_> = read::run_all(jobs.collect(), watch).into_iter().collect();
    failures.sort_by_key(|(job, _)| *job);
    failures.into_iter().map(|(_, error)| error).collect()
}

/// Reads what is stored, copies what is in memory, and compares both.
fn compare(targets: Vec<(&Tensor, Option<&mut [u8]>)>, stop: &AtomicBool) -> Result<(), ReadError> {
    let (mut stored_jobs, mut others) = (Vec::new(), Vec::new());
    for (tensor, into) in targets {
        match &tensor.data {
            Data::Stored(stored) => stored_jobs.push(read::Job {
                tensor,
                stored,
                into,
            }),
            _ => others.push(transfer::Job {
                tensor,
                len: tensor.nbytes() as usize,
                into,
                digest: match tensor.checksum {
                    Some(_) => Digest::Yes,
                    None => Digest::No,
                },
            }),
        }
    }
    read::run(stored_jobs, stop)?;
    let tensors: Vec<&Tensor> = others.iter().map(|job| job.tensor).collect();
    for (tensor, result) in tensors.into_iter().zip(transfer::run(others, Crew::Full)) {
        let name = || tensor.name.clone();
        let checksum = result.map_err(|source| ReadError::Io {
            tensor: name(),
            source,
        })?;
        if tensor.checksum != checksum {
            return Err(ReadError::Damaged {
                tensor: name(),
                file: None,
            });
        }
    }
    Ok(())
}

/// Puts the pieces of a tensor where they belong in it.
fn assemble(
    tensor: &Tensor,
    pieces: &[Piece],
    into: &mut [u8],
    stop: &AtomicBool,
) -> Result<(), ReadError> {
    if into.is_empty() {
        // Then the other extents may be any, and their product too.
        return Ok(());
    }
    let mut stride = tensor.dtype.itemsize() as i64;
    let mut strides = vec![0; tensor.shape.len()];
    for (axis, &extent) in tensor.shape.iter().enumerate().rev() {
        strides[axis] = stride;
        stride *= extent as i64;
    }
    for piece in pieces.iter().filter(|piece| piece.tensor.nbytes() > 0) {
        let mut stored = vec![0; piece.tensor.nbytes() as usize];
        compare(vec![(&piece.tensor, Some(&mut stored))], stop)?;
        let offset: i64 = piece
            .offset
            .iter()
            .zip(&strides)
            .map(|(&at, &stride)| at as i64 * stride)
            .sum();
        Layout::new(
            tensor.dtype,
            &piece.tensor.shape,
            Some(&strides),
            offset as usize,
            false,
        )
        .scatter(&mut stored, into);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum;
    use crate::state::{DType, ReadAt, Stored};

    struct Bytes(Vec<u8>);

    impl ReadAt for Bytes {
        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
            let offset = offset as usize;
            let from = self
                .0
                .get(offset..offset + into.len())
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            into.copy_from_slice(from);
            Ok(())
        }

        fn name(&self) -> &'static str {
            "a file"
        }
    }

    fn stored(bytes: &[u8], shape: &[u64]) -> Tensor {
        let mut file = vec![9; 5];
        file.extend(bytes);
        let data = Data::Stored(Stored {
            source: Arc::new(Bytes(file)),
            offset: 5,
        });
        Tensor {
            checksum: Some(checksum::of(bytes)),
            ..Tensor::new(DType::U8, shape, data).unwrap()
        }
    }

    #[test]
    fn what_was_stored_is_loaded() {
        let bytes: Vec<u8> = (0..10_000_000u32).map(|i| (i % 253) as u8).collect();
        let loaded = load(&[stored(&bytes, &[10_000_000])]).unwrap();
        assert_eq!(loaded[0].bytes(), Some(&bytes[..]));
    }

    #[test]
    fn damage_and_truncation_are_named() {
        let mut tensor = stored(&[1, 2, 3], &[3]);
        tensor.name = "model.w".into();
        tensor.checksum = Some(checksum::of(&[1, 2, 4]));
        assert!(
            verify(std::slice::from_ref(&tensor))
                .unwrap_err()
                .to_string()
                .contains("model.w")
        );
        let mut long = stored(&[1, 2, 3], &[3]);
        long.shape = vec![4];
        assert!(matches!(load(&[long]), Err(ReadError::Io { .. })));
    }

    #[test]
    fn pieces_come_together() {
        let piece = |offset: [u64; 2], shape: [u64; 2], bytes: &[u8]| Piece {
            offset: offset.to_vec(),
            tensor: stored(bytes, &shape),
        };
        let pieces = vec![
            piece([0, 0], [2, 1], &[1, 3]),
            piece([0, 1], [1, 1], &[2]),
            piece([1, 1], [1, 1], &[4]),
        ];
        let tensor = Tensor::new(DType::U8, &[2, 2], Data::Pieces(pieces)).unwrap();
        assert_eq!(load(&[tensor]).unwrap()[0].bytes(), Some(&[1, 2, 3, 4][..]));
    }

    #[test]
    fn pieces_that_do_not_tile_are_refused() {
        let piece = |at: u64| Piece {
            offset: vec![at],
            tensor: stored(&[1, 2], &[2]),
        };
        for offsets in [vec![0], vec![0, 1], vec![0, 3], vec![0, 0]] {
            let pieces = offsets.iter().map(|&at| piece(at)).collect();
            assert!(
                Tensor::new(DType::U8, &[4], Data::Pieces(pieces)).is_err(),
                "{offsets:?}"
            );
        }
    }
}
