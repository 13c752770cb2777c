use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::format::{Manifest, Summary};
use crate::state::Node;

/// What is known of a committed checkpoint without reading its tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointInfo {
    /// The training step.
    pub step: u64,
    /// Its directory.
    pub path: PathBuf,
    /// When it was saved, to the millisecond.
    pub created: SystemTime,
    /// Metrics given at the save.
    pub metrics: BTreeMap<String, f64>,
    /// Metadata given at the save.
    pub metadata: Node,
    /// Total size of its files, in bytes; files that it shares with other checkpoints count in full.
    pub nbytes: u64,
}

impl CheckpointInfo {
    pub(super) fn new(manifest: &Manifest, path: PathBuf) -> CheckpointInfo {
        CheckpointInfo {
            step: manifest.step,
            path,
            created: manifest.created,
            metrics: manifest.metrics.clone(),
            metadata: manifest.metadata.clone(),
            nbytes: manifest.nbytes(),
        }
    }

    /// What retention looks at.
    pub fn summary(&self) -> Summary {
        Summary {
            step: self.step,
            created: self.created,
            metrics: self.metrics.clone(),
        }
    }
}
