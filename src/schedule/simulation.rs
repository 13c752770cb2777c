//! Whole runs on a clock of their own: what saves really cost them, against what they were allowed to.

use std::time::{Duration, Instant};

use super::{Interval, Schedule};

/// A run, and what a save does to it. Times in seconds.
struct Trainer<'a> {
    /// How long a step takes by itself, given its number and a random number in [0, 1).
    step: &'a dyn Fn(u64, f64) -> f64,
    /// How long save number `n` makes the run stand still.
    stall: &'a dyn Fn(u64) -> f64,
    /// How long the first step after a save waits for the snapshot.
    wait: f64,
    /// How long a save is in flight, and how much longer steps take meanwhile: 0.5 is half as long again.
    flight: f64,
    slowdown: f64,
    /// Whether the schedule is told when a save ended.
    tells_the_end: bool,
    seed: u64,
}

impl Default for Trainer<'_> {
    fn default() -> Self {
        Trainer {
            step: &|_, _| 0.2,
            stall: &|_| 0.1,
            wait: 0.0,
            flight: 3.0,
            slowdown: 0.0,
            tells_the_end: true,
            seed: 1,
        }
    }
}

/// What became of a run.
#[derive(Debug)]
struct Ran {
    /// Seconds.
    time: f64,
    /// Seconds that it would not have taken without saves.
    lost: f64,
    /// When each save was asked for.
    saves: Vec<f64>,
}

impl Ran {
    fn share(&self) -> f64 {
        self.lost / self.time
    }

    fn longest_gap(&self) -> f64 {
        let gaps = self.saves.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.fold(0.0, f64::max)
    }
}

impl Trainer<'_> {
    fn runs_for(&self, seconds: f64, interval: &Interval) -> Ran {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs_f64(seconds);
        let mut schedule = Schedule::new(interval.clone(), start);
        let mut random = Random(self.seed);
        let (mut now, mut lost, mut saves) = (0.0, 0.0, Vec::new());
        let (mut in_flight_until, mut waits) = (0.0, 0.0);
        let mut step = 0;
        while now < seconds {
            step += 1;
            let alone = (self.step)(step, random.next());
            let before = now;
            // Beside the flight that is left, work goes on slowly.
            let slow = f64::max(in_flight_until - now, 0.0);
            let done = slow / (1.0 + self.slowdown);
            now += if alone < done {
                alone * (1.0 + self.slowdown)
            } else {
                slow + alone - done
            };
            now += std::mem::take(&mut waits);
            lost += now - before - alone;
            let save_in_flight = now < in_flight_until;
            if self.tells_the_end && !save_in_flight {
                schedule.ended(at(in_flight_until));
            }
            if schedule.should_save(step, at(now), save_in_flight) {
                assert!(!save_in_flight, "asked for at {now}");
                let stall = (self.stall)(saves.len() as u64);
                saves.push(now);
                schedule.saved(step, at(now), at(now + stall));
                now += stall;
                lost += stall;
                waits = self.wait;
                in_flight_until = now + self.flight;
            }
        }
        let time = now;
        Ran { time, lost, saves }
    }

    /// Runs for long with that budget: all of it is used, and no more.
    #[track_caller]
    fn spends(&self, share: f64, cost: f64) -> Ran {
        let ran = self.runs_for(60.0 * cost / share, &Interval::overhead(share).unwrap());
        let spent = ran.share() / share;
        let Trainer {
            wait,
            flight,
            slowdown,
            tells_the_end,
            seed,
            ..
        } = self;
        assert!(
            (0.5..=1.05).contains(&spent),
            "{spent} of the budget {share} is spent: {wait} {flight} {slowdown} {tells_the_end} {seed}, {:?}",
            ran.saves
        );
        ran
    }
}

/// Numbers in [0, 1), the same ones in every run of a test.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn a_stall_alone_fills_the_budget_whatever_a_step_takes() {
    for step in [0.005, 0.1, 1.0, 7.0, 40.0] {
        for stall in [0.5, 5.0, 60.0] {
            for share in [0.005, 0.02, 0.1] {
                let apart = stall / share;
                // Steps as long as saves are apart leave little to choose; millions of them take long to try.
                if apart < 20.0 || !(4.0..=10_000.0).contains(&(apart / step)) {
                    continue;
                }
                let trainer = Trainer {
                    step: &|_, _| step,
                    stall: &|_| stall,
                    ..Trainer::default()
                };
                trainer.spends(share, stall);
            }
        }
    }
}

#[test]
fn a_slow_down_alone_fills_the_budget_whatever_a_step_takes() {
    for step in [0.01, 0.2, 1.0, 3.0] {
        for (flight, slowdown) in [(4.0, 0.3), (15.0, 0.1), (15.0, 1.0), (3.0, 5.0)] {
            for tells_the_end in [true, false] {
                let trainer = Trainer {
                    step: &|_, random| step * (0.95 + 0.1 * random),
                    stall: &|_| 0.001,
                    flight,
                    slowdown,
                    tells_the_end,
                    ..Trainer::default()
                };
                let cost = flight * slowdown / (1.0 + slowdown);
                trainer.spends(0.02, cost);
            }
        }
    }
}

#[test]
fn the_wait_for_a_deferred_snapshot_counts() {
    for step in [0.05, 0.5, 2.0] {
        let trainer = Trainer {
            step: &|_, random| step * (0.9 + 0.2 * random),
            stall: &|_| 0.002,
            wait: 0.6,
            flight: 4.0,
            slowdown: 0.05,
            ..Trainer::default()
        };
        trainer.spends(0.02, 0.8);
    }
}

#[test]
fn noise_of_the_steps_is_not_taken_for_a_cost() {
    // Even, uneven as sequences of different lengths are, and every fourth step three times as long.
    let kinds: [&dyn Fn(u64, f64) -> f64; 3] = [
        &|_, random| 0.1 + 0.2 * random,
        &|_, random| 0.02 + 0.4 * random.powi(3),
        &|step, _| if step.is_multiple_of(4) { 0.3 } else { 0.1 },
    ];
    for step in kinds {
        for seed in 1..=5 {
            let trainer = Trainer {
                step,
                seed,
                stall: &|_| 0.5,
                flight: 2.0,
                ..Trainer::default()
            };
            trainer.spends(0.02, 0.5);
        }
    }
}

#[test]
fn a_validation_now_and_then_is_neither_a_cost_nor_a_usual_step() {
    let trainer = Trainer {
        // It takes 300 times as long as a step, and the loader hiccups.
        step: &|step, random| match step % 200 {
            0 => 30.0,
            _ if random < 0.01 => 2.0,
            _ => 0.1,
        },
        stall: &|_| 0.3,
        flight: 2.0,
        slowdown: 0.2,
        ..Trainer::default()
    };
    trainer.spends(0.02, 0.6);
}

#[test]
fn a_validation_right_after_the_first_save_does_not_put_off_the_second() {
    let trainer = Trainer {
        step: &|step, _| if step == 52 { 600.0 } else { 0.1 },
        ..Trainer::default()
    };
    let ran = trainer.runs_for(2000.0, &Interval::overhead(0.02).unwrap());
    // The save was in flight for 3 s, so that is the most that it can have cost.
    assert!(ran.saves[1] < 610.0, "{:?}", &ran.saves[..3]);
}

#[test]
fn the_first_save_comes_early_and_not_at_once() {
    let first = |seconds: f64| {
        let trainer = Trainer {
            step: &|_, _| seconds,
            stall: &|_| 20.0,
            ..Trainer::default()
        };
        let ran = trainer.runs_for(1000.0, &Interval::overhead(0.02).unwrap());
        ran.saves[0]
    };
    assert!((4.99..5.1).contains(&first(0.01)), "{}", first(0.01));
    assert!((19.0..23.0).contains(&first(1.0)), "{}", first(1.0));
    assert!((60.0..81.0).contains(&first(10.0)), "{}", first(10.0));
    assert!((600.0..601.0).contains(&first(300.0)), "{}", first(300.0));
}

#[test]
fn the_second_save_waits_until_the_first_is_paid_for() {
    let trainer = Trainer {
        stall: &|_| 4.0,
        ..Trainer::default()
    };
    let ran = trainer.runs_for(5000.0, &Interval::overhead(0.02).unwrap());
    // Two saves of 4 s are 2 % of 400 s; from then on one is due every 200 s.
    assert!((395.0..405.0).contains(&ran.saves[1]), "{:?}", ran.saves);
    for (number, pair) in ran.saves[1..].windows(2).enumerate() {
        let gap = pair[1] - pair[0];
        assert!((195.0..205.0).contains(&gap), "{number}: {gap}");
    }
}

#[test]
fn saves_that_cost_next_to_nothing_are_not_made_all_the_time() {
    let trainer = Trainer {
        step: &|_, _| 0.01,
        stall: &|_| 1e-4,
        flight: 0.02,
        ..Trainer::default()
    };
    let ran = trainer.runs_for(600.0, &Interval::overhead(0.02).unwrap());
    assert!(
        (100..=120).contains(&ran.saves.len()),
        "{}",
        ran.saves.len()
    );
}

#[test]
fn a_long_flight_leaves_steps_to_compare_with() {
    // Hardly slower beside a save that takes two minutes: the budget allows them back to back.
    let trainer = Trainer {
        stall: &|_| 0.05,
        flight: 120.0,
        ..Trainer::default()
    };
    let ran = trainer.runs_for(3600.0, &Interval::overhead(0.02).unwrap());
    assert!((25..=30).contains(&ran.saves.len()), "{}", ran.saves.len());
}

#[test]
fn a_cost_that_drifts_is_followed() {
    let later = |save: u64| if save < 40 { 0.2 } else { 2.0 };
    let trainer = Trainer {
        stall: &later,
        ..Trainer::default()
    };
    trainer.spends(0.02, 2.0);
    let earlier = |save: u64| if save < 20 { 2.0 } else { 0.2 };
    let trainer = Trainer {
        stall: &earlier,
        ..Trainer::default()
    };
    trainer.spends(0.02, 2.0);
}

#[test]
fn a_save_that_was_held_up_once_is_forgiven_in_part() {
    // A storage that hung for twenty minutes would forbid saves for seventeen hours.
    let hangs_once = |save: u64| if save == 10 { 1200.0 } else { 0.5 };
    let trainer = Trainer {
        stall: &hangs_once,
        ..Trainer::default()
    };
    let ran = trainer.runs_for(4000.0, &Interval::overhead(0.02).unwrap());
    let gap = ran.longest_gap() - 1200.0;
    assert!((100.0..400.0).contains(&gap), "{gap}");
    // If it goes on like that, it is no freak.
    let keeps_hanging = |save: u64| if save >= 10 { 100.0 } else { 0.5 };
    let trainer = Trainer {
        stall: &keeps_hanging,
        ..Trainer::default()
    };
    trainer.spends(0.02, 100.0 * 3.0);
}

#[test]
fn a_long_pause_is_not_followed_by_a_burst() {
    let trainer = Trainer {
        step: &|step, _| if step == 2000 { 36_000.0 } else { 0.2 },
        stall: &|_| 1.0,
        ..Trainer::default()
    };
    let ran = trainer.runs_for(38_000.0, &Interval::overhead(0.02).unwrap());
    let after: Vec<f64> = ran
        .saves
        .iter()
        .copied()
        .filter(|at| *at > 36_000.0)
        .collect();
    // One at once, one for what was left, and then again every 50 s.
    assert!(after[2] - after[0] > 40.0, "{after:?}");
}

#[test]
fn saves_by_hand_are_paid_from_the_same_account() {
    let trainer = Trainer {
        stall: &|_| 1.0,
        ..Trainer::default()
    };
    let both = Interval::overhead(0.02).unwrap() | Interval::every_steps(100).unwrap();
    // A save every 20 s costs 5 %: the budget asks for none in addition.
    let ran = trainer.runs_for(4000.0, &both);
    let alone = trainer.runs_for(4000.0, &Interval::every_steps(100).unwrap());
    assert!(ran.saves.len() <= alone.saves.len() + 1);
}
