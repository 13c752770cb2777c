//! A run to save, and a look at what became of it from outside.

use std::path::Path;
use std::sync::Arc;

use pitstop::{Local, Node, Run, State, Tensor};

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

/// A look from another process, as it were.
pub(crate) fn look(dir: &Path) -> Run {
    Run::new(Arc::new(Local::new()), dir)
}

pub(crate) fn steps(dir: &Path) -> Vec<u64> {
    let checkpoints = look(dir).checkpoints().unwrap();
    checkpoints.iter().map(|info| info.step).collect()
}
