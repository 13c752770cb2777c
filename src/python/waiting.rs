//! Waiting that Ctrl-C can end: never with the GIL, never longer than a moment without a look at signals.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;

use super::errors;

/// How long a wait may go on before signals are looked at.
pub(super) const MOMENT: Duration = Duration::from_millis(20);

/// Threads in the middle of a call that gives the GIL away.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
/// The thread in which the interpreter is about to end.
static ENDING: OnceLock<ThreadId> = OnceLock::new();
/// How long the end of the interpreter waits for other threads.
const PATIENCE: Duration = Duration::from_secs(10);

thread_local! {
    /// How many of those calls this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Counts a thread as inside while it lives; to be made, and to go, with the GIL.
///
/// Before 3.14 Python ends a thread that wants the GIL back while the interpreter ends, wherever it is; if there are
/// frames of Rust below it, that ends the process. So [`gather`] waits for those that are inside, and afterwards
/// no other thread gives the GIL away.
pub(super) struct Inside(());

/// # Errors
///
/// `CheckpointError` if the interpreter is about to end, and not in this thread.
pub(super) fn inside(py: Python<'_>) -> PyResult<Inside> {
    if is_late() {
        let why = "the interpreter is about to end";
        return Err(errors::named(py, "CheckpointError", why));
    }
    Ok(Inside::new())
}

impl Inside {
    fn new() -> Inside {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        DEPTH.set(DEPTH.get() + 1);
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether it is too late for this thread to give the GIL away.
fn is_late() -> bool {
    let ending = ENDING.get();
    ending.is_some_and(|ending| *ending != thread::current().id()) && DEPTH.get() == 0
}

/// Runs `work` without the GIL.
pub(super) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    if is_late() {
        return work();
    }
    let _inside = Inside::new();
    py.detach(work)
}

/// As the interpreter ends, in the thread that ends it: waits until no other one is inside.
pub(super) fn gather(py: Python<'_>) {
    let _ = ENDING.set(thread::current().id());
    let start = Instant::now();
    while INSIDE.load(Ordering::SeqCst) > DEPTH.get() && start.elapsed() < PATIENCE {
        py.detach(|| thread::sleep(Duration::from_millis(1)));
    }
}

/// In a forked child: no other thread is left.
pub(super) fn forget_others() {
    INSIDE.store(DEPTH.get(), Ordering::SeqCst);
}

/// Calls `poll` until it has something, each time without the GIL; each call waits a [`MOMENT`] at most.
///
/// # Errors
///
/// What a signal handler raises, such as `KeyboardInterrupt`.
pub(super) fn until<T: Send>(
    py: Python<'_>,
    mut poll: impl FnMut() -> Option<T> + Send,
) -> PyResult<T> {
    loop {
        if let Some(result) = detach(py, &mut poll) {
            return Ok(result);
        }
        py.check_signals()?;
    }
}

/// Runs `job` on a thread of its own and waits for it. If a signal ends the wait, the job ends unheard.
pub(super) fn aside<T: Send + 'static>(
    py: Python<'_>,
    job: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || {
        // Whoever waited may have gone.
        let _ = sender.send(job());
    };
    thread::Builder::new()
        .name("pitstop-restore".into())
        .spawn(run)?;
    let receiver = std::sync::Mutex::new(receiver);
    let answer = until(py, || {
        let receiver = receiver
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match receiver.recv_timeout(MOMENT) {
            Ok(result) => Some(Some(result)),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(None),
        }
    })?;
    answer.ok_or_else(panicked)
}

/// Runs `job` on a thread of its own, which may borrow, and waits for it. If a signal ends the wait, the job is
/// told to stop and waited for: what it borrowed must not go away before.
///
/// # Errors
///
/// What a signal handler raises, such as `KeyboardInterrupt`.
pub(super) fn beside<T: Send>(
    py: Python<'_>,
    job: impl FnOnce(&AtomicBool) -> T + Send,
) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    let (sender, receiver) = mpsc::sync_channel::<()>(1);
    thread::scope(|scope| {
        let stop = &stop;
        let run = move || {
            // Dropped when the job is over, by a panic too.
            let _over = sender;
            job(stop)
        };
        let thread = thread::Builder::new()
            .name("pitstop-restore".into())
            .spawn_scoped(scope, run)?;
        let waited = until(py, move || {
            let over = receiver.recv_timeout(MOMENT);
            (over != Err(mpsc::RecvTimeoutError::Timeout)).then_some(())
        });
        stop.store(waited.is_err(), Ordering::Relaxed);
        let answer = detach(py, || thread.join());
        waited?;
        answer.map_err(|_| panicked())
    })
}

fn panicked() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("the restoring thread panicked")
}

/// When a wait is over, as Python gives it: seconds, or `None` for ever.
#[derive(Clone, Copy)]
pub(super) struct Deadline(Option<Instant>);

impl Deadline {
    /// # Errors
    ///
    /// `ValueError` for a negative number or NaN.
    pub(super) fn after(timeout: Option<f64>) -> PyResult<Deadline> {
        let Some(seconds) = timeout else {
            return Ok(Deadline(None));
        };
        if seconds.is_nan() || seconds < 0.0 {
            let why = format!("timeout must be a number of seconds of at least 0, not {seconds}");
            return Err(pyo3::exceptions::PyValueError::new_err(why));
        }
        // What is too long to be represented is for ever.
        let end = Duration::try_from_secs_f64(seconds)
            .ok()
            .and_then(|wait| Instant::now().checked_add(wait));
        Ok(Deadline(end))
    }

    /// How long to wait now: a moment, or less if the end is near.
    pub(super) fn moment(self) -> Duration {
        self.0.map_or(MOMENT, |end| {
            end.saturating_duration_since(Instant::now()).min(MOMENT)
        })
    }

    pub(super) fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    pub(super) fn error(what: &str) -> PyErr {
        PyTimeoutError::new_err(format!("{what} is not done within the timeout"))
    }
}
