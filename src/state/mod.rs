//! What is saved: a tree of plain values and tensors.
//!
//! A [`State`] is a [`Node`] tree beside a list of [`Tensor`]s. The tree says where each tensor belongs;
//! the list says where its bytes lie. Saving replaces where the bytes lie (training memory, then the
//! arena, then a file) and leaves the tree alone.

mod checksum;
mod data;
mod distance;
mod dtype;
mod node;
mod share;
mod tensor;

pub use checksum::Checksum;
pub use data::{Data, Memory, Piece, ReadAt, Region, Stored};
pub use distance::Distance;
pub use dtype::{DType, Element};
pub use node::{Node, TensorRef, View};
pub use tensor::{ShapeError, Tensor};
pub(crate) use tensor::{count, reach, size_of};

/// The state of a training run: plain values, containers, and tensors.
///
/// # Example
///
/// ```
/// use pitstop::{Node, State, Tensor};
///
/// let mut state = State::default();
/// let weight = state.push(Tensor::from_vec(vec![0.0f32; 6], &[2, 3])?);
/// state.root = Node::dict([
///     ("model", Node::dict([("weight", weight)])),
///     ("learning_rate", Node::Float(3e-4)),
/// ]);
/// let model = state.root.get("model").unwrap();
/// assert_eq!(state.tensor(model.get("weight").unwrap()).unwrap().shape, [2, 3]);
/// # Ok::<(), pitstop::ShapeError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The tree of containers and values.
    pub root: Node,
    /// The tensors that the tree refers to by index.
    pub tensors: Vec<Tensor>,
}

impl State {
    /// Adds a tensor and returns the leaf that stands for it in the tree.
    pub fn push(&mut self, tensor: Tensor) -> Node {
        self.tensors.push(tensor);
        Node::Tensor(TensorRef {
            index: self.tensors.len() - 1,
            kind: "".into(),
            view: None,
        })
    }

    /// The tensor a leaf stands for; `None` if `node` is no tensor leaf of this state.
    pub fn tensor(&self, node: &Node) -> Option<&Tensor> {
        match node {
            Node::Tensor(leaf) => self.tensors.get(leaf.index),
            _ => None,
        }
    }

    /// Total size of all tensors, in bytes.
    pub fn nbytes(&self) -> u64 {
        self.tensors.iter().map(Tensor::nbytes).sum()
    }
}
