//! What saves cost, as Python reads it.

use std::time::Duration;

use pyo3::prelude::*;

use crate::file_checkpointer::{self as core, Cost, Outcome};

/// What one save cost. All times are in seconds.
///
/// A save in flight shows what it has cost so far. Files are written by several threads at once, and beside the
/// copy, so that the times of the parts need not add up to ``durable``.
#[pyclass(frozen, module = "pitstop")]
pub(super) struct SaveStats {
    save: core::SaveStats,
}

/// What the saves of a checkpointer cost. All times are in seconds.
///
/// Everything but ``saves`` covers all of them, also those that are not listed any more.
#[pyclass(frozen, module = "pitstop")]
pub(super) struct Stats {
    stats: core::Stats,
}

impl From<core::Stats> for Stats {
    fn from(stats: core::Stats) -> Stats {
        Stats { stats }
    }
}

#[pymethods]
impl SaveStats {
    /// The step that was saved.
    #[getter]
    fn step(&self) -> u64 {
        self.save.step
    }

    /// Whether it has ended, well or not.
    #[getter]
    fn done(&self) -> bool {
        self.save.outcome != Outcome::InFlight
    }

    /// Whether it failed.
    #[getter]
    fn failed(&self) -> bool {
        self.save.outcome == Outcome::Failed
    }

    /// From entering ``save`` to when the checkpoint was durable; ``None`` if it is not.
    #[getter]
    fn durable(&self) -> Option<f64> {
        self.save.durable.as_ref().map(Duration::as_secs_f64)
    }

    /// For how long ``save`` blocked, the wait for an earlier save included.
    #[getter]
    fn stall(&self) -> f64 {
        self.save.cost.stall.as_secs_f64()
    }

    /// Copying out of the training's memory, and checksums.
    #[getter]
    fn snapshot(&self) -> f64 {
        self.save.cost.snapshot.as_secs_f64()
    }

    /// Writing files.
    #[getter]
    fn write(&self) -> f64 {
        self.save.cost.write.as_secs_f64()
    }

    /// Making their bytes durable.
    #[getter]
    fn sync(&self) -> f64 {
        self.save.cost.sync.as_secs_f64()
    }

    /// Making the checkpoint visible: the rename, and the directories made durable.
    #[getter]
    fn commit(&self) -> f64 {
        self.save.cost.commit.as_secs_f64()
    }

    /// Bytes written to files.
    #[getter]
    fn bytes_written(&self) -> u64 {
        self.save.cost.bytes_written
    }

    /// Bytes of files that had not changed, and were linked.
    #[getter]
    fn bytes_linked(&self) -> u64 {
        self.save.cost.bytes_linked
    }

    /// Bytes that were written and made durable a second; 0 if there were none.
    #[getter]
    fn rate(&self) -> f64 {
        self.save.cost.rate()
    }

    fn __repr__(&self) -> String {
        let core::SaveStats {
            step,
            outcome,
            durable,
            cost,
        } = &self.save;
        let outcome = match (outcome, durable) {
            (Outcome::InFlight, _) => "in flight".to_owned(),
            (Outcome::Failed, _) => "failed".to_owned(),
            (Outcome::Saved, durable) => {
                format!("durable={}", seconds(durable.unwrap_or_default()))
            }
        };
        format!("SaveStats(step={step}, {outcome}, {})", written(cost))
    }
}

#[pymethods]
impl Stats {
    /// The last hundred saves, oldest first; one in flight is the last.
    #[getter]
    fn saves(&self) -> Vec<SaveStats> {
        let saves = self.stats.saves.iter();
        saves.map(|save| SaveStats { save: *save }).collect()
    }

    /// How many saves are durable.
    #[getter]
    fn saved(&self) -> u64 {
        self.stats.saved
    }

    /// How many failed.
    #[getter]
    fn failed(&self) -> u64 {
        self.stats.failed
    }

    /// How many were not made, since another was in flight and ``on_busy`` is ``"skip"``.
    #[getter]
    fn skipped(&self) -> u64 {
        self.stats.skipped
    }

    /// For how long ``save`` blocked.
    #[getter]
    fn stall(&self) -> f64 {
        self.stats.total.stall.as_secs_f64()
    }

    /// Copying out of the training's memory, and checksums.
    #[getter]
    fn snapshot(&self) -> f64 {
        self.stats.total.snapshot.as_secs_f64()
    }

    /// Writing files.
    #[getter]
    fn write(&self) -> f64 {
        self.stats.total.write.as_secs_f64()
    }

    /// Making their bytes durable.
    #[getter]
    fn sync(&self) -> f64 {
        self.stats.total.sync.as_secs_f64()
    }

    /// Making checkpoints visible: the renames, and the directories made durable.
    #[getter]
    fn commit(&self) -> f64 {
        self.stats.total.commit.as_secs_f64()
    }

    /// Bytes written to files.
    #[getter]
    fn bytes_written(&self) -> u64 {
        self.stats.total.bytes_written
    }

    /// Bytes of files that had not changed, and were linked.
    #[getter]
    fn bytes_linked(&self) -> u64 {
        self.stats.total.bytes_linked
    }

    /// Bytes that were written and made durable a second; 0 if there were none.
    #[getter]
    fn rate(&self) -> f64 {
        self.stats.total.rate()
    }

    fn __repr__(&self) -> String {
        let core::Stats {
            saves: _,
            saved,
            failed,
            skipped,
            total,
        } = &self.stats;
        format!(
            "Stats(saved={saved}, failed={failed}, skipped={skipped}, {})",
            written(total)
        )
    }
}

fn written(cost: &Cost) -> String {
    format!(
        "stall={}, snapshot={}, write={}, sync={}, commit={}, bytes_written={}, bytes_linked={}, rate={:.3e}",
        seconds(cost.stall),
        seconds(cost.snapshot),
        seconds(cost.write),
        seconds(cost.sync),
        seconds(cost.commit),
        cost.bytes_written,
        cost.bytes_linked,
        cost.rate()
    )
}

/// To the microsecond.
fn seconds(duration: Duration) -> String {
    format!("{:.6}", duration.as_secs_f64())
}
