//! Whose turn it is at the worker.
//!
//! A rendezvous channel alone can't answer "is the worker busy?": between two jobs it isn't
//! receiving, and so it looks busy when it isn't. Therefore everybody takes a [`Turn`] before
//! sending. Turns are served one at a time and in order, and the turn travels with the job: it ends
//! when the job has.

use std::time::Duration;

use super::lock::lock;
use crate::sync::{Arc, Condvar, Instant, Mutex, PoisonError};

/// Hands out turns, one at a time.
#[derive(Debug, Default)]
pub(super) struct Lane {
    turns: Mutex<Turns>,
    /// Notified whenever a turn ends.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Turns {
    /// How many turns have been taken or are waited for.
    taken: u64,
    /// How many have ended. Turn `n` is served once `n` turns have.
    ended: u64,
}

/// The right to use the worker; ends when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    lane: Arc<Lane>,
    number: u64,
}

impl Lane {
    /// Waits for a turn, behind everybody who came before.
    pub(super) fn enter(self: &Arc<Self>) -> Turn {
        let mut turns = lock(&self.turns);
        let number = turns.taken;
        turns.taken += 1;
        drop(turns);
        self.wait_ended(number, None);
        self.turn(number)
    }

    /// Takes a turn if nobody has one or waits for one.
    pub(super) fn try_enter(self: &Arc<Self>) -> Option<Turn> {
        let mut turns = lock(&self.turns);
        let number = turns.taken;
        if turns.ended != number {
            return None;
        }
        turns.taken += 1;
        Some(self.turn(number))
    }

    fn turn(self: &Arc<Self>, number: u64) -> Turn {
        Turn {
            lane: Arc::clone(self),
            number,
        }
    }

    /// How many turns have been taken so far, those included that are still waited for.
    pub(super) fn taken(&self) -> u64 {
        lock(&self.turns).taken
    }

    /// Whether nobody has a turn or waits for one.
    pub(super) fn is_idle(&self) -> bool {
        let turns = lock(&self.turns);
        turns.taken == turns.ended
    }

    /// Waits until `count` turns have ended; false if the deadline came first.
    pub(super) fn wait_ended(&self, count: u64, deadline: Option<Instant>) -> bool {
        let mut turns = lock(&self.turns);
        while turns.ended < count {
            turns = match deadline {
                None => self
                    .ended
                    .wait(turns)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    let waited = self.ended.wait_timeout(turns, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }
}

impl Turn {
    /// How many turns will have ended once this one has.
    pub(super) fn count(&self) -> u64 {
        self.number + 1
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.lane.turns).ended += 1;
        self.lane.ended.notify_all();
    }
}

/// When a timeout runs out; `None` if that is never, or further away than the clock reaches.
pub(super) fn deadline(timeout: Option<Duration>) -> Option<Instant> {
    Instant::now().checked_add(timeout?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_does_not_wait_for_turns_that_come_later() {
        let lane = Arc::new(Lane::default());
        let first = lane.enter();
        let so_far = lane.taken();
        assert!(!lane.wait_ended(so_far, Some(Instant::now())));
        drop(first);
        let _second = lane.enter();
        assert!(lane.wait_ended(so_far, Some(Instant::now())));
        assert!(!lane.is_idle());
    }

    #[test]
    fn a_turn_is_not_to_be_had_while_somebody_has_one() {
        let lane = Arc::new(Lane::default());
        let turn = lane.try_enter().unwrap();
        assert!(lane.try_enter().is_none());
        drop(turn);
        assert!(lane.is_idle());
        assert!(lane.try_enter().is_some());
    }
}
