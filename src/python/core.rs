//! What an `AsyncCheckpointer` is made of, apart from its Python face.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;
use std::time::Instant;

use pyo3::prelude::*;

use super::lending::{Lent, Loans};
use super::protecting::Protected;
use super::waiting::{MOMENT, detach, forget_others, gather, until};
use super::{errors, logging};
use crate::checkpointer::{AsyncCheckpointer, CheckpointerError, Interrupter};
use crate::file_checkpointer::{
    FileCheckpointer, History, Options, Reads, Run, Stats, Ticket, Timings, Transfer,
};
use crate::renderer::Monitor;
use crate::schedule::{Interval, Schedule};
use crate::storage::LockError;

/// The checkpointer of one directory, in the process that made it.
pub(super) struct Core {
    /// The worker; its thread exists only in the process that made it.
    worker: Option<AsyncCheckpointer<Transfer>>,
    /// Gone once closed, so that the lock of the directory is released.
    files: Mutex<Option<Arc<FileCheckpointer>>>,
    /// Held while the directory is released. Never by a thread that holds the GIL.
    releasing: Mutex<()>,
    pub(super) run: Run,
    pub(super) options: Options,
    /// How checkpoints stand, for a screen; on a thread of its own it may look at this, and at nothing else here.
    pub(super) monitor: Arc<Monitor>,
    /// Follows the save that was handed over last.
    latest: Mutex<Option<Arc<Ticket>>>,
    /// Optimizers that wait for deferred snapshots before they change their parameters.
    pub(super) protected: Protected,
    /// The thread that takes a snapshot now: one at a time.
    saver: Mutex<Option<ThreadId>>,
    /// Python objects whose memory saves still read.
    pub(super) loans: Arc<Loans>,
    /// Failures in the background stop an interrupter, and calls do not raise them.
    pub(super) interrupted: bool,
    /// When to save, if that was said. Threads of Python only.
    schedule: Option<Mutex<Schedule>>,
    /// What saves cost. Threads of Python only.
    history: Mutex<History>,
    pid: u32,
}

/// The right to take a snapshot, until dropped.
pub(super) struct Saving<'a> {
    core: &'a Core,
}

impl Drop for Saving<'_> {
    fn drop(&mut self) {
        *lock(&self.core.saver) = None;
    }
}

/// All checkpointers of the process that are alive.
static ALIVE: Mutex<Vec<Weak<Core>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Core {
    pub(super) fn open(
        directory: PathBuf,
        options: Options,
        interrupter: Option<Interrupter>,
        interval: Option<Interval>,
    ) -> Result<Arc<Core>, LockError> {
        // The process may change its working directory later.
        let directory = std::path::absolute(directory).map_err(LockError::Io)?;
        let files = Arc::new(FileCheckpointer::open(directory, options.clone())?);
        let run = files.run().clone();
        let monitor = Arc::new(Monitor::new(run.clone(), options.retention.clone()));
        let worker = AsyncCheckpointer::new(monitor.around(Arc::clone(&files)));
        let stops_a_loop = interrupter.is_some();
        let worker = match interrupter {
            Some(interrupter) => worker.with_interrupter(interrupter),
            None => worker,
        };
        let core = Arc::new(Core {
            worker: Some(worker),
            files: Mutex::new(Some(files)),
            releasing: Mutex::default(),
            run,
            options,
            monitor,
            latest: Mutex::default(),
            protected: Protected::default(),
            saver: Mutex::default(),
            loans: Arc::default(),
            schedule: interval.map(|interval| Mutex::new(Schedule::new(interval, Instant::now()))),
            history: Mutex::default(),
            interrupted: stops_a_loop,
            pid: std::process::id(),
        });
        Ok(core)
    }

    /// Makes it known to those who drain at exit and let go in a forked child. Attached to Python, so that
    /// no other thread can fork meanwhile: its child would find the list locked, for ever.
    pub(super) fn register(self: &Arc<Core>, _attached: Python<'_>) {
        let mut alive = lock(&ALIVE);
        alive.retain(|core| core.strong_count() > 0);
        alive.push(Arc::downgrade(self));
    }

    /// Whether this is the process that made it.
    pub(super) fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }

    pub(super) fn worker(&self) -> &AsyncCheckpointer<Transfer> {
        self.worker
            .as_ref()
            .unwrap_or_else(|| unreachable!("taken only when dropped"))
    }

    pub(super) fn is_open(&self) -> bool {
        lock(&self.files).is_some()
    }

    /// Remembers that all of a checkpoint was read and found intact.
    pub(super) fn note_intact(&self, step: u64) {
        if let Some(files) = &*lock(&self.files) {
            files.note_intact(step);
        }
    }

    /// Remembers that a checkpoint was found damaged.
    pub(super) fn note_damaged(&self, step: u64) {
        if let Some(files) = &*lock(&self.files) {
            files.note_damaged(step);
        }
    }

    /// Whether it was, and is so still: saving it again replaces it.
    pub(super) fn is_known_damaged(&self, step: u64) -> bool {
        let files = lock(&self.files);
        files
            .as_ref()
            .is_some_and(|files| files.is_known_damaged(step))
    }

    /// What every call does first: refuse in a forked child, hand over log records, let go of what is done.
    pub(super) fn enter(&self, py: Python<'_>) -> PyResult<()> {
        refuse_in_child(py, self.pid)?;
        logging::drain(py)?;
        self.loans.reap();
        Ok(())
    }

    /// Keeps objects alive while a save that was just handed over reads their memory.
    pub(super) fn lend(&self, lent: Lent) {
        *lock(&self.latest) = Some(Arc::clone(&lent.ticket));
        self.loans.add(lent);
    }

    /// Waits until no save reads memory of the training any more.
    pub(super) fn wait_snapshot(&self, py: Python<'_>) -> PyResult<()> {
        let latest = lock(&self.latest).clone();
        let Some(ticket) = latest else { return Ok(()) };
        if ticket.reads() < Reads::Nothing {
            until(py, || {
                ticket.wait_reads(Reads::Nothing, MOMENT).then_some(())
            })?;
        }
        self.loans.reap();
        Ok(())
    }

    /// A failure from before that nobody has heard of yet, if calls are to raise those.
    pub(super) fn raise_earlier_failure(&self, py: Python<'_>) -> PyResult<()> {
        if self.interrupted {
            return Ok(());
        }
        self.raise_failure(py)
    }

    pub(super) fn raise_failure(&self, py: Python<'_>) -> PyResult<()> {
        self.worker()
            .check()
            .map_err(|error| errors::from_checkpointer(py, &error))
    }

    /// The right to take a snapshot; waits for other threads that do.
    ///
    /// # Errors
    ///
    /// If this very thread is taking one: a signal handler, or an object that is asked for its state, called
    /// `save` again, and would wait for itself.
    pub(super) fn begin_save(&self, py: Python<'_>) -> PyResult<Saving<'_>> {
        let me = std::thread::current().id();
        loop {
            let before = {
                let mut saver = lock(&self.saver);
                let before = *saver;
                saver.get_or_insert(me);
                before
            };
            match before {
                None => return Ok(Saving { core: self }),
                Some(holder) if holder == me => {
                    let why = "save was called again inside save, by a signal handler or by an object that was \
                               asked for its state";
                    return Err(errors::named(py, "CheckpointError", why));
                }
                Some(_) => {
                    detach(py, || {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    });
                    py.check_signals()?;
                }
            }
        }
    }

    pub(super) fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        until(py, || self.worker().wait_idle(MOMENT).then_some(()))
    }

    /// A save was handed over, and the training goes on.
    pub(super) fn note_save(&self, step: u64, ticket: &Ticket) {
        let timings = &ticket.timings;
        timings.note_stall();
        lock(&self.history).push(step, Arc::clone(timings));
        if let Some(schedule) = &self.schedule {
            lock(schedule).saved(step, timings.started(), Instant::now());
        }
    }

    pub(super) fn note_skip(&self) {
        lock(&self.history).skip();
        self.monitor.skipped();
    }

    pub(super) fn note_resume(&self, step: u64) {
        if let Some(schedule) = &self.schedule {
            lock(schedule).resumed(step);
        }
    }

    /// Whether to save now; `None` without an interval.
    pub(super) fn should_save(&self, step: u64) -> Option<bool> {
        let mut schedule = lock(self.schedule.as_ref()?);
        if let Some(ended) = lock(&self.history).last().and_then(Timings::ended) {
            schedule.ended(ended);
        }
        Some(schedule.should_save(step, Instant::now(), !self.worker().is_idle()))
    }

    /// Bytes of the arena, and how many of them a snapshot uses; none once closed.
    pub(super) fn memory(&self) -> (usize, usize) {
        lock(&self.files)
            .as_ref()
            .map_or((0, 0), |files| files.arena().usage())
    }

    pub(super) fn stats(&self) -> Stats {
        lock(&self.history).stats()
    }

    /// Drains and ends the worker, frees the arena and the lock; returns what had not been raised yet.
    pub(super) fn close(&self, py: Python<'_>) -> PyResult<Vec<CheckpointerError>> {
        let mut failures = Vec::new();
        // Draining is done bit by bit, so that Ctrl-C ends the wait and leaves the save to go on.
        self.wait_idle(py)?;
        loop {
            match detach(py, || self.worker().close()) {
                Ok(()) => break,
                Err(error) => failures.push(error),
            }
        }
        self.loans.reap();
        detach(py, || {
            // Whoever closes second returns when the directory is free, too.
            let _releasing = lock(&self.releasing);
            let files = lock(&self.files).take();
            drop(files);
        });
        Ok(failures)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // In a forked child there is no worker thread to wait for, and nothing of the parent's to free.
            std::mem::forget(self.worker.take());
            std::mem::forget(std::mem::take(&mut self.files));
        }
    }
}

/// Refuses in a forked child, where the worker thread does not exist.
pub(super) fn refuse_in_child(py: Python<'_>, pid: u32) -> PyResult<()> {
    if pid == std::process::id() {
        return Ok(());
    }
    let why = format!(
        "this checkpointer belongs to process {pid}; a forked child cannot use it, and must open its own on \
         another directory"
    );
    Err(errors::named(py, "CheckpointError", &why))
}

/// Raises what is left when the interpreter ends, after everything pending is saved.
pub(super) fn drain_all(py: Python<'_>) -> PyResult<()> {
    let alive: Vec<Arc<Core>> = lock(&ALIVE).iter().filter_map(Weak::upgrade).collect();
    let mut first = None;
    for core in alive.into_iter().filter(|core| core.is_here()) {
        for failure in core.close(py)? {
            first.get_or_insert(errors::from_checkpointer(py, &failure));
        }
    }
    gather(py);
    logging::drain(py)?;
    first.map_or(Ok(()), Err)
}

/// Waits until no save of this process reads memory of the training any more.
pub(super) fn wait_snapshots(py: Python<'_>) -> PyResult<()> {
    let alive: Vec<Arc<Core>> = lock(&ALIVE).iter().filter_map(Weak::upgrade).collect();
    let waited = alive
        .iter()
        .filter(|core| core.is_here())
        .try_for_each(|core| core.wait_snapshot(py));
    // It may be the last to know a checkpointer, which then waits for its save.
    detach(py, || drop(alive));
    waited
}

/// In a forked child: closes the locks it was born with, so that it does not keep directories locked.
pub(super) fn abandon_all() {
    forget_others();
    // The fork may have happened while another thread held one of these locks, which then stays locked.
    let Ok(alive) = ALIVE.try_lock() else { return };
    for core in alive.iter().filter_map(Weak::upgrade) {
        if let Ok(files) = core.files.try_lock()
            && let Some(files) = files.as_ref()
        {
            files.abandon_in_child();
        }
        std::mem::forget(core);
    }
}
