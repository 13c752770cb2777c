//! A run to save, and a look at what became of it from outside.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pitstop::{Local, Node, Run, SaveOptions, State, Tensor, Transfer};

/// A model that differs from step to step, and a part that never does.
pub(crate) fn state(step: usize) -> State {
    let mut state = State::default();
    let frozen = state.push(Tensor::from_vec(vec![7u8; 300], &[300]).unwrap());
    let trained = state.push(Tensor::from_vec(vec![step as u64; 100], &[10, 10]).unwrap());
    state.root = Node::dict([
        ("model", Node::dict([("weight", trained)])),
        ("frozen", Node::dict([("weight", frozen)])),
        ("step", Node::Int(step as i64)),
    ]);
    state
}

/// The same with a loss.
pub(crate) fn scored(step: usize, loss: f64) -> Transfer {
    Transfer {
        options: SaveOptions {
            metrics: [("loss".to_owned(), loss)].into(),
            ..SaveOptions::default()
        },
        ..Transfer::from(state(step))
    }
}

/// A look from another process, as it were.
pub(crate) fn look(dir: &Path) -> Run {
    Run::new(Arc::new(Local::new()), dir)
}

pub(crate) fn steps(dir: &Path) -> Vec<u64> {
    let checkpoints = look(dir).checkpoints().unwrap();
    checkpoints.iter().map(|info| info.step).collect()
}

/// The step that was saved there, from the tensors; fails if anything is damaged.
pub(crate) fn content(dir: &Path, step: u64) -> i64 {
    let state = look(dir).open(step, true).unwrap().load().unwrap();
    let leaf = |entry: &str| state.root.get(entry).unwrap().get("weight").unwrap();
    let values = |entry| state.tensor(leaf(entry)).unwrap();
    assert_eq!(values("frozen").to_vec::<u8>().unwrap(), [7; 300]);
    let saved = state.root.get("step").unwrap().as_int().unwrap();
    assert_eq!(
        values("model").to_vec::<u64>().unwrap(),
        [saved as u64; 100]
    );
    saved
}

/// The names in a directory, hidden ones included, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
