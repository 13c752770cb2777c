//! Runs many scenarios, and prints how much was tried.

use std::fmt;
use std::io::{Write, stderr};
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::scenario::Scenario;

/// Runs `attempt` on each scenario, several at a time; prints what it returns, the number of cuts tried.
pub(crate) fn run(
    title: &str,
    scenarios: &[Scenario],
    attempt: impl Fn(&Scenario) -> usize + Sync,
) {
    let next = AtomicUsize::new(0);
    let counts: Vec<OnceLock<usize>> = scenarios.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        let _stopping = StopAll(&next);
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = scenarios.get(at) else {
                break;
            };
            let _ = counts[at].set(attempt(scenario));
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(2, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let counts: Vec<usize> = counts.iter().map(|count| *count.get().unwrap()).collect();
    let line = |count: usize, what: &str| format!("{count:>8}  {what}\n");
    let mut report = vec![format!("{title}, seed {}:\n", seed())];
    report.extend(
        scenarios
            .iter()
            .zip(&counts)
            .map(|(it, count)| line(*count, it.name)),
    );
    report.push(line(counts.iter().sum(), "in all"));
    // Not through `print!`, which is kept back as long as the test passes.
    stderr().write_all(report.concat().as_bytes()).unwrap();
}

/// When one scenario fails, no other is begun.
struct StopAll<'a>(&'a AtomicUsize);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(usize::MAX / 2, Ordering::Relaxed);
        }
    }
}

/// Where the seeds of random outcomes count from: `PITSTOP_SEED`, or the clock.
pub(crate) fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let from_clock = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_micros() as u64
    };
    *SEED.get_or_init(|| match std::env::var("PITSTOP_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => from_clock(),
    })
}

/// Says what was being tried, if it fails.
pub(crate) struct Trying<T: fmt::Display>(pub(crate) T);

impl<T: fmt::Display> Drop for Trying<T> {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = writeln!(stderr(), "failed: {}", self.0);
        }
    }
}
