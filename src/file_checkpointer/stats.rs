//! What saves cost: times and bytes, noted while they go on.

use std::collections::VecDeque;
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// So many saves are kept one by one; of those before only the sums.
const KEPT: usize = 100;

/// The stopwatch of one save, part of its [`Ticket`](super::Ticket). It runs from when it is made; whoever
/// works on the save notes what that took, from any thread and without a lock.
#[derive(Debug)]
pub struct Timings {
    started: Instant,
    stall: AtomicU64,
    snapshot: AtomicU64,
    write: AtomicU64,
    sync: AtomicU64,
    commit: AtomicU64,
    bytes_written: AtomicU64,
    bytes_linked: AtomicU64,
    /// Since the start; 0 until then.
    durable: AtomicU64,
    ended: AtomicU64,
    outcome: AtomicU8,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            started: Instant::now(),
            stall: AtomicU64::default(),
            snapshot: AtomicU64::default(),
            write: AtomicU64::default(),
            sync: AtomicU64::default(),
            commit: AtomicU64::default(),
            bytes_written: AtomicU64::default(),
            bytes_linked: AtomicU64::default(),
            durable: AtomicU64::default(),
            ended: AtomicU64::default(),
            outcome: AtomicU8::new(Outcome::InFlight as u8),
        }
    }
}

/// Nanoseconds; enough for 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

fn duration(nanoseconds: &AtomicU64) -> Duration {
    Duration::from_nanos(nanoseconds.load(Relaxed))
}

impl Timings {
    /// When the save was asked for.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// When it was done with, well or not.
    pub fn ended(&self) -> Option<Instant> {
        let ended = duration(&self.ended);
        (!ended.is_zero()).then(|| self.started + ended)
    }

    /// The training goes on: all that has passed since the start was stall.
    pub fn note_stall(&self) {
        self.stall
            .store(nanoseconds(self.started.elapsed()), Relaxed);
    }

    pub(crate) fn note_snapshot(&self, took: Duration) {
        self.snapshot.fetch_add(nanoseconds(took), Relaxed);
    }

    pub(crate) fn note_write(&self, bytes: u64, took: Duration) {
        self.bytes_written.fetch_add(bytes, Relaxed);
        self.write.fetch_add(nanoseconds(took), Relaxed);
    }

    pub(crate) fn note_sync(&self, took: Duration) {
        self.sync.fetch_add(nanoseconds(took), Relaxed);
    }

    pub(crate) fn note_link(&self, bytes: u64) {
        self.bytes_linked.fetch_add(bytes, Relaxed);
    }

    /// What was linked is thrown away, and written instead.
    pub(super) fn forget_links(&self) {
        self.bytes_linked.store(0, Relaxed);
    }

    pub(crate) fn note_commit(&self, took: Duration) {
        self.commit.fetch_add(nanoseconds(took), Relaxed);
    }

    /// It is durable.
    pub(super) fn finish(&self) {
        self.durable
            .store(nanoseconds(self.started.elapsed()), Relaxed);
        self.outcome.store(Outcome::Saved as u8, Relaxed);
    }

    /// The save ends, by success, error or panic, when the returned value is dropped.
    pub(super) fn ending(&self) -> Ending<'_> {
        Ending(self)
    }

    /// What was noted so far, for a save of `step`.
    pub fn stats(&self, step: u64) -> SaveStats {
        let outcome = match self.outcome.load(Relaxed) {
            outcome if outcome == Outcome::Saved as u8 => Outcome::Saved,
            outcome if outcome == Outcome::Failed as u8 => Outcome::Failed,
            _ => Outcome::InFlight,
        };
        SaveStats {
            step,
            outcome,
            durable: (outcome == Outcome::Saved).then(|| duration(&self.durable)),
            cost: Cost {
                stall: duration(&self.stall),
                snapshot: duration(&self.snapshot),
                write: duration(&self.write),
                sync: duration(&self.sync),
                commit: duration(&self.commit),
                bytes_written: self.bytes_written.load(Relaxed),
                bytes_linked: self.bytes_linked.load(Relaxed),
            },
        }
    }
}

/// Ends a save when dropped; if it is not durable by then, it failed.
pub(super) struct Ending<'a>(&'a Timings);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let Timings {
            started,
            ended,
            outcome,
            ..
        } = self.0;
        let (from, to) = (Outcome::InFlight as u8, Outcome::Failed as u8);
        // An error here means that it was saved.
        let _ = outcome.compare_exchange(from, to, Relaxed, Relaxed);
        ended.store(nanoseconds(started.elapsed()).max(1), Relaxed);
    }
}

/// How a save went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// It is not done yet.
    InFlight,
    /// It is durable.
    Saved,
    /// It failed; nothing was changed.
    Failed,
}

/// What one save cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaveStats {
    /// The step that was saved.
    pub step: u64,
    /// How it went.
    pub outcome: Outcome,
    /// From the call to when the checkpoint was durable, if it is.
    pub durable: Option<Duration>,
    /// What it took; while it is in flight, what it has taken so far.
    pub cost: Cost,
}

/// Times and bytes of one save, or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// The training stood still: from entering the call that saves to leaving it, including the wait for an
    /// earlier save.
    pub stall: Duration,
    /// Copying out of the training's memory, and checksums.
    pub snapshot: Duration,
    /// Writing files.
    pub write: Duration,
    /// Making their bytes durable.
    pub sync: Duration,
    /// Making the checkpoint visible: the rename, and the directories made durable.
    pub commit: Duration,
    /// Bytes written to files.
    pub bytes_written: u64,
    /// Bytes of files that had not changed, and were linked.
    pub bytes_linked: u64,
}

impl Cost {
    /// Bytes that were written and made durable a second; 0 if there were none.
    pub fn rate(&self) -> f64 {
        let seconds = (self.write + self.sync).as_secs_f64();
        if seconds > 0.0 {
            self.bytes_written as f64 / seconds
        } else {
            0.0
        }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.stall += other.stall;
        self.snapshot += other.snapshot;
        self.write += other.write;
        self.sync += other.sync;
        self.commit += other.commit;
        self.bytes_written += other.bytes_written;
        self.bytes_linked += other.bytes_linked;
    }
}

/// What the saves of one checkpointer cost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The last hundred saves, oldest first; one that is in flight is the last.
    pub saves: Vec<SaveStats>,
    /// How many saves are durable.
    pub saved: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were not made, since another was in flight.
    pub skipped: u64,
    /// All saves taken together, those that are not listed any more included.
    pub total: Cost,
}

impl Stats {
    fn count(&mut self, save: &SaveStats) {
        self.saved += u64::from(save.outcome == Outcome::Saved);
        self.failed += u64::from(save.outcome == Outcome::Failed);
        self.total += save.cost;
    }
}

/// The saves of one checkpointer, in as much memory as a hundred of them take.
#[derive(Debug, Default)]
pub struct History {
    recent: VecDeque<(u64, Arc<Timings>)>,
    /// What is not recent any more.
    earlier: Stats,
}

impl History {
    /// A save of `step` was handed over. The one that this pushes out, a hundred saves ago, has long ended.
    pub fn push(&mut self, step: u64, timings: Arc<Timings>) {
        if self.recent.len() == KEPT
            && let Some((step, oldest)) = self.recent.pop_front()
        {
            self.earlier.count(&oldest.stats(step));
        }
        self.recent.push_back((step, timings));
    }

    /// A save was not made, since another was in flight.
    pub fn skip(&mut self) {
        self.earlier.skipped += 1;
    }

    /// The save that was handed over last.
    pub fn last(&self) -> Option<&Timings> {
        self.recent.back().map(|(_, timings)| timings.as_ref())
    }

    /// All there is to know.
    pub fn stats(&self) -> Stats {
        let mut stats = self.earlier.clone();
        for (step, timings) in &self.recent {
            let save = timings.stats(*step);
            stats.count(&save);
            stats.saves.push(save);
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(bytes: u64) -> Arc<Timings> {
        let timings = Timings::default();
        timings.note_write(bytes, Duration::from_millis(3));
        timings.note_sync(Duration::from_millis(1));
        let ending = timings.ending();
        timings.finish();
        drop(ending);
        timings.into()
    }

    #[test]
    fn a_save_fails_unless_it_finishes() {
        let timings = Timings::default();
        assert_eq!(timings.stats(1).outcome, Outcome::InFlight);
        assert_eq!((timings.ended(), timings.stats(1).durable), (None, None));
        drop(timings.ending());
        assert_eq!(timings.stats(1).outcome, Outcome::Failed);
        assert!(timings.ended().is_some());
        assert_eq!(saved(1).stats(1).outcome, Outcome::Saved);
    }

    #[test]
    fn a_panic_ends_a_save_too() {
        let timings = Arc::new(Timings::default());
        let watched = Arc::clone(&timings);
        let worker = std::thread::spawn(move || {
            let _ending = watched.ending();
            std::panic::resume_unwind(Box::new("as a panic does, without a report"));
        });
        assert!(worker.join().is_err());
        assert_eq!(timings.stats(1).outcome, Outcome::Failed);
    }

    #[test]
    fn the_list_is_bounded_and_the_sums_are_not() {
        let mut history = History::default();
        for step in 0..250 {
            history.push(step, saved(1000));
        }
        history.skip();
        history.push(250, Arc::default());
        let stats = history.stats();
        let steps: Vec<u64> = stats.saves.iter().map(|save| save.step).collect();
        assert_eq!(steps, (151..=250).collect::<Vec<_>>());
        assert_eq!((stats.saved, stats.failed, stats.skipped), (250, 0, 1));
        assert_eq!(stats.total.bytes_written, 250_000);
        assert_eq!(stats.total.write, Duration::from_millis(750));
    }

    #[test]
    fn the_rate_is_bytes_by_the_time_that_writing_and_syncing_took() {
        let rate = saved(4000).stats(1).cost.rate();
        assert!((rate - 1e6).abs() < 1e-3, "{rate}");
        assert!(Cost::default().rate().abs() < f64::EPSILON);
    }
}
