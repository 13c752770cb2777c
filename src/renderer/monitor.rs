//! Watches the saves of a checkpointer, for the screen.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::checkpoints::{Checkpoints, Committed, InFlight, Kept};
use crate::checkpointer::{Checkpointer, CheckpointerError};
use crate::commit::Retention;
use crate::file_checkpointer::{CheckpointInfo, Outcome, Run, Ticket, Transfer};

/// How long one look at the directory may take; the next one goes on.
const LOOK: Duration = Duration::from_millis(20);
/// So many saves are remembered one by one until the next look.
const SAVED: usize = 1000;

/// Knows how the checkpoints of a run stand: shared by whoever saves, and the [`Screen`](super::Screen).
///
/// [`around`](Self::around) a checkpointer it sees all that there is to see. The directory is read once, and for each
/// save that has ended; never while nothing happens.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
///
/// use pitstop::renderer::{Monitor, Screen, ScreenOptions};
/// use pitstop::{AsyncCheckpointer, Checkpointer, FileCheckpointer, Node, Options, Retention};
/// use pitstop::{State, Transfer};
///
/// # let directory = tempfile::tempdir()?;
/// let retention = Retention::keep_last(3)?;
/// let options = Options { retention: retention.clone(), ..Options::default() };
/// let files = FileCheckpointer::open(directory.path(), options)?;
/// let monitor = Arc::new(Monitor::new(files.run().clone(), retention));
/// let checkpointer = AsyncCheckpointer::new(monitor.around(files));
/// let shown = Arc::clone(&monitor);
/// let screen = Screen::plain(ScreenOptions {
///     checkpoints: Some(Box::new(move || shown.look())),
///     ..ScreenOptions::default()
/// });
///
/// checkpointer.save(500, Transfer::from(State { root: Node::from(7), ..State::default() }))?;
/// checkpointer.close()?;
/// let checkpoints = monitor.look();
/// assert_eq!((checkpoints.saved, checkpoints.failed), (1, 0));
/// assert_eq!(checkpoints.last.map(|last| last.step), Some(500));
/// assert_eq!(checkpoints.kept[0].why, "KeepLast(3)");
/// # screen.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Monitor {
    run: Run,
    /// Held for a moment only: whoever saves must not wait for a look.
    watched: Mutex<Watched>,
    /// Held while the directory is read, by whoever looks.
    shelf: Mutex<Shelf>,
}

/// A [`Checkpointer`] whose saves a [`Monitor`] sees.
#[derive(Debug)]
pub struct Monitored<C> {
    files: C,
    monitor: Arc<Monitor>,
}

/// What is known so far.
struct Watched {
    retention: Retention,
    /// The save that was begun last.
    current: Option<Current>,
    last: Option<Committed>,
    saved: u64,
    failed: u64,
    skipped: u64,
    /// Their steps, and the reasons that are known.
    failures: VecDeque<(u64, Option<String>)>,
    news: News,
}

struct Current {
    step: u64,
    ticket: Arc<Ticket>,
    /// Its end is counted already.
    is_counted: bool,
}

/// What has changed in the directory since the last look.
#[derive(Default)]
struct News {
    /// Whether anything has.
    is_any: bool,
    /// Steps that were saved, perhaps in the place of others.
    saved: Vec<u64>,
    /// Nobody has looked for long: there were too many to list.
    is_all: bool,
}

/// The checkpoints that there are, as far as they have been read.
#[derive(Default)]
struct Shelf {
    known: BTreeMap<u64, CheckpointInfo>,
    unread: Vec<u64>,
    kept: Vec<Kept>,
}

impl Monitor {
    /// Watches the saves into `run`, of which `retention` keeps some.
    pub fn new(run: Run, retention: Retention) -> Monitor {
        let news = News {
            is_any: true,
            ..News::default()
        };
        Monitor {
            run,
            watched: Mutex::new(Watched {
                retention,
                current: None,
                last: None,
                saved: 0,
                failed: 0,
                skipped: 0,
                failures: VecDeque::new(),
                news,
            }),
            shelf: Mutex::default(),
        }
    }

    /// The checkpointer, with its saves seen by this.
    pub fn around<C: Checkpointer<Transfer>>(self: &Arc<Monitor>, files: C) -> Monitored<C> {
        Monitored {
            files,
            monitor: Arc::clone(self),
        }
    }

    /// A save of `step` begins, which `ticket` follows. The one before has ended.
    pub fn saving(&self, step: u64, ticket: &Arc<Ticket>) {
        let mut watched = self.watched();
        watched.settle();
        watched.current = Some(Current {
            step,
            ticket: Arc::clone(ticket),
            is_counted: false,
        });
    }

    /// The save of `step` has failed, and why.
    pub fn failed(&self, step: u64, message: &str) {
        let mut watched = self.watched();
        watched.settle();
        if let Some((failed, why @ None)) = watched.failures.back_mut()
            && *failed == step
        {
            // It was seen to fail, and this is the reason.
            *why = Some(message.to_owned());
            return;
        }
        if let Some(current) = &mut watched.current
            && current.step == step
        {
            current.is_counted = true;
        }
        watched.note_failure(step, Some(message.to_owned()));
    }

    /// A save was not made, since another was in flight.
    pub fn skipped(&self) {
        self.watched().skipped += 1;
    }

    /// From now on this rule keeps some.
    pub fn keeping(&self, retention: Retention) {
        let mut watched = self.watched();
        watched.retention = retention;
        watched.news.is_any = true;
    }

    /// How checkpoints stand. Reads a few manifests after a save has ended, else nothing; waits for no save.
    pub fn look(&self) -> Checkpoints {
        let mut checkpoints = lock(&self.shelf);
        let mut watched = self.watched();
        watched.settle();
        let mut seen = watched.tell(self.run.directory().display().to_string());
        let news = std::mem::take(&mut watched.news);
        let retention = watched.retention.clone();
        drop(watched);
        checkpoints.look(&self.run, &news, &retention);
        seen.kept.clone_from(&checkpoints.kept);
        seen.last = seen.last.or_else(|| checkpoints.newest());
        seen
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        lock(&self.watched)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor")
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl Watched {
    /// Counts the save that was begun last, once it has ended.
    fn settle(&mut self) {
        let Some(current) = &mut self.current else {
            return;
        };
        let (step, timings) = (current.step, &current.ticket.timings);
        let stats = timings.stats(step);
        let has_ended = timings.ended().is_some();
        if let Some(info) = current.ticket.info() {
            let stall = stats.cost.stall;
            self.last = Some(Committed {
                step,
                at: seconds_since_1970(info.created),
                bytes: info.nbytes,
                // Noted when the training goes on, which may be later than the commit.
                stall: (!stall.is_zero()).then_some(stall.as_secs_f64()),
                durable: stats.durable.map(|durable| durable.as_secs_f64()),
            });
            if !std::mem::replace(&mut current.is_counted, true) {
                self.saved += 1;
            }
            if has_ended {
                self.news.note_saved(step);
            }
        } else if stats.outcome == Outcome::Failed
            && !std::mem::replace(&mut current.is_counted, true)
        {
            self.note_failure(step, None);
        }
        if has_ended {
            self.current = None;
            // Retention has been at work.
            self.news.is_any = true;
        }
    }

    fn note_failure(&mut self, step: u64, message: Option<String>) {
        self.failed += 1;
        if self.failures.len() == Checkpoints::FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back((step, message));
    }

    fn in_flight(&self) -> Option<InFlight> {
        let Current { step, ticket, .. } = self.current.as_ref()?;
        if ticket.info().is_some() {
            return None;
        }
        let (done, total) = ticket.progress();
        Some(InFlight {
            step: *step,
            done,
            total,
            seconds: ticket.timings.started().elapsed().as_secs_f64(),
        })
    }

    fn tell(&self, directory: String) -> Checkpoints {
        let failure = |(step, message): &(u64, Option<String>)| {
            let message = message.as_deref().unwrap_or("the save has failed");
            format!("step {step}: {message}")
        };
        Checkpoints {
            directory,
            in_flight: self.in_flight(),
            last: self.last.clone(),
            saved: self.saved,
            failed: self.failed,
            skipped: self.skipped,
            failures: self.failures.iter().map(failure).collect(),
            kept: Vec::new(),
        }
    }
}

impl News {
    fn note_saved(&mut self, step: u64) {
        if self.saved.len() < SAVED {
            self.saved.push(step);
        } else {
            self.is_all = true;
        }
    }
}

impl Shelf {
    /// Reads what is new, though not for long.
    fn look(&mut self, run: &Run, news: &News, retention: &Retention) {
        if news.is_all {
            self.known.clear();
        }
        for step in &news.saved {
            self.known.remove(step);
        }
        if news.is_any {
            self.list(run);
        } else if self.unread.is_empty() {
            return;
        }
        let began = Instant::now();
        while let Some(step) = self.unread.pop() {
            match run.info(step) {
                Ok(info) => {
                    self.known.insert(step, info);
                }
                Err(error) => log::debug!("checkpoint not shown: {error}"),
            }
            if began.elapsed() >= LOOK {
                break;
            }
        }
        self.decide(retention);
    }

    /// Finds out which ones there are. The newest are read first.
    fn list(&mut self, run: &Run) {
        let steps = run.candidates().unwrap_or_else(|error| {
            log::debug!("checkpoints not shown: {error}");
            Vec::new()
        });
        self.known
            .retain(|step, _| steps.binary_search(step).is_ok());
        self.unread = steps;
        self.unread.retain(|step| !self.known.contains_key(step));
    }

    fn newest(&self) -> Option<Committed> {
        let (step, info) = self.known.last_key_value()?;
        Some(Committed {
            step: *step,
            at: seconds_since_1970(info.created),
            bytes: info.nbytes,
            stall: None,
            durable: None,
        })
    }

    /// Once all are known: before, the rule would judge by a few of them.
    fn decide(&mut self, retention: &Retention) {
        if !self.unread.is_empty() {
            return;
        }
        let summaries: Vec<_> = self.known.values().map(CheckpointInfo::summary).collect();
        let decisions = retention.decide(&summaries);
        let shown = decisions.len().saturating_sub(Checkpoints::KEPT);
        let kept = decisions.into_iter().skip(shown).map(|decision| Kept {
            step: decision.step,
            bytes: self.known.get(&decision.step).map_or(0, |info| info.nbytes),
            why: decision.reasons.join(", "),
        });
        self.kept = kept.collect();
    }
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

impl<C: Checkpointer<Transfer>> Checkpointer<Transfer> for Monitored<C> {
    fn save(&self, epoch: usize, record: Transfer) -> Result<(), CheckpointerError> {
        let step = epoch as u64;
        self.monitor.saving(step, &record.ticket);
        if let Some(retention) = &record.options.retention {
            self.monitor.keeping(retention.clone());
        }
        let saved = self.files.save(epoch, record);
        if let Err(error) = &saved {
            self.monitor.failed(step, &error.to_string());
        }
        saved
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        let deleted = self.files.delete(epoch);
        let mut watched = self.monitor.watched();
        watched.news.is_any = true;
        if let Err(error) = &deleted {
            let why = format!("it could not be deleted: {error}");
            watched.note_failure(epoch as u64, Some(why));
        }
        drop(watched);
        deleted
    }

    fn restore(&self, epoch: usize) -> Result<Transfer, CheckpointerError> {
        self.files.restore(epoch)
    }
}

#[cfg(test)]
mod tests;
