//! A power cut at every call, with every outcome.

use std::fmt;

use pitstop::storage::simulated::{Call, Disk, Fault, Outcome};

use crate::campaign::{Trying, run, seed};
use crate::life::{Life, check_names};
use crate::scenario::{ALL, Scenario};
use crate::time_limit::limited_to;
use crate::world::{look, world};

/// What a violation is reported with.
pub(crate) struct Cut<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) life: &'a Life,
    /// What happened before, and the call that was not made any more.
    pub(crate) at: String,
    pub(crate) outcome: Outcome,
}

impl fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, at) = (self.scenario.name, &self.at);
        writeln!(f, "{name}; {at}; {:?}, seed {}, of", self.outcome, seed())?;
        let unsynced = self.life.disk.unsynced();
        let mut numbered = unsynced.iter().enumerate();
        numbered.try_for_each(|(number, call)| writeln!(f, "  {number}: {call}"))
    }
}

/// Looks at every outcome of a power cut now. Returns how many there were.
pub(crate) fn cut(scenario: &Scenario, life: &Life, random: usize, at: &str) -> usize {
    let outcomes = life.disk.outcomes(random, seed());
    for &outcome in &outcomes {
        let at = at.to_owned();
        let _trying = Trying(Cut {
            scenario,
            life,
            at,
            outcome,
        });
        life.check_wake(outcome);
    }
    outcomes.len()
}

/// Lets one call after another be the one at which something happens. `attempt` returns the number of cuts tried,
/// and whether there was such a call.
pub(crate) fn at_each_call(mut attempt: impl FnMut(usize) -> (usize, bool)) -> usize {
    let mut cuts = 0;
    for nth in 0.. {
        let (tried, happened) = attempt(nth);
        cuts += tried;
        if !happened {
            break;
        }
    }
    cuts
}

/// Lets the machine stop at the `nth` call from now. Returns the number of that call.
pub(crate) fn stop_at(disk: &Disk, nth: usize) -> usize {
    fail_from(disk, nth, 1, Fault::Stop)
}

/// Lets the `nth` call from now fail, and those after it, `count` in all. Returns the number of the first.
pub(crate) fn fail_from(disk: &Disk, nth: usize, count: usize, fault: Fault) -> usize {
    let first = disk.calls().len() + nth;
    let failing = first..first.saturating_add(count);
    disk.on_call(move |number, _| failing.contains(&number).then_some(fault));
    first
}

/// Whether a stop at this call finds what one at the call before it does, since that only looked.
pub(crate) fn is_like_before(calls: &[Call], stop: usize) -> bool {
    let looks = |call: &Call| ["list", "look at", "open", "read"].contains(&call.operation);
    stop > 0 && calls.get(stop - 1).is_some_and(looks)
}

#[test]
fn a_power_cut_at_any_call_takes_nothing_that_was_reported_and_leaves_nothing_half() {
    limited_to(600, || {
        run("power cuts at every call", &ALL, |scenario| {
            at_each_call(|nth| {
                let mut life = scenario.begin();
                let stop = stop_at(&life.disk, nth);
                scenario.act(&mut life);
                let calls = life.disk.calls();
                let Some(call) = calls.get(stop) else {
                    life.check_sight();
                    check_names(&life.disk);
                    assert_eq!(&world(&look(&life.disk)), life.ledger.settled());
                    return (cut(scenario, &life, 4, "cut when all was done"), false);
                };
                let at = format!("cut before call {nth}, {call}");
                (cut(scenario, &life, 4, &at), true)
            })
        });
    });
}
