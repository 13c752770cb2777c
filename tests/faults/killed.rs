//! The process is killed at every call, and while the next one puts things right, the power goes.

use crate::campaign::run;
use crate::life::Life;
use crate::power::{at_each_call, cut, is_like_before, stop_at};
use crate::scenario::{Scenario, quick};
use crate::time_limit::limited_to;

/// Of the calls of the process that follows, the power goes at every so many, and when all is done.
const STRIDE: usize = 7;

/// Acts until it is killed at the `nth` call. If that is like a kill before, or there is no such call: whether there
/// is one.
fn kill(scenario: &Scenario, nth: usize) -> Result<Life, bool> {
    let mut life = scenario.begin();
    let kill = stop_at(&life.disk, nth);
    scenario.act(&mut life);
    let calls = life.disk.calls();
    if calls.len() <= kill || is_like_before(&calls, kill) {
        return Err(calls.len() > kill);
    }
    Ok(life.next())
}

#[test]
fn a_power_cut_while_the_next_process_puts_things_right_takes_nothing() {
    limited_to(600, || {
        let title = "power cuts while the next process opens and saves, after a kill at every call";
        run(title, &quick(), |scenario| {
            at_each_call(|killed| {
                if let Err(happened) = kill(scenario, killed) {
                    return (0, happened);
                }
                let cuts = at_each_call(|nth| {
                    let mut life = kill(scenario, killed).ok().unwrap();
                    let stop = stop_at(&life.disk, nth);
                    life.open();
                    life.save(60, 1);
                    life.close();
                    let calls = life.disk.calls();
                    let Some(call) = calls.get(stop) else {
                        let at = format!("killed at call {killed}, cut when all was done");
                        return (cut(scenario, &life, 1, &at), false);
                    };
                    // Where exactly differs from call to call.
                    if (killed + nth) % STRIDE != 0 || is_like_before(&calls, stop) {
                        return (0, true);
                    }
                    let at = format!("killed at call {killed}, cut at call {nth}, {call}");
                    (cut(scenario, &life, 1, &at), true)
                });
                (cuts, true)
            })
        });
    });
}
