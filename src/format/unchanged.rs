//! What version 1 writes stays the same, byte for byte.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use super::{Manifest, PlanOptions, Source, checksum, plan};
use crate::state::{DType, Data, Node, Piece, State, Tensor, TensorRef, View};

fn tensor<T: crate::state::Element>(values: Vec<T>, shape: &[u64]) -> Tensor {
    let mut tensor = Tensor::from_vec(values, shape).unwrap();
    tensor.checksum = tensor.bytes().map(checksum::of);
    tensor
}

/// Every kind of node, every way to store a tensor, names that collide.
fn state(changed: u8) -> State {
    let mut state = State::default();
    let leaf = |node: &Node, kind: &'static str, view: Option<View>| match node {
        Node::Tensor(leaf) => Node::Tensor(TensorRef {
            kind: kind.into(),
            view,
            ..leaf.clone()
        }),
        other => other.clone(),
    };
    let bytes = state.push(tensor(vec![1u8; 100], &[100]));
    let wide = state.push(tensor(vec![1.5f64, -2.5], &[2, 1]));
    let trained = state.push(tensor(vec![changed; 50], &[5, 10]));
    let scalar = state.push(tensor(vec![7i16], &[]));
    let empty = state.push(tensor(Vec::<f32>::new(), &[0, 3]));
    let piece = |at: u64, rows: u64| Piece {
        offset: vec![at, 0],
        tensor: tensor(vec![at as f32; rows as usize * 2], &[rows, 2]),
    };
    let pieces = Data::Pieces(vec![piece(0, 1), piece(1, 2)]);
    let pieces = state.push(Tensor::new(DType::F32, &[3, 2], pieces).unwrap());
    let loose = state.push(tensor(vec![9u32; 3], &[3]));
    let window = View {
        dtype: DType::U8,
        shape: vec![2, 3],
        strides: vec![-10, 1],
        offset: 40,
    };
    let model = Node::Dict(vec![
        ("a.b".into(), leaf(&bytes, "numpy:|u1", None)),
        ("a".into(), Node::dict([("b", wide.clone())])),
        (
            "quote\" \\ \u{7} é \u{1F600}\u{2028}".into(),
            leaf(&trained, "torch", Some(window)),
        ),
        ("list".into(), Node::List(vec![scalar, Node::None, empty])),
        ("w.piece1".into(), loose.clone()),
        ("w".into(), pieces),
    ]);
    let plain = Node::Dict(vec![
        (Node::Int(-3), Node::Bool(true)),
        (Node::Tuple(vec![1.into(), "x".into()]), Node::Float(1e-8)),
        (Node::None, Node::Float(f64::NEG_INFINITY)),
        ("big".into(), Node::BigInt("-0x1ffffffffffffffff".into())),
        ("complex".into(), Node::Complex(-0.0, f64::NAN)),
        ("bytes".into(), Node::Bytes(vec![0, 255, 7])),
        ("set".into(), Node::Set(vec![Node::Float(1.0)])),
        (
            "tag".into(),
            Node::tagged("frozenset", Node::Set(Vec::new())),
        ),
        ("empty".into(), Node::dict::<&str>([])),
    ]);
    state.root = Node::dict([
        ("model", model),
        ("Model", Node::List(vec![leaf(&wide, "jax", None)])),
        ("loose", loose),
        ("plain", plain),
    ]);
    state
}

fn manifest(state: &State, previous: Option<&Manifest>) -> (Manifest, Vec<u8>) {
    let options = PlanOptions {
        shard_bytes: 150,
        split_bytes: 1,
        fragments: 4,
        links: 127,
    };
    let plan = plan(state, previous, &options);
    let mut written = Vec::new();
    for file in &plan.files {
        written.extend(file.name.bytes());
        match &file.source {
            Source::Write { head, parts } => {
                written.extend(head);
                written.extend(format!("{parts:?}").bytes());
            }
            Source::Link { previous } => written.extend(previous.bytes()),
        }
    }
    let manifest = Manifest {
        step: 12,
        created: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        writer: "pitstop".into(),
        metrics: BTreeMap::from([("loss".into(), 0.1), ("worst".into(), f64::INFINITY)]),
        metadata: Node::dict([("note", Node::from("hello"))]),
        root: state.root.clone(),
        files: plan
            .files
            .into_iter()
            .map(|file| (file.name, file.entry))
            .collect(),
        tensors: plan.tensors,
    };
    (manifest, written)
}

#[test]
fn the_same_state_gives_the_same_bytes_as_ever() {
    let (first, files) = manifest(&state(1), None);
    assert_eq!(
        checksum::of(&files).to_string(),
        "434fa53c7d1c0f1040d81c94fa8078ed"
    );
    let bytes = first.to_bytes().unwrap();
    assert_eq!(
        checksum::of(&bytes).to_string(),
        "d900a6a24c938a8c04887ba019bdb6a2"
    );
    let (second, files) = manifest(&state(2), Some(&first));
    assert_eq!(
        checksum::of(&files).to_string(),
        "ab3677fa9d7872613801433ee3913c29"
    );
    let again = second.to_bytes().unwrap();
    assert_eq!(
        checksum::of(&again).to_string(),
        "efb694be148104441960ef32aa21f7fd"
    );
    // A manifest that was read is as good to compare with as one that was written.
    let read = Manifest::parse(&bytes).unwrap();
    assert_eq!(manifest(&state(2), Some(&read)).1, files);
    assert_eq!(read.to_bytes().unwrap(), bytes);
}
