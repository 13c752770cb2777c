//! How a kill reaches a training loop: at its next call on the renderer, or in the middle of whatever it does.
//!
//! The person asks on the thread of the screen, which never attaches to Python. If the renderer was entered in the main
//! thread, a SIGINT is sent to the process: Python runs the handler that is installed here, which raises, and the
//! signal also ends a `time.sleep`. Elsewhere a thread of Python waits for the kill, and raises in the thread of the
//! loop once that runs Python code again.

use std::ffi::c_long;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyTuple};
use pyo3::{ffi, intern};

use crate::checkpointer::Interrupter;
use crate::python::errors;
use crate::python::waiting::{MOMENT, detach};
use crate::renderer::KILLING;

/// What the first SIGINT says, in the words of `Interrupter.on_signals`.
const STOPPING: &str = "Stopping training: received SIGINT.";
/// How many moments a signal that was sent is waited for.
const PATIENCE: u32 = 50;

/// The kill of one renderer.
pub(super) struct Kill {
    pid: u32,
    /// How often it was asked for.
    asked: AtomicU32,
    /// How many of those the training has heard of.
    heard: AtomicU32,
    /// A SIGINT was sent, and has not arrived yet.
    signalled: AtomicBool,
    /// The renderer is being closed, and whoever closes it tells of a kill: nothing else is interrupted.
    over: AtomicBool,
    /// The kill of another run, in whose handler this one goes on.
    outer: Mutex<Option<Py<PyAny>>>,
    way: OnceLock<Way>,
    /// Held, by threads of Python only, by whoever tells the training, so that it hears of a kill once.
    turn: Mutex<()>,
}

/// How it reaches a loop that makes no call.
enum Way {
    Signal,
    /// By the number that Python knows the thread by.
    Thread(ThreadId, c_long),
}

impl Kill {
    pub(super) fn new() -> Arc<Kill> {
        Arc::new(Kill {
            pid: std::process::id(),
            asked: AtomicU32::new(0),
            heard: AtomicU32::new(0),
            signalled: AtomicBool::new(false),
            over: AtomicBool::new(false),
            outer: Mutex::default(),
            way: OnceLock::new(),
            turn: Mutex::default(),
        })
    }

    /// Somebody asks for it. Called on the thread of the screen.
    pub(super) fn ask(&self) {
        self.asked.fetch_add(1, Ordering::AcqRel);
        if matches!(self.way.get(), Some(Way::Signal)) && !self.is_over() {
            self.signalled.store(true, Ordering::Release);
            if !interrupt_process() {
                self.signalled.store(false, Ordering::Release);
            }
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether it was asked for, and nobody has told the training.
    pub(super) fn is_unheard(&self) -> bool {
        self.asked.load(Ordering::Acquire) > self.heard.load(Ordering::Acquire)
    }

    /// What every call on the renderer does: nothing, unless the training is killed.
    ///
    /// # Errors
    ///
    /// `TrainingKilled` if it is, except to those who are handling that one already.
    pub(super) fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.asked.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let handled = handled(py)?;
        if handled.is_instance(&class(py)?)? && !self.is_outer(&handled) {
            return Ok(());
        }
        Err(self.raised(py))
    }

    fn is_outer(&self, handled: &Bound<'_, PyAny>) -> bool {
        let outer = lock(handled.py(), &self.outer);
        outer.as_ref().is_some_and(|outer| handled.is(outer))
    }

    /// The exception, to be raised in this thread. The training has heard of it then, and is not interrupted any more.
    pub(super) fn raised(&self, py: Python<'_>) -> PyErr {
        let turn = lock(py, &self.turn);
        self.heard
            .store(self.asked.load(Ordering::Acquire), Ordering::Release);
        if let Some(Way::Thread(thread, number)) = self.way.get()
            && *thread == thread::current().id()
        {
            raise_in(*number, None);
        }
        drop(turn);
        errors::named(py, "TrainingKilled", KILLING)
    }

    /// From now on nothing is interrupted.
    pub(super) fn end(&self, py: Python<'_>) {
        let _turn = lock(py, &self.turn);
        self.over.store(true, Ordering::Release);
        if let Some(Way::Thread(_, number)) = self.way.get() {
            raise_in(*number, None);
        }
        let outer = lock(py, &self.outer).take();
        drop(outer);
    }

    /// As `end`, where Python must not be called. An exception that is on its way to another thread stays so.
    pub(super) fn end_quietly(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Waits for a kill, and raises it in the thread of that number; until the renderer is closed.
    fn watch(&self, py: Python<'_>, number: c_long) -> PyResult<()> {
        let killed = class(py)?;
        while !self.is_over() {
            detach(py, || {
                while !self.is_over() && !self.is_unheard() {
                    thread::sleep(MOMENT);
                }
            });
            let _turn = lock(py, &self.turn);
            if !self.is_over() && self.is_unheard() {
                self.heard
                    .store(self.asked.load(Ordering::Acquire), Ordering::Release);
                raise_in(number, Some(&killed));
            }
        }
        Ok(())
    }
}

fn lock<'a, T>(py: Python<'_>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    let guard = mutex.lock_py_attached(py);
    guard.unwrap_or_else(PoisonError::into_inner)
}

/// Sees to it that a kill reaches the thread that this is called in. Returns what is to be removed in the end.
pub(super) fn reach(
    py: Python<'_>,
    kill: &Arc<Kill>,
    interrupter: Option<Interrupter>,
) -> PyResult<Option<Py<Handler>>> {
    let outer = handled(py)?;
    if outer.is_instance(&class(py)?)? {
        *lock(py, &kill.outer) = Some(outer.unbind());
    }
    match Handler::install(py, kill, interrupter)? {
        Some(handler) => {
            if cfg!(unix) {
                let _ = kill.way.set(Way::Signal);
            } else {
                start_watcher(py, kill)?;
            }
            Ok(Some(handler))
        }
        None => start_watcher(py, kill).map(|()| None),
    }
}

/// Starts the thread that raises a kill in this one.
fn start_watcher(py: Python<'_>, kill: &Arc<Kill>) -> PyResult<()> {
    let threading = py.import("threading")?;
    // Python takes it for unsigned, which does not matter for a number that is only compared.
    let number: u64 = threading.call_method0("get_ident")?.extract()?;
    let number = number as c_long;
    let _ = kill.way.set(Way::Thread(thread::current().id(), number));
    let kill = Arc::clone(kill);
    let watch = move |arguments: &Bound<'_, PyTuple>, _keywords: Option<&Bound<'_, PyDict>>| {
        kill.watch(arguments.py(), number)
    };
    let watch = PyCFunction::new_closure(py, Some(c"watch"), None, watch)?;
    let how = [
        ("target", watch.into_any()),
        ("name", "pitstop-kill".into_pyobject(py)?.into_any()),
        // Nobody who forgot to close the renderer is to wait for it.
        ("daemon", true.into_pyobject(py)?.to_owned().into_any()),
    ];
    let thread = threading
        .getattr("Thread")?
        .call((), Some(&how.into_py_dict(py)?))?;
    thread.call_method0("start").map(drop)
}

/// The exception that is being handled, or `None`.
fn handled(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "sys"))?
        .call_method0(intern!(py, "exception"))
}

fn class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import(intern!(py, "pitstop.errors"))?
        .getattr(intern!(py, "TrainingKilled"))
}

/// Whether that is the exception of a kill.
pub(super) fn is_kill(py: Python<'_>, error: &PyErr) -> bool {
    class(py).is_ok_and(|class| error.is_instance(py, &class))
}

/// Raises an exception of that class in another thread, the next time that it runs Python code; `None` takes back one
/// that has not been raised yet.
#[expect(
    unsafe_code,
    reason = "there is no other way to raise in another thread"
)]
fn raise_in(thread: c_long, class: Option<&Bound<'_, PyAny>>) {
    let class = class.map_or(std::ptr::null_mut(), Bound::as_ptr);
    // SAFETY: all callers are attached to Python, and `class` is a live exception class or null; a thread that has
    // ended is not found, and nothing happens.
    unsafe { ffi::PyThreadState_SetAsyncExc(thread, class) };
}

#[cfg(unix)]
fn interrupt_process() -> bool {
    use rustix::process::{Signal, getpid, kill_process};
    kill_process(getpid(), Signal::INT).is_ok()
}

#[cfg(not(unix))]
fn interrupt_process() -> bool {
    false
}

/// Python's handler of SIGINT while a renderer is open.
#[pyclass(frozen, module = "pitstop._native")]
pub(super) struct Handler {
    kill: Arc<Kill>,
    /// Stopped by the first SIGINT, if the user gave one.
    interrupter: Option<Interrupter>,
    /// What was installed before.
    previous: Py<PyAny>,
    /// The signal has come. Counts only while the interrupter is stopped: a reset forgives it.
    seen: AtomicBool,
}

#[pymethods]
impl Handler {
    fn __call__(&self, number: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = number.py();
        if self.kill.signalled.swap(false, Ordering::AcqRel) {
            // A call on the renderer may have raised it meanwhile.
            return if self.kill.is_unheard() && !self.kill.is_over() {
                Err(self.kill.raised(py))
            } else {
                Ok(())
            };
        }
        // In a forked child, and after the renderer, it is as if this one were not there.
        let is_mine = self.kill.pid == std::process::id() && !self.kill.is_over();
        match &self.interrupter {
            Some(interrupter) if is_mine => self.stop(interrupter, number, frame),
            _ => self.pass_on(number, frame),
        }
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __repr__(&self) -> &'static str {
        "<pitstop.Renderer's handler of SIGINT>"
    }
}

impl Handler {
    /// Installs it; `None` where that cannot be: outside the main thread, or where a handler was installed from
    /// outside Python, which could not be put back.
    fn install(
        py: Python<'_>,
        kill: &Arc<Kill>,
        interrupter: Option<Interrupter>,
    ) -> PyResult<Option<Py<Handler>>> {
        let module = py.import("signal")?;
        let sigint = module.getattr("SIGINT")?;
        let previous = module.call_method1("getsignal", (&sigint,))?;
        if previous.is_none() {
            return Ok(None);
        }
        let handler = Handler {
            kill: Arc::clone(kill),
            interrupter,
            previous: previous.unbind(),
            seen: AtomicBool::new(false),
        };
        let handler = Py::new(py, handler)?;
        match module.call_method1("signal", (&sigint, &handler)) {
            Ok(_) => Ok(Some(handler)),
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts the previous handler back, if this one is still the installed one, and this is the main thread. Before,
    /// it waits for a signal that was sent: nobody else would know what it is.
    ///
    /// # Errors
    ///
    /// What other handlers of signals raise meanwhile.
    pub(super) fn remove(slf: &Bound<'_, Handler>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let mut outcome = Ok(());
        for _ in 0..PATIENCE {
            if !this.kill.signalled.load(Ordering::Acquire) {
                break;
            }
            detach(py, || thread::sleep(Duration::from_millis(1)));
            outcome = outcome.and(py.check_signals());
        }
        let module = py.import("signal")?;
        let sigint = module.getattr("SIGINT")?;
        if module.call_method1("getsignal", (&sigint,))?.is(slf) {
            let put_back = module.call_method1("signal", (&sigint, &this.previous));
            outcome = outcome.and(put_back.map(drop));
        }
        match outcome {
            // Another thread: the handler stays, and passes everything on.
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(()),
            outcome => outcome,
        }
    }

    /// The first SIGINT asks the loop to end, the second kills it.
    fn stop(
        &self,
        interrupter: &Interrupter,
        number: &Bound<'_, PyAny>,
        frame: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = number.py();
        let module = py.import("signal")?;
        let previous = self.previous.bind(py);
        if previous.is(&module.getattr("SIG_IGN")?) {
            return Ok(());
        }
        let again = self.seen.swap(true, Ordering::Relaxed) && interrupter.should_stop();
        interrupter.stop(Some(STOPPING));
        // Python's own would raise at the first one.
        let mut passed = Ok(());
        if previous.is_callable() && !previous.is(&module.getattr("default_int_handler")?) {
            passed = previous.call1((number, frame)).map(drop);
        }
        if !again {
            return passed;
        }
        match passed {
            Err(error) if error.is_instance_of::<PyException>(py) => Err(error),
            _ => {
                self.kill.asked.fetch_add(1, Ordering::AcqRel);
                Err(self.kill.raised(py))
            }
        }
    }

    /// Does what would be done without this handler.
    fn pass_on(&self, number: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = number.py();
        let previous = self.previous.bind(py);
        if previous.is_callable() {
            return previous.call1((number, frame)).map(drop);
        }
        if previous.is(&py.import("signal")?.getattr("SIG_IGN")?) {
            return Ok(());
        }
        // The system's own would end the process here and now, and the terminal would stay as it is.
        Err(PyKeyboardInterrupt::new_err(()))
    }
}
