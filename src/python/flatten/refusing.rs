//! What would not come back, or not as it was, and is refused.

use crate::python::arrays;
use crate::state::Node;

pub(super) const UNHASHABLE: &str =
    "in a set or a key, where it would come back as something that cannot be hashed";

/// Whether what is built of the node may be in a set, or a key.
pub(super) fn is_hashable(node: &Node) -> bool {
    match node {
        Node::List(_) | Node::Set(_) | Node::Dict(_) => false,
        Node::Tuple(items) => items.iter().all(is_hashable),
        // A tensor of torch is itself, whatever it holds.
        Node::Tensor(leaf) => matches!(arrays::framework(&leaf.kind), "bytes" | "torch"),
        Node::Tagged { tag, value } => match value.as_ref() {
            // Its items have been looked at.
            Node::Set(_) => tag == "frozenset",
            Node::Dict(fields) if tag.starts_with("namedtuple:") => {
                fields.iter().all(|(_, value)| is_hashable(value))
            }
            value => is_hashable(value),
        },
        _ => true,
    }
}
