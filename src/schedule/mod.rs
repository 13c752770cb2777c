//! When to save: intervals of steps, of time, or as often as a budget allows.
//!
//! Nothing here reads a clock or looks at a worker: the caller says what time it is and whether a save is in
//! flight, and tells of each save. A [`Schedule`] belongs to one run in one process.
//!
//! # What a budget counts
//!
//! [`Interval::Overhead`] keeps an account, in seconds. The share of the time that passes is paid in. Paid out
//! is what each save costs the run:
//!
//! - its *stall*, from entering `save` to leaving it, as it was;
//! - its *slow-down*: how much longer the steps took that ran beside it than those that ran beside none. Steps
//!   vary by themselves, so this is an estimate, made anew with each save from the last nine. The first step
//!   beside a save, which may wait for the snapshot, goes by medians, the others by means, in which a step far
//!   out of the usual counts only as far as the usual goes. One save may seem to have gained time; no save
//!   slows a run down for longer than it is in flight.
//!
//! A save is asked for when the account holds what one is expected to cost. It never holds more than two, so
//! that a long pause is not followed by a burst of saves, and a single save that was held up for very long is
//! forgiven in part: it puts off the next one, but not for ever.
//!
//! The first save is asked for as soon as it is known how long a step takes: after twenty steps, or after a
//! minute if that comes first. It is never asked for while a save is in flight, in the first five seconds of a
//! run or after a save, or before as many steps have run without one as the last one had beside it (sixteen at
//! most), which is how the estimate stays fresh.

mod budget;
mod interval;
mod meter;
#[cfg(test)]
mod simulation;

use std::time::Instant;

use budget::Budget;
pub use interval::{Interval, IntervalError};
use meter::Meter;

/// Applies an [`Interval`] to one run.
///
/// # Example
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use pitstop::{Interval, Schedule};
///
/// let mut schedule = Schedule::new(Interval::every_steps(500)?, Instant::now());
/// for step in 1..=1000 {
///     // a step of training
///     let save_in_flight = false; // !checkpointer.is_idle()
///     let now = Instant::now();
///     if schedule.should_save(step, now, save_in_flight) {
///         // checkpointer.save(step, state)?;
///         schedule.saved(step, now, Instant::now());
///         assert!(step % 500 == 0);
///     }
/// }
/// # Ok::<(), pitstop::IntervalError>(())
/// ```
#[derive(Debug)]
pub struct Schedule {
    interval: Interval,
    /// Steps are counted from here: the last one saved or resumed from, or the one before the first.
    base: Option<u64>,
    /// The step of the last call.
    latest: Option<u64>,
    /// When the last save ended its stall, or the run was opened.
    since: Instant,
    account: Option<Account>,
}

/// What only a budget needs.
#[derive(Debug)]
struct Account {
    budget: Budget,
    meter: Meter,
}

impl Schedule {
    /// A schedule for a run that is opened `now`.
    pub fn new(interval: Interval, now: Instant) -> Schedule {
        let account = interval.share().map(|share| Account {
            budget: Budget::new(share),
            meter: Meter::default(),
        });
        Schedule {
            interval,
            base: None,
            latest: None,
            since: now,
            account,
        }
    }

    /// Whether to save now. To be called once for each step, at the place where the save would be made;
    /// another call for the same step gives the same answer until there is a save.
    ///
    /// `now` must not go back, and `save_in_flight` says whether the worker is busy. Takes well under a
    /// microsecond.
    pub fn should_save(&mut self, step: u64, now: Instant, save_in_flight: bool) -> bool {
        let gone_back = self.latest.is_some_and(|latest| step < latest);
        let before = step.saturating_sub(1);
        let base = self.base.get_or_insert(before);
        if gone_back {
            *base = before.min(*base);
            self.pause();
        }
        let steps = self.latest.map(|latest| step.saturating_sub(latest));
        self.latest = Some(step);
        if let Some(account) = &mut self.account {
            account.step(steps, now, save_in_flight);
        }
        self.asks(&self.interval, step, now, save_in_flight)
    }

    fn asks(&self, interval: &Interval, step: u64, now: Instant, save_in_flight: bool) -> bool {
        match interval {
            Interval::Steps(steps) => step.saturating_sub(self.base.unwrap_or_default()) >= *steps,
            Interval::Time(time) => now.saturating_duration_since(self.since) >= *time,
            Interval::Overhead(_) => {
                let rested = now.saturating_duration_since(self.since) >= budget::REST;
                let affords = |account: &Account| {
                    account.meter.is_ready(now) && account.budget.affords_a_save()
                };
                rested && !save_in_flight && self.account.as_ref().is_some_and(affords)
            }
            Interval::Any(parts) => parts
                .iter()
                .any(|part| self.asks(part, step, now, save_in_flight)),
        }
    }

    /// A save of `step` was handed over, whoever asked for it: the call was `entered` and `left`, and in
    /// between the run stood still.
    pub fn saved(&mut self, step: u64, entered: Instant, left: Instant) {
        self.base = Some(step);
        self.since = left;
        if let Some(account) = &mut self.account {
            account
                .budget
                .stalled(left.saturating_duration_since(entered));
            account.meter.save_left(left);
        }
    }

    /// When the last save was really done with. Optional: without, it is the time of the first
    /// [`should_save`](Self::should_save) that sees no save in flight, which may be a whole step later.
    pub fn ended(&mut self, at: Instant) {
        if let Some(account) = &mut self.account {
            account.meter.save_ended(at);
        }
    }

    /// The run was set back, or forth, to `step`, which was restored.
    pub fn resumed(&mut self, step: u64) {
        self.base = Some(step);
        self.latest = Some(step);
        self.pause();
    }

    /// What happens until the next call is no step.
    fn pause(&mut self) {
        if let Some(account) = &mut self.account {
            account.meter.pause();
        }
    }
}

impl Account {
    /// `steps` since the last call: `None` at the first one, 0 if it is asked again, or went back.
    fn step(&mut self, steps: Option<u64>, now: Instant, save_in_flight: bool) {
        let slowdown = match steps {
            Some(0) => None,
            steps => self.meter.step(steps.unwrap_or(1), now, save_in_flight),
        };
        if let Some(slowdown) = slowdown {
            self.budget.slowed_down(slowdown);
        }
        self.budget.earn(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The steps of `range` at which a run that saves whenever it is asked to, saves.
    fn saves(schedule: &mut Schedule, range: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let now = Instant::now();
        let asked = |step: &u64| {
            let asked = schedule.should_save(*step, now, false);
            if asked {
                schedule.saved(*step, now, now);
            }
            asked
        };
        range.into_iter().filter(asked).collect()
    }

    fn every_steps(steps: u64) -> Schedule {
        Schedule::new(Interval::every_steps(steps).unwrap(), Instant::now())
    }

    #[test]
    fn a_fresh_run_is_saved_at_multiples() {
        assert_eq!(saves(&mut every_steps(5), 1..=16), [5, 10, 15]);
        assert_eq!(saves(&mut every_steps(5), 0..=16), [5, 10, 15]);
        assert_eq!(saves(&mut every_steps(1), 1..=3), [1, 2, 3]);
    }

    #[test]
    fn a_resumed_run_counts_from_where_it_was_resumed() {
        let mut schedule = every_steps(5);
        schedule.resumed(7);
        assert_eq!(saves(&mut schedule, 8..=20), [12, 17]);
        // The same for a script that resumes by itself, and starts with the step after.
        assert_eq!(saves(&mut every_steps(5), 8..=20), [12, 17]);
    }

    #[test]
    fn a_gap_that_jumps_past_a_multiple_does_not_miss_the_save() {
        assert_eq!(
            saves(&mut every_steps(10), (4..=60).step_by(4)),
            [16, 28, 40, 52]
        );
        assert_eq!(
            saves(&mut every_steps(10), [1, 100, 101, 109, 110]),
            [100, 110]
        );
    }

    #[test]
    fn the_same_step_gets_the_same_answer_until_it_is_saved() {
        let mut schedule = every_steps(3);
        let now = Instant::now();
        assert!(!schedule.should_save(1, now, false));
        for _ in 0..3 {
            assert!(schedule.should_save(3, now, false));
        }
        schedule.saved(3, now, now);
        assert!(!schedule.should_save(3, now, false));
    }

    #[test]
    fn a_save_by_hand_counts() {
        let mut schedule = every_steps(10);
        assert!(saves(&mut schedule, 1..=6).is_empty());
        schedule.saved(6, Instant::now(), Instant::now());
        assert_eq!(saves(&mut schedule, 7..=30), [16, 26]);
    }

    #[test]
    fn a_run_that_goes_back_is_saved_again() {
        let mut schedule = every_steps(10);
        assert_eq!(saves(&mut schedule, 1..=45), [10, 20, 30, 40]);
        // Restored by hand from step 20.
        assert_eq!(saves(&mut schedule, 21..=45), [30, 40]);
    }

    #[test]
    fn minutes_count_from_the_opening_and_then_from_the_last_save() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let every = Interval::every(Duration::from_secs(60)).unwrap();
        let mut schedule = Schedule::new(every, start);
        assert!(!schedule.should_save(1, at(59), false));
        assert!(schedule.should_save(2, at(60), false));
        // Nobody saved, so it is still asked for.
        assert!(schedule.should_save(3, at(70), false));
        // A save that blocks for long does not eat up the time after it.
        schedule.saved(3, at(70), at(170));
        assert!(!schedule.should_save(4, at(229), false));
        assert!(schedule.should_save(5, at(230), false));
    }

    #[test]
    fn either_of_two_intervals_may_ask() {
        let start = Instant::now();
        let interval =
            Interval::every_steps(100).unwrap() | Interval::every(Duration::from_secs(60)).unwrap();
        let mut schedule = Schedule::new(interval, start);
        assert!(!schedule.should_save(1, start, false));
        assert!(schedule.should_save(100, start, false));
        schedule.saved(100, start, start);
        let later = start + Duration::from_secs(60);
        assert!(schedule.should_save(101, later, false));
        schedule.saved(101, later, later);
        assert!(!schedule.should_save(102, later, false));
    }
}
