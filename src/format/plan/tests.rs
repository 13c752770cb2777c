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
