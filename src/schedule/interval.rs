use std::fmt;
use std::ops::BitOr;
use std::time::Duration;

/// How far apart saves are.
///
/// `a | b` asks for a save when either does. [`Schedule`](super::Schedule) applies it to a run.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use pitstop::Interval;
///
/// let interval = Interval::overhead(0.02)? | Interval::every(Duration::from_secs(1800))?;
/// assert_eq!(interval.to_string(), "Overhead(0.02) | EveryMinutes(30)");
/// # Ok::<(), pitstop::IntervalError>(())
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Interval {
    /// So many steps after the last save.
    Steps(u64),
    /// So long after the last save.
    Time(Duration),
    /// As often as this share of the run's time allows, all that saves cost it taken together.
    Overhead(f64),
    /// When one of them asks for it.
    Any(Vec<Interval>),
}

/// An interval that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{interval}: {why}")]
pub struct IntervalError {
    interval: String,
    why: &'static str,
}

impl Interval {
    /// A save every `steps` steps.
    ///
    /// # Errors
    ///
    /// If `steps` is 0.
    pub fn every_steps(steps: u64) -> Result<Interval, IntervalError> {
        Interval::Steps(steps).unless(steps == 0, "the number of steps must be at least 1")
    }

    /// A save every `duration`.
    ///
    /// # Errors
    ///
    /// If `duration` is 0.
    pub fn every(duration: Duration) -> Result<Interval, IntervalError> {
        Interval::Time(duration).unless(duration.is_zero(), "the time must be more than 0")
    }

    /// Saves that cost at most `share` of the run's time: 0.02 is two percent.
    ///
    /// # Errors
    ///
    /// If `share` is not more than 0 and less than 1.
    pub fn overhead(share: f64) -> Result<Interval, IntervalError> {
        let sensible = share > 0.0 && share < 1.0;
        Interval::Overhead(share).unless(
            !sensible,
            "the share must be more than 0 and less than 1; 0.02 is two percent",
        )
    }

    fn unless(self, nonsense: bool, why: &'static str) -> Result<Interval, IntervalError> {
        if nonsense {
            let interval = self.to_string();
            return Err(IntervalError { interval, why });
        }
        Ok(self)
    }

    /// The largest share of time that one of its parts allows for.
    pub(super) fn share(&self) -> Option<f64> {
        match self {
            Interval::Overhead(share) => Some(*share),
            Interval::Any(parts) => parts
                .iter()
                .filter_map(Interval::share)
                .max_by(f64::total_cmp),
            Interval::Steps(_) | Interval::Time(_) => None,
        }
    }

    fn into_parts(self) -> Vec<Interval> {
        match self {
            Interval::Any(parts) => parts,
            one => vec![one],
        }
    }
}

impl BitOr for Interval {
    type Output = Interval;

    fn bitor(self, other: Interval) -> Interval {
        let mut parts = self.into_parts();
        parts.extend(other.into_parts());
        Interval::Any(parts)
    }
}

/// As it is written in Python.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Interval::Steps(steps) => write!(f, "EverySteps({steps})"),
            Interval::Time(time) => write!(f, "EveryMinutes({})", time.as_secs_f64() / 60.0),
            Interval::Overhead(share) => write!(f, "Overhead({share})"),
            Interval::Any(parts) => {
                let parts: Vec<_> = parts.iter().map(Interval::to_string).collect();
                f.write_str(&parts.join(" | "))
            }
        }
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        assert_eq!(
            Interval::every_steps(0).unwrap_err().to_string(),
            "EverySteps(0): the number of steps must be at least 1"
        );
        assert!(Interval::every(Duration::ZERO).is_err());
        for share in [0.0, -0.1, 1.0, 2.0, f64::NAN, f64::INFINITY] {
            assert!(Interval::overhead(share).is_err(), "{share}");
        }
    }

    #[test]
    fn joined_intervals_are_equal_however_they_are_bracketed() {
        let steps = || Interval::every_steps(500).unwrap();
        let time = || Interval::every(Duration::from_secs(90)).unwrap();
        let share = || Interval::overhead(0.02).unwrap();
        assert_eq!((steps() | time()) | share(), steps() | (time() | share()));
        assert_ne!(steps() | time(), time() | steps());
        assert_eq!(
            (steps() | time() | share()).to_string(),
            "EverySteps(500) | EveryMinutes(1.5) | Overhead(0.02)"
        );
    }
}
