//! The account of a budget: time earned, time spent.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// At least so long between two saves that a budget asks for. A run that dies loses so little in any case that
/// more saves would serve nobody, however cheap they are.
pub(super) const REST: Duration = Duration::from_secs(5);

/// So many of the last saves say what the next one costs.
const RECENT: usize = 9;

/// Seconds earned and spent.
#[derive(Debug)]
pub(super) struct Budget {
    share: f64,
    /// Up to when time was earned.
    until: Option<Instant>,
    earned: f64,
    /// All stalls, and the slow-downs of saves that are not recent any more.
    settled: f64,
    /// Of the last saves, in seconds.
    stalls: VecDeque<f64>,
    slowdowns: VecDeque<Slowdown>,
}

/// By how many seconds a save made the steps beside it longer, as far as one can tell: noise and all, so that
/// it may be negative.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slowdown {
    /// The first one.
    pub(super) first: f64,
    /// All others together.
    pub(super) others: f64,
}

impl Budget {
    pub(super) fn new(share: f64) -> Budget {
        Budget {
            share,
            until: None,
            earned: 0.0,
            settled: 0.0,
            stalls: VecDeque::with_capacity(RECENT),
            slowdowns: VecDeque::with_capacity(RECENT),
        }
    }

    /// The share of the time up to `now` is earned, as far as the account goes.
    pub(super) fn earn(&mut self, now: Instant) {
        let since = self.until.replace(now).unwrap_or(now);
        self.earned += self.share * now.saturating_duration_since(since).as_secs_f64();
        if !self.stalls.is_empty() {
            let spent = self.spent();
            let most = spent + 2.0 * self.expected();
            let least = spent - 10.0 * self.worst_but_one();
            self.earned = self.earned.clamp(least, most);
        }
    }

    /// A save made the run stand still.
    pub(super) fn stalled(&mut self, stall: Duration) {
        let stall = stall.as_secs_f64();
        self.settled += stall;
        if self.stalls.len() == RECENT {
            self.stalls.pop_front();
        }
        self.stalls.push_back(stall);
    }

    /// A save made the steps beside it longer.
    pub(super) fn slowed_down(&mut self, slowdown: Slowdown) {
        if self.slowdowns.len() == RECENT {
            self.settled += self.slowdown();
            self.slowdowns.pop_front();
        }
        self.slowdowns.push_back(slowdown);
    }

    /// Whether the account holds what a save is expected to cost; before the first one that is nothing.
    pub(super) fn affords_a_save(&self) -> bool {
        self.earned - self.spent() >= self.expected()
    }

    fn spent(&self) -> f64 {
        self.settled + self.slowdowns.len() as f64 * self.slowdown()
    }

    fn expected(&self) -> f64 {
        median(self.stalls.iter().copied()) + self.slowdown()
    }

    /// By how many seconds a recent save has slowed the run down.
    fn slowdown(&self) -> f64 {
        if self.slowdowns.is_empty() {
            return 0.0;
        }
        let first = median(self.slowdowns.iter().map(|slowdown| slowdown.first));
        let others: f64 = self.slowdowns.iter().map(|slowdown| slowdown.others).sum();
        // Noise cannot make it less than nothing.
        (first + others / self.slowdowns.len() as f64).max(0.0)
    }

    /// The second largest cost of the recent saves, so that one freak alone says nothing.
    fn worst_but_one(&self) -> f64 {
        let mut stalls = sorted(self.stalls.iter().copied());
        let worst = stalls.pop().unwrap_or(0.0);
        stalls.pop().unwrap_or(worst) + self.slowdown()
    }
}

/// The middle one; of two the smaller; 0 of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len().saturating_sub(1) / 2;
    sorted.get(middle).copied().unwrap_or(0.0)
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}
