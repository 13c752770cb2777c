//! The process is killed at every call, and while the next one puts things right, the power goes.

use crate::campaign::run;
use crate::life::Life;
use crate::power::{at_each_call, cut, is_like_before, stop_at};
use crate::scenario::{ALL, Scenario};
use crate::time_limit::limited_to;

/// All but those that take long.
fn scenarios() -> Vec<Scenario> {
    let quick = |scenario: &&Scenario| !scenario.setting.recycle;
    ALL.iter().filter(quick).copied().collect()
}

/// Acts until it is killed at the `nth` call; `None` if it makes fewer.
fn kill(scenario: &Scenario, nth: usize) -> Option<Life> {
    let mut life = scenario.begin();
    let kill = stop_at(&life, nth);
    scenario.act(&mut life);
    (life.disk.calls().len() > kill).then(|| life.next())
}

#[test]
fn a_power_cut_while_the_next_process_puts_things_right_takes_nothing() {
    limited_to(300, || {
        let title = "power cuts while the next process opens and saves, after a kill at every call";
        run(title, &scenarios(), |scenario| {
            at_each_call(|killed| {
                if kill(scenario, killed).is_none() {
                    return (0, false);
                }
                let cuts = at_each_call(|nth| {
                    let mut life = kill(scenario, killed).unwrap();
                    let stop = stop_at(&life, nth);
                    life.open();
                    life.save(60, 1);
                    life.close();
                    let calls = life.disk.calls();
                    if is_like_before(&calls, stop) {
                        return (0, true);
                    }
                    let call = calls.get(stop);
                    let before = call.map_or("all was done".to_owned(), ToString::to_string);
                    let at = format!("killed at call {killed}, cut at call {nth}, {before}");
                    (cut(scenario, &life, 1, &at), call.is_some())
                });
                (cuts, true)
            })
        });
    });
}
