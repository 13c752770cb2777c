//! What tensors and files are called.

use super::safe::LONGEST_NAME;
use super::*;
use crate::state::{DType, Piece};

fn names(build: impl FnOnce(&mut dyn FnMut() -> Node) -> Node) -> Vec<(String, String, String)> {
    let mut state = State::default();
    let root = build(&mut || state.push(Tensor::from_vec(vec![0u8], &[1]).unwrap()));
    state.root = root;
    let Names { stems, tensors } = name_tensors(&state);
    tensors
        .into_iter()
        .map(|n| (stems[n.stem].clone(), n.local, n.key))
        .collect()
}

fn triple(stem: &str, local: &str, key: &str) -> (String, String, String) {
    (stem.into(), local.into(), key.into())
}

#[test]
fn expected_names_stay() {
    let got = names(|leaf| {
        Node::dict([
            ("model", Node::dict([("h.0.attn.weight", leaf())])),
            (
                "optimizer",
                Node::dict([(
                    "state",
                    Node::Dict(vec![(Node::Int(0), Node::dict([("exp_avg", leaf())]))]),
                )]),
            ),
            ("w", leaf()),
        ])
    });
    assert_eq!(
        got,
        [
            triple("model", "h.0.attn.weight", "model.h.0.attn.weight"),
            triple("optimizer", "state.0.exp_avg", "optimizer.state.0.exp_avg"),
            triple("state", "w", "w"),
        ]
    );
}

#[test]
fn an_array_that_is_in_a_container_too_is_named_there() {
    let got = names(|leaf| {
        let shared = leaf();
        Node::dict([
            ("alias", shared.clone()),
            ("model", Node::dict([("w", shared)])),
        ])
    });
    assert_eq!(got, [triple("model", "w", "model.w")]);
}

#[test]
fn names_of_pieces_collide_with_none() {
    let piece = |at: u64| Piece {
        offset: vec![at],
        tensor: Tensor::from_vec(vec![0u8], &[1]).unwrap(),
    };
    let whole = Data::Pieces(vec![piece(0), piece(1)]);
    let mut state = State::default();
    let pieces = state.push(Tensor::new(DType::U8, &[2], whole).unwrap());
    let other = state.push(Tensor::from_vec(vec![0u8], &[1]).unwrap());
    state.root = Node::dict([("m", Node::dict([("w.piece1", other), ("w", pieces)]))]);
    let names = name_tensors(&state).tensors;
    assert_eq!(names[1].local, "w.piece1");
    assert_eq!(names[0].pieces, ["w.piece0", "w.piece1~2"]);
}

#[test]
fn names_that_collide_are_numbered() {
    let got = names(|leaf| {
        Node::dict([(
            "m",
            Node::Dict(vec![
                ("a.b".into(), leaf()),
                ("a".into(), Node::dict([("b", leaf())])),
                (Node::Int(1), leaf()),
                ("1".into(), leaf()),
            ]),
        )])
    });
    let locals: Vec<_> = got.iter().map(|n| n.1.as_str()).collect();
    assert_eq!(locals, ["a.b", "a.b~2", "1", "1~2"]);
}

#[test]
fn tensors_that_no_leaf_shows_have_names_of_their_own() {
    // All were called `_`, and only the last of them was in the header.
    let got = names(|leaf| {
        leaf();
        leaf();
        leaf()
    });
    let expected = ["_~2", "_~3", "_"].map(|name| triple("state", name, name));
    assert_eq!(got, expected);
}

#[test]
fn numbering_many_that_collide_does_not_start_over_each_time() {
    // Took minutes.
    let got = names(|leaf| {
        let key = |i| Node::Complex(f64::from(i), 0.0);
        Node::dict([(
            "m",
            Node::Dict((0..30_000).map(|i| (key(i), leaf())).collect()),
        )])
    });
    assert_eq!(got[29_999].1, "key~30000");
}

#[test]
fn stems_are_safe_and_unique() {
    let inner = |leaf: &mut dyn FnMut() -> Node| Node::dict([("x", leaf())]);
    let keys = [
        "..",
        "a/b",
        "",
        "Model",
        "model",
        "con",
        "COM1.x",
        "m-00001-of-00002",
        "état",
        "ètat",
        "state",
    ];
    let got = names(|leaf| Node::dict(keys.map(|key| (key, inner(leaf)))));
    let stems: Vec<_> = got.iter().map(|n| n.0.as_str()).collect();
    assert_eq!(
        stems,
        [
            "_..",
            "a_b",
            "_",
            "Model",
            "model~2",
            "_con",
            "_COM1.x",
            "_m-00001-of-00002",
            "état",
            "ètat~2",
            "state",
        ]
    );
}

#[test]
fn long_and_reserved_names_are_replaced() {
    let long = "x".repeat(10_000);
    let got = names(|leaf| {
        Node::dict([(
            "m",
            Node::dict([
                ("__metadata__", leaf()),
                ("", leaf()),
                (long.as_str(), leaf()),
            ]),
        )])
    });
    assert_eq!(got[0].1, "_.__metadata__");
    assert_eq!(got[1].1, "_");
    assert!(got[2].1.len() <= LONGEST_NAME);
}
