mod display;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{BitAnd, BitOr};
use std::sync::Arc;
use std::time::Duration;

use crate::format::Summary;

/// Which checkpoints stay: a pure function of what is on disk.
///
/// `a | b` keeps what either keeps, `a & b` what both keep. Whatever the rule says, the newest checkpoint (the
/// one with the highest step) stays if no other does.
///
/// # Example
///
/// ```
/// use pitstop::{Mode, Retention};
///
/// let rule = Retention::keep_last(3)? | Retention::keep_best("val_loss", Mode::Min, 1)?;
/// assert_eq!(rule.to_string(), r#"KeepLast(3) | KeepBest("val_loss", mode="min")"#);
/// assert!(rule.decide(&[]).is_empty());
/// # Ok::<(), pitstop::RetentionError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Retention {
    /// Everything.
    All,
    /// The checkpoints with the highest steps, so many of them.
    Last(usize),
    /// The ones with the best values of a metric. A value that is NaN or missing is never best. Of equal values
    /// the earlier step wins. While no checkpoint has a usable value none can be judged, and all stay.
    Best {
        /// Name of the metric.
        metric: String,
        /// Which values are better.
        mode: Mode,
        /// How many.
        n: usize,
    },
    /// The ones whose step is a multiple of this.
    Every(u64),
    /// The ones saved at most so long before the newest was. The time of the decision plays no part.
    For(Duration),
    /// What either keeps.
    Any(Box<Retention>, Box<Retention>),
    /// What both keep.
    Both(Box<Retention>, Box<Retention>),
    /// What a function keeps: a name to show, and the function.
    Custom(String, Keep),
}

/// Given all checkpoints in ascending order of their steps, the steps to keep. Others than the given are ignored.
pub type Keep = Arc<dyn Fn(&[Summary]) -> BTreeSet<u64> + Send + Sync>;

/// Which values of a metric are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The lower, as for a loss.
    Min,
    /// The higher, as for an accuracy.
    Max,
}

/// What becomes of one checkpoint, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The step of the checkpoint.
    pub step: u64,
    /// It stays.
    pub keep: bool,
    /// The rules that keep it, such as `KeepLast(3)` or `KeepBest("val_loss", mode="min"): 0.123`; none if it goes.
    pub reasons: Vec<String>,
}

/// A rule that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule} would keep nothing: {what} must be greater than 0")]
pub struct RetentionError {
    rule: String,
    what: &'static str,
}

/// The steps that a rule keeps, and the reasons for each.
type Kept = BTreeMap<u64, Vec<String>>;

impl Retention {
    /// Keeps everything.
    pub fn keep_all() -> Retention {
        Retention::All
    }

    /// Keeps the `n` checkpoints with the highest steps.
    ///
    /// # Errors
    ///
    /// If `n` is 0.
    pub fn keep_last(n: usize) -> Result<Retention, RetentionError> {
        Retention::Last(n).unless(n == 0, "the number of checkpoints")
    }

    /// Keeps the `n` checkpoints with the best values of `metric`.
    ///
    /// # Errors
    ///
    /// If `n` is 0.
    pub fn keep_best(
        metric: impl Into<String>,
        mode: Mode,
        n: usize,
    ) -> Result<Retention, RetentionError> {
        let metric = metric.into();
        Retention::Best { metric, mode, n }.unless(n == 0, "the number of checkpoints")
    }

    /// Keeps the checkpoints whose step is a multiple of `steps`.
    ///
    /// # Errors
    ///
    /// If `steps` is 0.
    pub fn keep_every(steps: u64) -> Result<Retention, RetentionError> {
        Retention::Every(steps).unless(steps == 0, "the distance in steps")
    }

    /// Keeps the checkpoints saved at most `duration` before the newest one.
    ///
    /// # Errors
    ///
    /// If `duration` is 0.
    pub fn keep_for(duration: Duration) -> Result<Retention, RetentionError> {
        Retention::For(duration).unless(duration.is_zero(), "the duration")
    }

    /// Keeps what `keep` says; `name` is shown as the reason.
    pub fn custom(
        name: impl Into<String>,
        keep: impl Fn(&[Summary]) -> BTreeSet<u64> + Send + Sync + 'static,
    ) -> Retention {
        Retention::Custom(name.into(), Arc::new(keep))
    }

    fn unless(self, nonsense: bool, what: &'static str) -> Result<Retention, RetentionError> {
        if nonsense {
            let rule = self.to_string();
            return Err(RetentionError { rule, what });
        }
        Ok(self)
    }

    /// What becomes of each checkpoint, in ascending order of their steps. The order of `checkpoints` plays no part.
    pub fn decide(&self, checkpoints: &[Summary]) -> Vec<Decision> {
        let mut sorted = checkpoints.to_vec();
        sorted.sort_by_key(|checkpoint| checkpoint.step);
        let mut kept = self.kept(&sorted);
        kept.retain(|step, _| sorted.binary_search_by_key(step, |c| c.step).is_ok());
        if let (true, Some(newest)) = (kept.is_empty(), sorted.last()) {
            let reason = "newest: never delete the last checkpoint";
            kept.insert(newest.step, vec![reason.into()]);
        }
        let decide = |checkpoint: &Summary| {
            let reasons = kept.get(&checkpoint.step).cloned();
            Decision {
                step: checkpoint.step,
                keep: reasons.is_some(),
                reasons: reasons.unwrap_or_default(),
            }
        };
        sorted.iter().map(decide).collect()
    }

    /// The rule itself, without the promise that something stays.
    fn kept(&self, sorted: &[Summary]) -> Kept {
        match self {
            Retention::All => self.named(sorted),
            Retention::Last(n) => self.named(&sorted[sorted.len().saturating_sub(*n)..]),
            Retention::Best { metric, mode, n } => self.best(sorted, metric, *mode, *n),
            Retention::Every(steps) => {
                self.named(sorted.iter().filter(|c| c.step.is_multiple_of(*steps)))
            }
            Retention::For(duration) => self.named(recent(sorted, *duration)),
            Retention::Any(a, b) => either(a.kept(sorted), b.kept(sorted)),
            Retention::Both(a, b) => both(a.kept(sorted), &b.kept(sorted)),
            Retention::Custom(_, keep) => {
                let steps = keep(sorted).into_iter();
                steps.map(|step| (step, vec![self.to_string()])).collect()
            }
        }
    }

    /// The given checkpoints, each for the reason that is the name of this rule.
    fn named<'a>(&self, checkpoints: impl IntoIterator<Item = &'a Summary>) -> Kept {
        let reason = self.to_string();
        let reasons = |checkpoint: &Summary| (checkpoint.step, vec![reason.clone()]);
        checkpoints.into_iter().map(reasons).collect()
    }

    fn best(&self, sorted: &[Summary], metric: &str, mode: Mode, n: usize) -> Kept {
        let usable = |c: &Summary| Some((c.step, *c.metrics.get(metric).filter(|v| !v.is_nan())?));
        let mut candidates: Vec<(u64, f64)> = sorted.iter().filter_map(usable).collect();
        if candidates.is_empty() {
            let reason = format!("{self}: no checkpoint has a value to judge by");
            let reasons = |checkpoint: &Summary| (checkpoint.step, vec![reason.clone()]);
            return sorted.iter().map(reasons).collect();
        }
        // A stable sort: among equals the earlier step stays first.
        candidates.sort_by(|(_, a), (_, b)| mode.compare(*a, *b));
        let reasons = |(step, value)| (step, vec![format!("{self}: {value:?}")]);
        candidates.into_iter().take(n).map(reasons).collect()
    }
}

impl Mode {
    /// The better value comes first. Neither is NaN.
    pub(crate) fn compare(self, a: f64, b: f64) -> Ordering {
        let ascending = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
        match self {
            Mode::Min => ascending,
            Mode::Max => ascending.reverse(),
        }
    }
}

/// Those saved at most `duration` before the one with the highest step.
fn recent(sorted: &[Summary], duration: Duration) -> impl Iterator<Item = &Summary> {
    let newest = sorted.last().map(|checkpoint| checkpoint.created);
    sorted.iter().filter(move |checkpoint| {
        // One that seems younger than the newest (the clock was set back) has no age, and stays.
        let age = newest.and_then(|newest| newest.duration_since(checkpoint.created).ok());
        age.is_none_or(|age| age <= duration)
    })
}

fn either(mut a: Kept, b: Kept) -> Kept {
    for (step, reasons) in b {
        let all = a.entry(step).or_default();
        for reason in reasons {
            if !all.contains(&reason) {
                all.push(reason);
            }
        }
    }
    a
}

fn both(a: Kept, b: &Kept) -> Kept {
    let join = |(step, ours): (u64, Vec<String>)| {
        let theirs = b.get(&step)?;
        Some((
            step,
            vec![format!("{} & {}", one_of(&ours), one_of(theirs))],
        ))
    };
    a.into_iter().filter_map(join).collect()
}

fn one_of(reasons: &[String]) -> String {
    match reasons {
        [only] => only.clone(),
        several => format!("({})", several.join(" | ")),
    }
}

impl BitOr for Retention {
    type Output = Retention;

    fn bitor(self, other: Retention) -> Retention {
        Retention::Any(Box::new(self), Box::new(other))
    }
}

impl BitAnd for Retention {
    type Output = Retention;

    fn bitand(self, other: Retention) -> Retention {
        Retention::Both(Box::new(self), Box::new(other))
    }
}

#[cfg(test)]
mod tests;
