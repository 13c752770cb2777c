use std::path::Path;

use pitstop::{
    Changed, Checkpointer, Comparison, DType, Data, FileCheckpointer, Node, Opened, Options, Piece,
    RestoreError, State, Tensor, TensorChange, Watch, compare,
};

use super::{change, look, open, saved};

fn checkpoint(directory: &Path, step: usize, state: State) -> Opened {
    let options = Options {
        incremental: false,
        ..Options::default()
    };
    let files = FileCheckpointer::open(directory, options).unwrap();
    files.save(step, state).unwrap();
    open(&look(directory), step as u64)
}

fn compared(before: &Opened, after: &Opened) -> Comparison {
    compare(before, after, Watch::nobody()).unwrap()
}

fn distance(change: &TensorChange) -> (u64, u64, f64) {
    match change {
        TensorChange::Elements { distance, .. } => {
            (distance.differing, distance.nan, distance.largest)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_checkpoint_does_not_differ_from_itself() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    let comparison = compared(&open(&run, 30), &open(&run, 30));
    assert!(comparison.is_empty(), "{comparison:?}");
    assert_eq!(comparison.same, 3);
}

#[test]
fn tensors_that_changed_are_told_with_how_far() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    let comparison = compared(&open(&run, 10), &open(&run, 30));
    assert_eq!(comparison.same, 1);
    let names: Vec<&String> = comparison.tensors.keys().collect();
    assert_eq!(names, ["model.split", "model.trained"]);
    assert_eq!(
        distance(&comparison.tensors["model.trained"]),
        (1000, 0, 2.0)
    );
    assert_eq!(distance(&comparison.tensors["model.split"]), (24, 0, 2.0));
    let changed = |path: &str, before: &str, after: &str| Changed {
        path: path.into(),
        before: Some(before.into()),
        after: Some(after.into()),
    };
    assert_eq!(comparison.values, [changed("epoch", "1", "3")]);
    assert_eq!(comparison.metrics, [changed("loss", "10.0", "30.0")]);
    assert!(comparison.metadata.is_empty());
}

#[test]
fn one_element_of_many_windows_is_found_in_any_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let of = |at: Option<usize>| {
        let mut values = vec![0i64; 1_000_003];
        if let Some(at) = at {
            values[at] = -5;
        }
        let mut state = State::default();
        state.root = state.push(Tensor::from_vec(values, &[1_000_003]).unwrap());
        state
    };
    let zero = checkpoint(directory.path(), 1, of(None));
    for (step, at) in [(2, 0), (3, 393_215), (4, 393_216), (5, 1_000_002)] {
        let other = checkpoint(directory.path(), step, of(Some(at)));
        let comparison = compared(&zero, &other);
        assert_eq!(distance(&comparison.tensors["_"]), (1, 0, 5.0), "{at}");
    }
}

#[test]
fn what_came_went_or_has_another_form_is_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let of = |entries: &[(&str, DType, &[u64])], rest: Node| {
        let mut state = State::default();
        let mut root = vec![];
        for &(name, dtype, shape) in entries {
            let bytes = shape.iter().product::<u64>() * dtype.bits() / 8;
            let bytes = Tensor::from_vec(vec![0u8; bytes as usize], &[bytes]).unwrap();
            let tensor = Tensor::new(dtype, shape, bytes.data).unwrap();
            root.push((name, state.push(tensor)));
        }
        root.push(("rest", rest));
        state.root = Node::dict(root);
        state
    };
    let before = checkpoint(
        directory.path(),
        1,
        of(
            &[
                ("a", DType::F32, &[2]),
                ("b", DType::F32, &[4]),
                ("c", DType::F32, &[4]),
            ],
            Node::List(vec![Node::Int(1), Node::Float(0.0), Node::Float(f64::NAN)]),
        ),
    );
    let after = checkpoint(
        directory.path(),
        2,
        of(
            &[
                ("b", DType::F32, &[2, 2]),
                ("c", DType::I32, &[4]),
                ("d", DType::U8, &[1]),
            ],
            Node::Tuple(vec![
                Node::Int(1),
                Node::Float(-0.0),
                Node::Float(f64::NAN),
                Node::None,
            ]),
        ),
    );
    let comparison = compared(&before, &after);
    let of = |name: &str| &comparison.tensors[name];
    assert_eq!(of("a"), &TensorChange::Removed(DType::F32, vec![2]));
    assert_eq!(of("d"), &TensorChange::Added(DType::U8, vec![1]));
    let reshaped = |name| matches!(of(name), TensorChange::Reshaped { .. });
    assert!(reshaped("b") && reshaped("c"));
    let values: Vec<(&str, Option<&str>, Option<&str>)> = comparison
        .values
        .iter()
        .map(|it| (it.path.as_str(), it.before.as_deref(), it.after.as_deref()))
        .collect();
    assert_eq!(
        values,
        [
            ("a", Some("{\"tensor\":\"a\"}"), None),
            ("rest", Some("list"), Some("tuple")),
            ("rest.1", Some("0.0"), Some("-0.0")),
            ("d", None, Some("{\"tensor\":\"d\"}")),
            ("rest.3", None, Some("null")),
        ]
    );
}

/// All versions of a model were told, on both sides, where one differed.
#[test]
fn of_the_versions_of_modules_only_those_that_differ_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let of = |versions: &str| State {
        root: Node::dict([(
            "model",
            Node::tagged(
                format!("collections.OrderedDict{versions}"),
                Node::dict([("epoch", Node::Int(1))]),
            ),
        )]),
        ..State::default()
    };
    let one = r#":{"": {"version": 1}, "norm": {"version": 1}, "old": {"version": 3}}"#;
    let other = r#":{"": {"version": 1}, "norm": {"version": 2}, "new": {}}"#;
    // Versions that are none stay a part of their tag.
    let states = [one, other, "", ":1"].map(of);
    let [one, other, none, odd] = [0, 1, 2, 3].map(|i: usize| {
        let state = states[i].clone();
        checkpoint(directory.path(), i + 1, state)
    });
    let told = |before: &Opened, after: &Opened| -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let values = compared(before, after).values.into_iter();
        values
            .map(|it| format!("{}: {} -> {}", it.path, text(&it.before), text(&it.after)))
            .collect()
    };
    assert_eq!(
        told(&one, &other),
        [
            r#"model._metadata.norm: {"version":1} -> {"version":2}"#,
            r#"model._metadata.old: {"version":3} -> "#,
            "model._metadata.new:  -> {}",
        ]
    );
    assert!(compared(&one, &one).is_empty());
    assert_eq!(
        told(&none, &other),
        [
            "model._metadata:  -> dict",
            r#"model._metadata.:  -> {"version":1}"#,
            r#"model._metadata.norm:  -> {"version":2}"#,
            "model._metadata.new:  -> {}",
        ]
    );
    assert_eq!(
        told(&none, &odd),
        ["model: collections.OrderedDict dict -> collections.OrderedDict:1 dict"]
    );
}

#[test]
fn a_tensor_is_the_same_in_whatever_pieces_it_is_stored() {
    let directory = tempfile::tempdir().unwrap();
    let values: Vec<u16> = (0..24).collect();
    let whole = Tensor::copy_of(&values, &[4, 6]).unwrap();
    let columns = |from: u64, to: u64| Piece {
        offset: vec![0, from],
        tensor: {
            let rows = values.chunks(6);
            let part: Vec<u16> = rows
                .flat_map(|row| row[from as usize..to as usize].to_vec())
                .collect();
            Tensor::from_vec(part, &[4, to - from]).unwrap()
        },
    };
    let pieces = |pieces| Tensor::new(DType::U16, &[4, 6], Data::Pieces(pieces)).unwrap();
    let of = |tensor| {
        let mut state = State::default();
        state.root = state.push(tensor);
        state
    };
    let whole = checkpoint(directory.path(), 1, of(whole));
    let halves = checkpoint(
        directory.path(),
        2,
        of(pieces(vec![columns(0, 3), columns(3, 6)])),
    );
    let thirds = checkpoint(
        directory.path(),
        3,
        of(pieces(vec![columns(4, 6), columns(0, 2), columns(2, 4)])),
    );
    for (one, other) in [(&whole, &halves), (&halves, &whole), (&halves, &thirds)] {
        let comparison = compared(one, other);
        assert!(
            comparison.is_empty() && comparison.same == 1,
            "{comparison:?}"
        );
    }
}

#[test]
fn a_damaged_tensor_is_not_called_different() {
    let directory = tempfile::tempdir().unwrap();
    let run = saved(directory.path());
    // What is widest comes first: the tensor that was trained.
    change(&run.path(10).join("model.safetensors"), |bytes| {
        bytes[4096] ^= 1;
    });
    let error = compare(&open(&run, 10), &open(&run, 30), Watch::nobody()).unwrap_err();
    assert!(
        matches!(&error, RestoreError::Corrupt { path, .. } if path.starts_with(run.path(10))),
        "{error}"
    );
}
