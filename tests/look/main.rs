//! Looking at checkpoints from outside: all of one verified, a run listed and planned, two compared, one exported.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod comparing;
mod exporting;
mod listing;
mod verifying;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pitstop::{
    Checkpointer, DType, Data, FileCheckpointer, Local, Node, Opened, Options, Piece, Run,
    SaveOptions, State, Tensor, Transfer,
};

/// A model of which a part never changes, and that part is large enough for a file of its own from the third
/// checkpoint on; a tensor in pieces; and plain values.
fn state(n: u8) -> State {
    let mut state = State::default();
    let frozen = state.push(Tensor::from_vec(vec![7u8; 1 << 20], &[1 << 20]).unwrap());
    let trained = state.push(Tensor::from_vec(vec![f32::from(n); 1000], &[10, 100]).unwrap());
    let split = state.push(in_pieces(n));
    state.root = Node::dict([
        (
            "model",
            Node::dict([("frozen", frozen), ("trained", trained), ("split", split)]),
        ),
        ("epoch", Node::Int(i64::from(n))),
    ]);
    state
}

/// Four rows of six, the left four columns in one piece, the right two in another.
fn in_pieces(n: u8) -> Tensor {
    let piece = |offset: [u64; 2], shape: [u64; 2]| Piece {
        offset: offset.to_vec(),
        tensor: Tensor::from_vec(vec![u16::from(n); (shape[0] * shape[1]) as usize], &shape)
            .unwrap(),
    };
    let pieces = vec![piece([0, 0], [4, 4]), piece([0, 4], [4, 2])];
    Tensor::new(DType::U16, &[4, 6], Data::Pieces(pieces)).unwrap()
}

/// Three checkpoints, at steps 10, 20 and 30; the loss of each is its step.
fn saved(directory: &Path) -> Run {
    let files = FileCheckpointer::open(directory, Options::default()).unwrap();
    for n in 1..=3u8 {
        let transfer = Transfer {
            options: SaveOptions {
                metrics: [("loss".to_owned(), f64::from(n) * 10.0)].into(),
                metadata: Node::from("a note"),
                ..SaveOptions::default()
            },
            ..Transfer::from(state(n))
        };
        files.save(usize::from(n) * 10, transfer).unwrap();
    }
    look(directory)
}

fn look(directory: &Path) -> Run {
    Run::new(Arc::new(Local::new()), directory)
}

fn open(run: &Run, step: u64) -> Opened {
    run.open(step, true).unwrap()
}

/// Names in a directory, sorted, hidden ones too.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Changes a file; other checkpoints that share it keep the old one.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}
