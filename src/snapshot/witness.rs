//! Memory that others may write to while it is saved.

use super::transfer::{self, Crew, Digest, Job};
use crate::state::{Data, Tensor};

/// The first of `tensors`, not in pieces, that lies in memory and no longer holds what its checksum says.
pub fn first_changed(tensors: &[&Tensor]) -> Option<usize> {
    let (places, jobs): (Vec<usize>, Vec<Job<'_>>) = tensors
        .iter()
        .enumerate()
        .filter(|(_, tensor)| matches!(tensor.data, Data::Memory(_)) && tensor.checksum.is_some())
        .map(|(place, &tensor)| {
            let job = Job {
                tensor,
                len: tensor.nbytes() as usize,
                into: None,
                digest: Digest::Yes,
            };
            (place, job)
        })
        .unzip();
    let found = transfer::run(jobs, Crew::Full);
    places.into_iter().zip(found).find_map(|(place, found)| {
        let same = found.is_ok_and(|checksum| checksum == tensors[place].checksum);
        (!same).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::fill_checksums;
    use crate::state::{Checksum, State};

    #[test]
    fn the_first_that_is_not_as_noted_is_named() {
        let tensors = [1u8, 2, 3].map(|value| Tensor::from_vec(vec![value; 9], &[9]).unwrap());
        let mut state = State {
            tensors: tensors.into(),
            ..State::default()
        };
        let changed = |state: &State| first_changed(&state.tensors.iter().collect::<Vec<_>>());
        assert_eq!(changed(&state), None, "nothing is noted");
        fill_checksums(&mut state).unwrap();
        assert_eq!(changed(&state), None);
        for tensor in &mut state.tensors[1..] {
            tensor.checksum = Some(Checksum(0));
        }
        assert_eq!(changed(&state), Some(1));
    }
}
