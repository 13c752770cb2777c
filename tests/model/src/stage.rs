//! A checkpointer that watches, and the book of who was told what.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use pitstop::{Checkpointer, CheckpointerError, Failure};
use shuttle::rand::{Rng, thread_rng};

/// Somebody else may go on.
pub(crate) fn pause() {
    shuttle::thread::sleep(Duration::ZERO);
}

pub(crate) fn any(below: usize) -> usize {
    thread_rng().gen_range(0..below)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an operation on an epoch comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fate {
    Works,
    Fails,
    Panics,
}

pub(crate) fn fate(epoch: usize) -> Fate {
    match epoch % 4 {
        2 => Fate::Fails,
        3 => Fate::Panics,
        _ => Fate::Works,
    }
}

/// What was seen on the stage. Its own primitives are std's: they are no part of the model.
#[derive(Default)]
pub(crate) struct Seen {
    inside: AtomicUsize,
    most_inside: AtomicUsize,
    /// Epochs, in the order in which the operations on them ended.
    done: Mutex<Vec<usize>>,
    let_go: AtomicBool,
}

impl Seen {
    pub(crate) fn done(&self) -> Vec<usize> {
        lock(&self.done).clone()
    }

    pub(crate) fn is_done(&self, epoch: usize) -> bool {
        lock(&self.done).contains(&epoch)
    }

    /// The checkpointer has been dropped.
    pub(crate) fn let_go(&self) -> bool {
        self.let_go.load(SeqCst)
    }

    pub(crate) fn most_inside(&self) -> usize {
        self.most_inside.load(SeqCst)
    }
}

/// The record of an epoch is its number, to be found where it belongs only.
#[derive(Default)]
pub(crate) struct Stage(pub(crate) Arc<Seen>);

impl Stage {
    fn act(&self, epoch: usize) -> Result<(), CheckpointerError> {
        let seen = &self.0;
        seen.most_inside
            .fetch_max(seen.inside.fetch_add(1, SeqCst) + 1, SeqCst);
        pause();
        seen.inside.fetch_sub(1, SeqCst);
        lock(&seen.done).push(epoch);
        match fate(epoch) {
            Fate::Works => Ok(()),
            Fate::Fails => Err(CheckpointerError::Unknown(text(epoch))),
            // As a panic, but for the report.
            Fate::Panics => resume_unwind(Box::new(text(epoch))),
        }
    }
}

fn text(epoch: usize) -> String {
    format!("epoch {epoch}")
}

impl Checkpointer<usize> for Stage {
    fn save(&self, epoch: usize, record: usize) -> Result<(), CheckpointerError> {
        assert_eq!(record, epoch);
        self.act(epoch)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        self.act(epoch)
    }

    fn restore(&self, epoch: usize) -> Result<usize, CheckpointerError> {
        self.act(epoch)?;
        Ok(epoch)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.0.let_go.store(true, SeqCst);
    }
}

/// Who told of a failure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Teller {
    /// The handle of the operation, which may repeat what a call has told.
    Handle,
    Call,
}

#[derive(Debug)]
struct Told {
    epoch: usize,
    by: Teller,
    /// When the call began, and when it returned.
    began: u64,
    returned: u64,
}

/// What the callers were told.
#[derive(Default)]
pub(crate) struct Book {
    clock: AtomicU64,
    epochs: AtomicUsize,
    accepted: Mutex<Vec<usize>>,
    told: Mutex<Vec<Told>>,
}

impl Book {
    pub(crate) fn now(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    /// A new epoch.
    pub(crate) fn epoch(&self, fate: Fate) -> usize {
        4 * self.epochs.fetch_add(1, SeqCst) + [0, 2, 3][fate as usize]
    }

    pub(crate) fn any_epoch(&self) -> usize {
        self.epoch([Fate::Works, Fate::Works, Fate::Fails, Fate::Panics][any(4)])
    }

    pub(crate) fn accepted(&self, epoch: usize) {
        lock(&self.accepted).push(epoch);
    }

    /// Notes the failure that a call which began then has returned.
    pub(crate) fn call_told(&self, failure: &Failure, began: u64) {
        self.note(failure, Teller::Call, began);
    }

    /// Notes the failure that a handle has told of.
    pub(crate) fn handle_told(&self, failure: &Failure) {
        self.note(failure, Teller::Handle, self.now());
    }

    fn note(&self, failure: &Failure, by: Teller, began: u64) {
        let told = Told {
            epoch: failure.epoch(),
            by,
            began,
            returned: self.now(),
        };
        lock(&self.told).push(told);
    }

    /// All is over. What was accepted was done, and nothing else; each failure was told once: by a call, by its
    /// handle, or in the log.
    pub(crate) fn balance(&self, seen: &Seen) {
        let (mut accepted, mut done) = (lock(&self.accepted).clone(), seen.done());
        accepted.sort_unstable();
        done.sort_unstable();
        assert_eq!(accepted, done, "accepted, and done");
        assert!(seen.most_inside() <= 1, "one at a time");
        let (told, log) = (lock(&self.told), take_log());
        for epoch in accepted {
            let calls: Vec<_> = told_by(&told, epoch, Teller::Call).collect();
            let handles: Vec<_> = told_by(&told, epoch, Teller::Handle).collect();
            let logged = log.iter().filter(|line| names(line, epoch)).count();
            let times = calls.len() + logged;
            assert!(times <= 1, "epoch {epoch}: told {times} times");
            // A restore that fails is not told of later, nor is a caller who went away.
            if fate(epoch) != Fate::Works && handles.is_empty() {
                assert_eq!(times, 1, "epoch {epoch}: nobody was told");
            }
            for (handle, call) in handles
                .iter()
                .flat_map(|h| calls.iter().map(move |c| (h, c)))
            {
                assert!(
                    call.began <= handle.returned,
                    "{call:?}, which {handle:?} had told before"
                );
            }
        }
    }
}

fn told_by(told: &[Told], epoch: usize, by: Teller) -> impl Iterator<Item = &Told> {
    let wanted = move |told: &&Told| told.epoch == epoch && told.by == by;
    told.iter().filter(wanted)
}

fn names(line: &str, epoch: usize) -> bool {
    line.contains(&format!("`{}`", text(epoch)))
}

thread_local! {
    /// All threads of a model are one to the system, and models run side by side.
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LOG.with_borrow_mut(|log| log.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

/// From here on the log is kept, and it is empty.
pub(crate) fn keep_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Logger).expect("there is no other");
        log::set_max_level(log::LevelFilter::Error);
    });
    LOG.take();
}

fn take_log() -> Vec<String> {
    LOG.take()
}
