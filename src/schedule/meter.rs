//! How much longer steps take beside a save.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::budget::{Slowdown, median};

/// So many steps without a save say how long a step takes.
const ENOUGH: usize = 20;
/// After this time fewer do.
const SOON: Duration = Duration::from_secs(60);
/// So many of the last steps without a save are kept.
const UNDISTURBED: usize = 64;
/// So many steps beside one save are kept at most, evenly spread over it.
const BESIDE: usize = 256;
/// At most so many steps without a save are waited for.
const CALM: u64 = 16;
/// A step counts up to so many times the usual one.
const OUTLIER: f64 = 3.0;

/// Times the steps, those beside a save apart from the others.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// When the first step was timed from.
    began: Option<Instant>,
    /// When the step that runs now began, as far as it counts: at the last call, or when a save was left.
    since: Option<Instant>,
    /// Seconds a step, of the last steps that ran beside no save.
    undisturbed: VecDeque<f64>,
    flight: Option<Flight>,
    /// Steps since the last flight, and how many it takes until the next one may start.
    calm: u64,
    calm_needed: u64,
}

/// The steps beside one save.
#[derive(Debug)]
struct Flight {
    left: Instant,
    ended: Option<Instant>,
    /// The first one may have waited for the snapshot, so it is counted as it is: seconds, steps.
    first: Option<(f64, f64)>,
    /// Seconds a step of one in `stride` of the others.
    others: Vec<f64>,
    stride: u64,
    /// How many calls, and how many steps, there were after the first.
    calls: u64,
    steps: f64,
}

impl Meter {
    /// `steps` more were done. When that was the end of a save's flight: what it cost, if known.
    pub(super) fn step(
        &mut self,
        steps: u64,
        now: Instant,
        save_in_flight: bool,
    ) -> Option<Slowdown> {
        self.began.get_or_insert(now);
        let since = self.since.replace(now)?;
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        match &mut self.flight {
            Some(flight) => {
                flight.push(seconds, steps as f64);
                if save_in_flight { None } else { self.land(now) }
            }
            // Something else keeps the worker busy, such as a deletion.
            None if save_in_flight => None,
            None => {
                self.note_undisturbed(seconds / steps as f64);
                None
            }
        }
    }

    fn note_undisturbed(&mut self, seconds: f64) {
        if self.undisturbed.len() == UNDISTURBED {
            self.undisturbed.pop_front();
        }
        self.undisturbed.push_back(seconds);
        self.calm += 1;
    }

    /// The flight is over.
    fn land(&mut self, now: Instant) -> Option<Slowdown> {
        let flight = self.flight.take()?;
        self.calm = 0;
        self.calm_needed = (flight.calls + 1).min(CALM);
        flight.slowdown(&self.undisturbed, now)
    }

    /// A save was handed over. If another one still was in flight, that goes unmeasured.
    pub(super) fn save_left(&mut self, left: Instant) {
        self.began.get_or_insert(left);
        self.since = Some(left);
        self.flight = Some(Flight {
            left,
            ended: None,
            first: None,
            others: Vec::new(),
            stride: 1,
            calls: 0,
            steps: 0.0,
        });
    }

    pub(super) fn save_ended(&mut self, at: Instant) {
        if let Some(flight) = &mut self.flight {
            flight.ended.get_or_insert(at);
        }
    }

    /// What happens until the next call is no step.
    pub(super) fn pause(&mut self) {
        self.since = None;
    }

    /// Whether enough steps without a save were timed for a save to be compared with them.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        let soon = |began| now.saturating_duration_since(began) >= SOON;
        let timed = self.undisturbed.len();
        let known = timed >= ENOUGH || (timed > 0 && self.began.is_some_and(soon));
        known && self.calm >= self.calm_needed
    }
}

impl Flight {
    fn push(&mut self, seconds: f64, steps: f64) {
        if self.first.is_none() {
            self.first = Some((seconds, steps));
            return;
        }
        if self.calls.is_multiple_of(self.stride) {
            if self.others.len() == BESIDE {
                let mut even = [true, false].into_iter().cycle();
                self.others.retain(|_| even.next().unwrap_or(true));
                self.stride *= 2;
            }
            self.others.push(seconds / steps);
        }
        self.calls += 1;
        self.steps += steps;
    }

    /// How much longer its steps were than `undisturbed` ones.
    fn slowdown(&self, undisturbed: &VecDeque<f64>, now: Instant) -> Option<Slowdown> {
        let (first_seconds, first_steps) = self.first?;
        if undisturbed.is_empty() {
            return None;
        }
        let usual = median(undisturbed.iter().copied());
        let first = first_seconds - first_steps * usual;
        let others = if self.others.is_empty() {
            0.0
        } else {
            // If the save makes steps several times as long, that is no outlier.
            let most = OUTLIER * usual.max(median(self.others.iter().copied()));
            let beside = mean_up_to(most, self.others.iter().copied());
            let alone = mean_up_to(most, undisturbed.iter().copied());
            self.steps * (beside - alone)
        };
        let ended = self.ended.unwrap_or(now);
        let in_flight = ended.saturating_duration_since(self.left).as_secs_f64();
        Some(Slowdown {
            first: first.min(in_flight),
            others: others.min(in_flight),
        })
    }
}

/// The mean of values of which none counts more than `most`.
fn mean_up_to(most: f64, values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len();
    values.map(|value| value.min(most)).sum::<f64>() / count as f64
}
