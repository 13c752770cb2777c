use std::io;
use std::sync::Arc;

use super::arena::{Arena, Lease};
use super::transfer::{self, Job};
use crate::state::{Data, Memory, Region, State, Tensor};

/// Tensors start at multiples of this many bytes in the arena: a cache line.
const ALIGNMENT: usize = 64;

/// Copies every tensor of the state into the arena, with its checksum, so that the caller may change the
/// originals at once. Blocks until the copy is done; runs on several threads.
///
/// Tensors in memory that nobody can change and that lie as they are stored are borrowed, not copied.
/// Tensors in a file are read and their checksums, if known, compared.
///
/// # Errors
///
/// If there is no memory for the arena, or a stored tensor cannot be read or is damaged.
pub fn capture(mut state: State, arena: &Arena) -> io::Result<State> {
    let tensors = leaves_mut(&mut state.tensors);
    let (copied, lengths): (Vec<&mut Tensor>, Vec<usize>) = tensors
        .into_iter()
        .filter(|tensor| !can_borrow(tensor))
        .map(|tensor| {
            let len = tensor.nbytes() as usize;
            (tensor, len)
        })
        .unzip();
    let room: usize = lengths
        .iter()
        .map(|len| len.next_multiple_of(ALIGNMENT))
        .sum();
    let mut lease = arena.lease(room)?;
    let mut rest = lease.bytes_mut();
    let mut jobs = Vec::with_capacity(copied.len());
    for (tensor, &len) in copied.iter().zip(&lengths) {
        let (into, after) = rest.split_at_mut(len.next_multiple_of(ALIGNMENT));
        rest = after;
        jobs.push(Job {
            tensor,
            into: Some(&mut into[..len]),
        });
    }
    let checksums = transfer::run(jobs);
    let lease: Arc<Lease> = Arc::new(lease);
    let mut offset = 0;
    for ((tensor, len), checksum) in copied.into_iter().zip(lengths).zip(checksums) {
        let checksum = checksum?;
        if tensor.checksum.is_some_and(|known| known != checksum) {
            let why = format!("{}: the bytes are not those that were written", tensor.name);
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        tensor.checksum = Some(checksum);
        let region: Arc<dyn Region> = lease.clone();
        tensor.data = Data::Memory(Memory {
            offset,
            ..Memory::whole(region)
        });
        offset += len.next_multiple_of(ALIGNMENT);
    }
    Ok(state)
}

/// Bytes of the arena that [`capture`] would take for this state.
pub fn bytes_to_copy(state: &State) -> u64 {
    let leaves = state.tensors.iter().flat_map(|tensor| match &tensor.data {
        Data::Pieces(pieces) => pieces.iter().map(|piece| &piece.tensor).collect(),
        _ => vec![tensor],
    });
    leaves
        .filter(|tensor| !can_borrow(tensor))
        .map(|tensor| tensor.nbytes().next_multiple_of(ALIGNMENT as u64))
        .sum()
}

/// Declares that nobody changes the memory of the state until it is saved, so that [`capture`] borrows all of
/// it that lies as it is stored.
#[must_use]
pub fn hold_still(mut state: State) -> State {
    for tensor in leaves_mut(&mut state.tensors) {
        if let Data::Memory(memory) = &mut tensor.data {
            memory.immutable = true;
        }
    }
    state
}

/// Computes the checksums that are still missing, without copying.
///
/// # Errors
///
/// If a stored tensor cannot be read.
pub fn fill_checksums(state: &mut State) -> io::Result<()> {
    let missing: Vec<&mut Tensor> = leaves_mut(&mut state.tensors)
        .into_iter()
        .filter(|tensor| tensor.checksum.is_none())
        .collect();
    let checksums = transfer::run(
        missing
            .iter()
            .map(|tensor| Job { tensor, into: None })
            .collect(),
    );
    for (tensor, checksum) in missing.into_iter().zip(checksums) {
        tensor.checksum = Some(checksum?);
    }
    Ok(())
}

fn can_borrow(tensor: &Tensor) -> bool {
    matches!(&tensor.data, Data::Memory(memory) if memory.immutable) && tensor.bytes().is_some()
}

/// The tensors themselves, or their pieces where they are in pieces.
fn leaves_mut(tensors: &mut [Tensor]) -> Vec<&mut Tensor> {
    let mut leaves = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        if matches!(tensor.data, Data::Pieces(_)) {
            if let Data::Pieces(pieces) = &mut tensor.data {
                leaves.extend(pieces.iter_mut().map(|piece| &mut piece.tensor));
            }
        } else {
            leaves.push(tensor);
        }
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum;
    use crate::state::{DType, Node, Piece};

    /// As memory is that belongs to somebody else.
    fn make_changeable(tensor: &mut Tensor) {
        if let Data::Memory(memory) = &mut tensor.data {
            memory.immutable = false;
        }
    }

    #[test]
    fn a_capture_has_the_bytes_and_checksums_of_the_originals() {
        let mut state = State::default();
        let large: Vec<u32> = (0..3_000_000).collect();
        let large = state.push(Tensor::from_vec(large, &[3_000_000]).unwrap());
        let small = state.push(Tensor::from_vec(vec![1u8, 2, 3], &[3]).unwrap());
        let empty = state.push(Tensor::from_vec(Vec::<f32>::new(), &[0, 7]).unwrap());
        state.root = Node::List(vec![large, small, empty]);
        state.tensors.iter_mut().for_each(make_changeable);
        let originals = state.tensors.clone();
        let captured = capture(state, &Arena::default()).unwrap();
        for (copy, original) in captured.tensors.iter().zip(&originals) {
            assert_eq!(copy.bytes(), original.bytes());
            assert_ne!(
                copy.bytes().unwrap().as_ptr(),
                original.bytes().unwrap().as_ptr()
            );
            assert_eq!(copy.checksum, Some(checksum::of(original.bytes().unwrap())));
        }
    }

    #[test]
    fn what_nobody_can_change_is_borrowed() {
        let mut state = State::default();
        let memory = Memory::whole(Arc::new(vec![7u8; 10]));
        state.push(Tensor::new(DType::U8, &[10], Data::Memory(memory)).unwrap());
        let address = state.tensors[0].bytes().unwrap().as_ptr();
        let mut captured = capture(state, &Arena::default()).unwrap();
        assert_eq!(captured.tensors[0].bytes().unwrap().as_ptr(), address);
        assert_eq!(captured.tensors[0].checksum, None);
        fill_checksums(&mut captured).unwrap();
        assert_eq!(captured.tensors[0].checksum, Some(checksum::of(&[7; 10])));
    }

    #[test]
    fn pieces_are_captured_one_by_one() {
        let piece = |at: u64| {
            let mut tensor = Tensor::from_vec(vec![at as u8], &[1]).unwrap();
            make_changeable(&mut tensor);
            Piece {
                offset: vec![at],
                tensor,
            }
        };
        let whole = Tensor::new(DType::U8, &[2], Data::Pieces(vec![piece(0), piece(1)])).unwrap();
        let mut state = State::default();
        state.push(whole);
        let captured = capture(state, &Arena::default()).unwrap();
        let Data::Pieces(pieces) = &captured.tensors[0].data else {
            panic!("no longer in pieces")
        };
        assert_eq!(pieces[1].tensor.bytes(), Some(&[1u8][..]));
        assert!(pieces[1].tensor.checksum.is_some());
    }
}
