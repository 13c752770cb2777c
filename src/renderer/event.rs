//! What happens in a run: the one vocabulary of renderers, and of the lines of `events.jsonl`.

use serde::{Deserialize, Serialize};

use super::checkpoints::{Checkpoints, InFlight};

/// Which part of the data a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// What is learnt from.
    Train,
    /// What is looked at while training.
    Valid,
    /// What is looked at in the end.
    Test,
}

impl Split {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

    /// `train`, `valid` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        }
    }
}

/// Whether a smaller or a larger value of a metric is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// The smaller the better, as a loss.
    Min,
    /// The larger the better, as an accuracy.
    Max,
}

/// What is known of a metric beyond its values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// As it is shown.
    pub name: String,
    /// Shown behind values, such as `%` or `tokens/s`; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Which value is the best one, where that makes sense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

impl Metric {
    /// A metric of which no more is known than its name.
    pub fn new(name: impl Into<String>) -> Metric {
        Metric {
            name: name.into(),
            unit: String::new(),
            goal: None,
        }
    }
}

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The run begins, or goes on after `epoch` epochs and `step` steps. Values of later steps, which a run
    /// that died may have left, do not count any more.
    Start {
        /// Epochs in all, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epochs: Option<u64>,
        /// Steps in all, if that is known. A run that knows both is measured by its steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<u64>,
        /// Epochs that are done.
        epoch: u64,
        /// Steps that are done.
        step: u64,
    },
    /// Something is known of a metric. Metrics that nobody registers are known by their first value.
    Register(Metric),
    /// A value of a metric that can be plotted.
    Numeric {
        /// What it was measured on.
        split: Split,
        /// Name of the metric.
        name: String,
        /// NaN and infinities too.
        #[serde(with = "number")]
        value: f64,
        /// Steps that were done when it was measured.
        step: u64,
    },
    /// A value of a metric that is a text.
    Text {
        /// What it was measured on.
        split: Split,
        /// Name of the metric.
        name: String,
        /// Its latest value.
        text: String,
    },
    /// A pass over some of the data begins.
    SplitStart {
        /// Over which.
        split: Split,
        /// Items that are done already, in a run that was resumed in the middle.
        done: u64,
        /// Items in all, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// The pass over the data, and the run, have come further.
    Progress {
        /// Items of the pass that are done.
        done: u64,
        /// Steps of the run that are done.
        step: u64,
    },
    /// The pass over the data is over.
    SplitEnd,
    /// An epoch is over.
    Epoch {
        /// Epochs that are done.
        epoch: u64,
    },
    /// Something that has a name happened, such as a skipped step. Events of one name are counted.
    Named {
        /// What it is counted under.
        name: String,
        /// What happened, if the name does not say it all.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
        /// How often it happened since it was last told.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        count: u64,
    },
    /// The run was asked to stop.
    Stopping {
        /// Why.
        message: String,
    },
    /// That the run was asked to stop was taken back.
    GoingOn,
    /// The process was stopped for a while, as by Ctrl-Z, and goes on. That time counts for no speed.
    Paused {
        /// For how long.
        seconds: f64,
    },
    /// How checkpoints stand.
    Checkpoints(Checkpoints),
    /// The save that is under way has come further; all else about checkpoints is as it was.
    Saving(InFlight),
    /// The run is over.
    End {
        /// Lines to read in the end, name and value.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        summary: Vec<(String, String)>,
        /// What ended it, unless it ended well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

fn once() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_once(count: &u64) -> bool {
    *count == 1
}

/// Numbers that JSON does not have are texts.
pub(super) mod number {
    use serde::de::{Deserializer, Error};
    use serde::{Deserialize, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Other(String),
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() {
            serializer.serialize_f64(*value)
        } else {
            serializer.collect_str(value)
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Number::deserialize(deserializer)? {
            Number::Finite(value) => Ok(value),
            Number::Other(text) => text.parse().map_err(D::Error::custom),
        }
    }
}
