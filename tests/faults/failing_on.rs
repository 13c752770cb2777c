//! Calls fail, the process lives on and saves again, and then the power goes.

use std::sync::atomic::{AtomicUsize, Ordering};

use pitstop::storage::simulated::{Call, Disk, Fault};

use crate::campaign::run;
use crate::life::Life;
use crate::power::{at_each_call, cut};
use crate::scenario::{Scenario, quick};
use crate::time_limit::limited_to;
use crate::world::RUN;

/// Input/output error.
const EIO: i32 = 5;

/// Of the calls that follow, the power goes at every so many.
const STRIDE: usize = 47;
/// The calls that it takes to undo a change of names that could not be synced, and to begin removing what was staged.
const WAY_BACK: usize = 8;

/// The `nth` call from now fails, and so do those after it, `count` in all; the machine stops at call `stop`
/// after the first of them.
fn fail(life: &Life, nth: usize, count: usize, stop: usize) -> usize {
    let first = life.disk.calls().len() + nth;
    life.disk.on_call(move |number, _| match number {
        number if number == first + stop => Some(Fault::Stop),
        number if (first..first.saturating_add(count)).contains(&number) => Some(Fault::Error(EIO)),
        _ => None,
    });
    first
}

/// Acts with calls that fail, and saves once more.
fn live_on(scenario: &Scenario, life: &mut Life) {
    scenario.act(life);
    life.open();
    life.save(50, 1);
    life.close();
}

/// How many calls after the `nth`, which failed, the power goes.
fn stops(nth: usize, failed: &Call) -> impl Iterator<Item = usize> {
    let close = match failed.operation {
        "sync directory" => WAY_BACK,
        _ => 0,
    };
    // Where exactly differs from call to call.
    let far = (1 + nth % STRIDE..).step_by(STRIDE);
    (1..=close).chain(far.filter(move |&stop| stop > close))
}

#[test]
fn a_power_cut_at_any_call_after_one_that_failed_takes_nothing() {
    let scenarios = quick();
    limited_to(600, move || {
        let title = "power cuts at calls after each that failed, while saving goes on";
        run(title, &scenarios, |scenario| {
            let mut whole = scenario.begin();
            let first = whole.disk.calls().len();
            live_on(scenario, &mut whole);
            let mut cuts = 0;
            for (nth, failed) in whole.disk.calls()[first..].iter().enumerate() {
                for stop in stops(nth, failed) {
                    let mut life = scenario.begin();
                    fail(&life, nth, 1, stop);
                    live_on(scenario, &mut life);
                    let at = format!("call {nth}, {failed}, failed; cut {stop} calls later");
                    cuts += cut(scenario, &life, 1, &at);
                    if life.disk.calls().len() <= first + nth + stop {
                        life.check_sight();
                        break;
                    }
                }
            }
            cuts
        });
    });
}

/// Left out is what is beyond help: a directory that can neither be synced nor removed again; and, where names
/// cannot be exchanged, a replaced checkpoint whose last move could neither be synced nor taken back. Emptied, it
/// may come back after its successor was deleted.
#[test]
fn a_power_cut_after_several_calls_failed_takes_nothing() {
    let is_helped =
        |scenario: &Scenario| scenario.setting.exchanges || !scenario.name.contains("delete");
    let scenarios: Vec<Scenario> = quick().into_iter().skip(1).filter(is_helped).collect();
    limited_to(600, move || {
        let title = "power cuts after two calls, or all, failed from each on";
        run(title, &scenarios, |scenario| {
            at_each_call(|nth| {
                let mut cuts = 0;
                for count in [2, usize::MAX] {
                    let mut life = scenario.begin();
                    let first = fail(&life, nth, count, usize::MAX / 2);
                    scenario.act(&mut life);
                    let calls = life.disk.calls();
                    let Some(call) = calls.get(first) else {
                        return (cuts, false);
                    };
                    let at = format!("{count} calls from {nth}, {call}, failed");
                    cuts += cut(scenario, &life, 1, &at);
                }
                (cuts, true)
            })
        });
    });
}

/// From the `nth` sync of the run on, all of them fail, and nothing else does.
fn fail_syncs(disk: &Disk, nth: usize) {
    let syncs = AtomicUsize::new(0);
    disk.on_call(move |_, call| {
        let fails = is_sync_of_run(call) && syncs.fetch_add(1, Ordering::Relaxed) >= nth;
        fails.then_some(Fault::Error(EIO))
    });
}

fn is_sync_of_run(call: &Call) -> bool {
    call.is("sync directory", RUN)
}

/// Where neither a change of names nor its way back can be synced, a power cut may leave either checkpoint with the
/// name. So what was staged is not removed, though the names in memory are as they were.
#[test]
fn a_power_cut_after_a_replacement_could_not_be_taken_back_takes_nothing() {
    let is_replacement = |scenario: &Scenario| {
        scenario.name.starts_with("overwrite") && !scenario.name.contains("delete")
    };
    let scenarios: Vec<Scenario> = quick().into_iter().filter(is_replacement).collect();
    assert_eq!(scenarios.len(), 2, "with exchange, and without");
    limited_to(600, move || {
        let title = "power cuts after a replacement in which syncs of the run failed for good";
        run(title, &scenarios, |scenario| {
            at_each_call(|nth| {
                let mut life = scenario.begin();
                let before = life.disk.calls().len();
                fail_syncs(&life.disk, nth);
                scenario.act(&mut life);
                let calls = life.disk.calls();
                let mut later = calls[before..].iter();
                let failed = later.by_ref().filter(|call| is_sync_of_run(call)).nth(nth);
                if failed.is_none() {
                    return (0, false);
                }
                let at = format!("all syncs of the run failed from number {nth} on");
                let removed = later.find(|call| call.operation.starts_with("remove"));
                assert_eq!(removed, None, "{}; {at}", scenario.name);
                (cut(scenario, &life, 50, &at), true)
            })
        });
    });
}
