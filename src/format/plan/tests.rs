//! What is written, and what is linked.

use std::collections::BTreeMap;

use super::*;
use crate::format::{Manifest, Place, checksum};
use crate::state::{Node, Piece, Tensor};

fn state(tensors: &[(&str, Vec<u8>)]) -> State {
    let mut state = State::default();
    let mut entries = Vec::new();
    for (name, bytes) in tensors {
        let mut tensor = Tensor::from_vec(bytes.clone(), &[bytes.len() as u64]).unwrap();
        tensor.checksum = Some(checksum::of(bytes));
        entries.push((*name, state.push(tensor)));
    }
    state.root = Node::dict([("model", Node::dict(entries))]);
    state
}

fn manifest(plan: &Plan) -> Manifest {
    Manifest {
        step: 1,
        created: std::time::UNIX_EPOCH,
        writer: String::new(),
        metrics: BTreeMap::new(),
        metadata: Node::None,
        root: Node::None,
        files: plan
            .files
            .iter()
            .map(|f| (f.name.clone(), f.entry.clone()))
            .collect(),
        tensors: plan.tensors.clone(),
    }
}

fn written(plan: &Plan) -> Vec<&str> {
    let tensor_file =
        |f: &&PlannedFile| matches!(f.source, Source::Write { .. }) && f.entry.data_start.is_some();
    plan.files
        .iter()
        .filter(tensor_file)
        .map(|f| f.name.as_str())
        .collect()
}

fn start_of(plan: &Plan, tensor: usize) -> u64 {
    let (_, stretch) = plan.tensors[tensor].stretches().next().unwrap();
    stretch.start
}

const SMALL: PlanOptions = PlanOptions {
    shard_bytes: 100,
    split_bytes: 1,
    fragments: 4,
    links: 127,
};

#[test]
fn a_small_entry_is_one_file() {
    let plan = plan(
        &state(&[("a", vec![1; 10]), ("b", vec![2; 10])]),
        None,
        &PlanOptions::default(),
    );
    assert_eq!(written(&plan), ["model.safetensors"]);
    assert_eq!(start_of(&plan, 1), start_of(&plan, 0) + 10);
}

#[test]
fn large_entries_are_cut_into_shards_with_an_index() {
    let plan = plan(
        &state(&[("a", vec![1; 80]), ("b", vec![2; 80]), ("c", vec![3; 500])]),
        None,
        &SMALL,
    );
    let names: Vec<_> = plan.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json",
        ]
    );
}

#[test]
fn an_unchanged_file_is_linked() {
    let same = state(&[("a", vec![1; 10]), ("b", vec![2; 10])]);
    let first = manifest(&plan(&same, None, &SMALL));
    let second = plan(&same, Some(&first), &SMALL);
    assert!(written(&second).is_empty());
    assert_eq!(manifest(&second).tensors, first.tensors);
}

#[test]
fn unchanged_tensors_drift_into_a_file_of_their_own() {
    let step = |n: u8| state(&[("frozen", vec![1; 10]), ("trained", vec![n; 10])]);
    let first = manifest(&plan(&step(1), None, &SMALL));
    let second = plan(&step(2), Some(&first), &SMALL);
    assert_eq!(
        written(&second),
        [
            "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors"
        ]
    );
    let third = plan(&step(3), Some(&manifest(&second)), &SMALL);
    assert_eq!(written(&third), ["model-00002-of-00002.safetensors"]);
    let fourth = plan(&step(4), Some(&manifest(&third)), &SMALL);
    assert_eq!(written(&fourth), ["model-00002-of-00002.safetensors"]);
}

#[test]
fn a_tensor_that_moved_to_another_name_is_written() {
    let first = manifest(&plan(&state(&[("a", vec![1; 10])]), None, &SMALL));
    let second = plan(&state(&[("b", vec![1; 10])]), Some(&first), &SMALL);
    assert_eq!(written(&second), ["model.safetensors"]);
}

#[test]
fn many_small_fragments_are_packed_together() {
    let names: Vec<String> = (0..8).map(|i| format!("t{i}")).collect();
    let tensors: Vec<_> = names.iter().map(|n| (n.as_str(), vec![7; 90])).collect();
    let apart = manifest(&plan(&state(&tensors), None, &SMALL));
    assert_eq!(apart.files.len(), 9);
    let roomy = PlanOptions {
        shard_bytes: 1 << 20,
        ..SMALL
    };
    let packed = plan(&state(&tensors), Some(&apart), &roomy);
    assert_eq!(written(&packed), ["model.safetensors"]);
}

/// One tensor of six rows, in pieces of so many.
fn in_pieces(rows: &[u64], last: u8) -> State {
    let mut state = State::default();
    let mut at = 0;
    let mut piece = |&rows: &u64| {
        let fill = if at + rows == 6 { last } else { 1 };
        let values = vec![fill; rows as usize * 10];
        let mut tensor = Tensor::from_vec(values, &[rows, 10]).unwrap();
        tensor.checksum = tensor.bytes().map(checksum::of);
        at += rows;
        Piece {
            offset: vec![at - rows, 0],
            tensor,
        }
    };
    let pieces = Data::Pieces(rows.iter().map(&mut piece).collect());
    let leaf = state.push(Tensor::new(DType::U8, &[6, 10], pieces).unwrap());
    state.root = Node::dict([("model", Node::dict([("w", leaf)]))]);
    state
}

#[test]
fn pieces_that_did_not_change_are_linked() {
    let apart = PlanOptions {
        shard_bytes: 25,
        ..SMALL
    };
    let first = manifest(&plan(&in_pieces(&[2, 2, 2], 1), None, &apart));
    let same = plan(&in_pieces(&[2, 2, 2], 1), Some(&first), &apart);
    assert!(written(&same).is_empty());
    assert_eq!(same.tensors, first.tensors);
    let changed = plan(&in_pieces(&[2, 2, 2], 9), Some(&first), &apart);
    assert_eq!(written(&changed), ["model-00003-of-00003.safetensors"]);
    let divided = plan(&in_pieces(&[2, 1, 1, 2], 1), Some(&first), &apart);
    assert_eq!(
        written(&divided),
        [
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors"
        ]
    );
}

#[test]
fn a_piece_that_covers_all_is_the_tensor_itself() {
    let first = manifest(&plan(&in_pieces(&[6], 1), None, &SMALL));
    assert!(matches!(&first.tensors[0].place, Place::Whole(stretch) if stretch.name == "w.piece0"));
    let again = plan(&in_pieces(&[6], 1), Some(&first), &SMALL);
    assert!(written(&again).is_empty());
    let divided = plan(&in_pieces(&[3, 3], 1), Some(&first), &SMALL);
    assert_eq!(written(&divided), ["model.safetensors"]);
}

#[test]
fn what_is_written_together_lies_in_the_order_of_the_state() {
    // What had not changed came first.
    let step = |n: u8| state(&[("a", vec![n; 10]), ("b", vec![1; 10]), ("c", vec![n; 10])]);
    let options = PlanOptions::default();
    let first = manifest(&plan(&step(1), None, &options));
    let second = plan(&step(2), Some(&first), &options);
    let starts = [0, 1, 2].map(|tensor| start_of(&second, tensor));
    assert!(starts.is_sorted(), "{starts:?}");
}

#[test]
fn two_changed_tensors_of_a_hundred_are_all_that_is_written_from_the_third_save_on() {
    let names: Vec<String> = (0..100).map(|i| format!("t{i:03}")).collect();
    let step = |n: u8| {
        let fill = |i| if i == 30 || i == 70 { n } else { 0 };
        let tensor = |(i, name): (usize, &String)| (name.clone(), vec![fill(i); 1000]);
        let tensors: Vec<_> = names.iter().enumerate().map(tensor).collect();
        let tensors: Vec<_> = tensors
            .iter()
            .map(|(name, bytes)| (&**name, bytes.clone()))
            .collect();
        state(&tensors)
    };
    let options = PlanOptions {
        split_bytes: 10_000,
        ..PlanOptions::default()
    };
    let mut previous = manifest(&plan(&step(1), None, &options));
    for n in 2..6 {
        let next = plan(&step(n), Some(&previous), &options);
        let parts: Vec<_> = next
            .files
            .iter()
            .filter_map(|file| match &file.source {
                Source::Write { parts, .. } if file.entry.data_start.is_some() => {
                    Some(parts.clone())
                }
                _ => None,
            })
            .collect();
        let changed = vec![(30, None), (70, None)];
        assert_eq!(parts.last(), Some(&changed));
        assert_eq!(parts.len(), if n == 2 { 2 } else { 1 }, "save {n}");
        previous = manifest(&next);
    }
}

/// Saves what never changes so many times, each file linked at most `links` times in a row; for each save, the
/// sizes of the files that were written.
fn sizes_written(saves: usize, tensors: &[(&str, Vec<u8>)], links: u64) -> Vec<Vec<u64>> {
    let options = PlanOptions { links, ..SMALL };
    let mut previous = None;
    let save = |_| {
        let next = plan(&state(tensors), previous.as_ref(), &options);
        let is_written = |file: &&PlannedFile| matches!(file.source, Source::Write { .. });
        let tensor_files = next
            .files
            .iter()
            .filter(|file| file.entry.data_start.is_some());
        assert!(tensor_files.clone().all(|file| file.entry.links <= links));
        let written: Vec<_> = tensor_files
            .filter(is_written)
            .map(|file| file.entry.size)
            .collect();
        assert_eq!(next.expected(&options).len(), tensors.len());
        previous = Some(manifest(&next));
        written
    };
    (0..saves).map(save).collect()
}

#[test]
fn a_file_is_written_anew_after_it_was_linked_so_many_times() {
    let tensors = [("a", vec![1; 10])];
    let written = sizes_written(200, &tensors, 127);
    let saves: Vec<usize> = (0..200).filter(|&save| !written[save].is_empty()).collect();
    assert_eq!(saves, [0, 64, 128, 192]);
    // None is linked at all.
    assert!(
        sizes_written(5, &tensors, 0)
            .iter()
            .all(|written| written.len() == 1)
    );
}

#[test]
fn what_was_written_together_is_written_anew_bit_by_bit() {
    // Files of very different sizes, all of the same age. In SMALL, none holds two of them.
    let names: Vec<String> = (0..40).map(|i| format!("t{i}")).collect();
    let tensors: Vec<_> = names
        .iter()
        .zip(0..)
        .map(|(name, i)| (name.as_str(), vec![i; 90 + 100 * usize::from(i)]))
        .collect();
    let written = sizes_written(1000, &tensors, 31);
    let total: u64 = written[0].iter().sum();
    let (mut sum, mut most) = (0, 0);
    for sizes in &written[1..] {
        let all: u64 = sizes.iter().sum();
        let largest = sizes.iter().max().copied().unwrap_or(0);
        // No more than a fair share, which the last of them may exceed.
        assert!(all <= total / 14 + largest, "{all} of {total}");
        (sum, most) = (sum + all, most.max(all));
    }
    assert!(most < total / 5, "{most} of {total} at once");
    // Each about once in sixteen saves.
    assert!(
        (60..=63).contains(&(sum / total)),
        "{} times all",
        sum / total
    );
}

#[test]
fn what_is_to_be_written_anew_is_not_expected_to_be_there() {
    let state = state(&[("a", vec![1; 90]), ("b", vec![2; 90])]);
    let options = PlanOptions { links: 7, ..SMALL };
    let mut last = plan(&state, None, &options);
    assert_eq!(last.expected(&options), [None, None], "all is new");
    for _ in 0..3 {
        last = plan(&state, Some(&manifest(&last)), &options);
    }
    let expected: Vec<_> = last
        .expected(&options)
        .iter()
        .map(Option::is_some)
        .collect();
    assert_eq!(expected, [false, true]);
    let next = plan(&state, Some(&manifest(&last)), &options);
    assert_eq!(written(&next), ["model-00002-of-00002.safetensors"]);
    let (_, first) = next.tensors[0].stretches().next().unwrap();
    assert_eq!(&*first.file, "model-00002-of-00002.safetensors");
}

#[test]
fn writing_anew_costs_less_than_the_two_percent_that_change() {
    let names: Vec<String> = (0..100).map(|i| format!("t{i:03}")).collect();
    let options = PlanOptions {
        split_bytes: 10_000,
        ..PlanOptions::default()
    };
    let mut previous: Option<Manifest> = None;
    let mut written = Vec::new();
    for save in 0..258u16 {
        let fill = |i| if i < 2 { save as u8 } else { 7 };
        let tensors: Vec<_> = names
            .iter()
            .enumerate()
            .map(|(i, name)| (name.as_str(), vec![fill(i); 1000]))
            .collect();
        let next = plan(&state(&tensors), previous.as_ref(), &options);
        let bytes = |file: &PlannedFile| match (&file.source, file.entry.data_start) {
            (Source::Write { .. }, Some(start)) => file.entry.size - start,
            _ => 0,
        };
        written.push(next.files.iter().map(bytes).sum::<u64>());
        previous = Some(manifest(&next));
    }
    // The first writes everything, and so does the second, which finds out what does not change.
    let later: u64 = written[2..].iter().sum();
    assert!(
        later <= 256 * 4000,
        "{} of 100000 bytes a save",
        later / 256
    );
}

#[test]
fn a_file_written_anew_holds_what_it_held() {
    let tensors = [("a", vec![1; 45]), ("b", vec![2; 45]), ("c", vec![3; 90])];
    let options = PlanOptions { links: 1, ..SMALL };
    let first = manifest(&plan(&state(&tensors), None, &options));
    let again = manifest(&plan(&state(&tensors), Some(&first), &options));
    let sizes = |manifest: &Manifest| {
        let mut sizes: Vec<u64> = manifest.files.values().map(|file| file.size).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&first), sizes(&again));
}
