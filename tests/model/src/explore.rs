//! Runs a test in many orders of its threads.
#![expect(clippy::disallowed_macros, reason = "it says what it tries")]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// Schedules that one seed stands for. PCT learns from the first one how long they are.
const BATCH: usize = 25;
/// Bytes.
const STACK: usize = 1 << 20;

/// Tries so many schedules, unless `MODEL_SCHEDULES` says how many, or `MODEL_SEED` which.
pub(crate) fn explore(schedules: usize, test: impl Fn() + Send + Sync + Copy + 'static) {
    let schedules = number("MODEL_SCHEDULES").unwrap_or(schedules as u64);
    let (first, batches) = match number("MODEL_SEED") {
        Some(seed) => (seed, 1),
        None => (any_seed(), schedules.div_ceil(BATCH as u64)),
    };
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let count = batches * BATCH as u64;
    println!("{name}: {count} schedules, seeds from {first} on");
    for seed in first..first + batches {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed, test))) {
            println!("to see it again: make model MODEL=\"{name}\" MODEL_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// Even seeds choose at random who is next; odd ones go by priorities and change them a few times (PCT), which
/// finds what needs one thread to be far ahead of another.
fn run(seed: u64, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.failure_persistence = FailurePersistence::None;
    if seed.is_multiple_of(2) {
        Runner::new(RandomScheduler::new_from_seed(seed, BATCH), config).run(test);
    } else {
        let changes = 2 + (seed / 2 % 3) as usize;
        Runner::new(PctScheduler::new_from_seed(seed, changes, BATCH), config).run(test);
    }
}

fn any_seed() -> u64 {
    // Short enough to be typed.
    RandomState::new().hash_one(0) >> 32
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(value.parse().expect("a number"))
}
