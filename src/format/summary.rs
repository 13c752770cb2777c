use std::collections::BTreeMap;
use std::time::SystemTime;

/// What retention and listings know of a checkpoint: no tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The training step it was saved at.
    pub step: u64,
    /// When it was saved, to the millisecond.
    pub created: SystemTime,
    /// Metrics given at the save; may hold NaN and infinities.
    pub metrics: BTreeMap<String, f64>,
}
