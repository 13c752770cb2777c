//! How the checkpoints of a run stand, as the screen shows it.

use serde::{Deserialize, Serialize};

/// How the checkpoints of a run stand. Times of day are seconds since 1970 (UTC), durations are seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Checkpoints {
    /// The directory of the run.
    pub directory: String,
    /// The save that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// The checkpoint that was committed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Committed>,
    /// How many saves are durable.
    pub saved: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were not made, since another was in flight.
    pub skipped: u64,
    /// The last failures, the latest last; at most [`FAILURES`](Self::FAILURES).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// The checkpoints that there are, oldest first, and what keeps each; at most [`KEPT`](Self::KEPT).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
}

impl Checkpoints {
    /// So many failures are shown.
    pub const FAILURES: usize = 8;
    /// So many checkpoints are listed, the newest ones.
    pub const KEPT: usize = 32;
}

/// A save that is under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// The step that is being saved.
    pub step: u64,
    /// Bytes that are written.
    pub done: u64,
    /// Bytes to write in all; 0 until it is known.
    pub total: u64,
    /// How long it has been under way.
    pub seconds: f64,
}

/// A checkpoint that is durable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// Its step.
    pub step: u64,
    /// When it was committed.
    pub at: f64,
    /// Its size in bytes, whether written or linked.
    pub bytes: u64,
    /// For how long the training stood still for it; `None` if it was saved by an earlier process.
    pub stall: Option<f64>,
    /// From the call to when it was durable; `None` if it was saved by an earlier process.
    pub durable: Option<f64>,
}

/// A checkpoint that there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Its step.
    pub step: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The rule of the retention that keeps it; empty if the next save will remove it.
    pub why: String,
}
