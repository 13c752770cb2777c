//! Calls fail, the process lives on and saves again, and then the power goes.

use pitstop::storage::simulated::Fault;

use crate::campaign::run;
use crate::life::Life;
use crate::power::{at_each_call, cut};
use crate::scenario::{ALL, Scenario};
use crate::time_limit::limited_to;

/// Input/output error.
const EIO: i32 = 5;

/// At every so many calls the power goes.
const STRIDE: usize = 7;

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

#[test]
fn a_power_cut_at_any_call_after_one_that_failed_takes_nothing() {
    let quick = |scenario: &&Scenario| !scenario.setting.recycle;
    let scenarios: Vec<Scenario> = ALL.iter().filter(quick).copied().collect();
    limited_to(300, move || {
        let title = "power cuts at calls after each that failed, while saving goes on";
        run(title, &scenarios, |scenario| {
            at_each_call(|nth| {
                let mut cuts = 0;
                // Where exactly differs from call to call.
                for stop in (1 + nth % STRIDE..).step_by(STRIDE) {
                    let mut life = scenario.begin();
                    let first = fail(&life, nth, 1, stop);
                    live_on(scenario, &mut life);
                    let calls = life.disk.calls();
                    let Some(call) = calls.get(first) else {
                        return (cuts, false);
                    };
                    let at = format!("call {nth}, {call}, failed; cut {stop} calls later");
                    cuts += cut(scenario, &life, 1, &at);
                    if calls.len() <= first + stop {
                        life.check_sight();
                        break;
                    }
                }
                (cuts, true)
            })
        });
    });
}

/// Directories are made before: one that can neither be synced nor removed again is beyond help.
#[test]
fn a_power_cut_after_several_calls_failed_takes_nothing() {
    let scenarios: Vec<Scenario> = ALL.iter().skip(1).copied().collect();
    limited_to(300, move || {
        let title = "power cuts after two, three, or all calls failed from each on";
        run(title, &scenarios, |scenario| {
            at_each_call(|nth| {
                let mut cuts = 0;
                for count in [2, 3, usize::MAX] {
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
