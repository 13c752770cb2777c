//! The flag that asks a training loop to end, and the signals that set it.
#![expect(
    clippy::doc_markdown,
    reason = "the docs of classes and methods are docstrings, in Python's form"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use super::known::type_name;

/// Asks a training loop to end, from any thread.
///
/// The loop looks at ``should_stop()`` once per step. The first reason given is kept until
/// ``reset()``. A checkpointer that is given an interrupter stops it when a save fails.
///
/// Only one made by ``Interrupter.on_signals()`` is a context manager; in ``with``, a plain one is a
/// ``TypeError``, since it would listen to nothing.
///
/// Example:
///     >>> interrupter = Interrupter()
///     >>> interrupter.stop("the loss is NaN")
///     >>> interrupter.should_stop(), interrupter.get_message()
///     (True, 'the loss is NaN')
#[pyclass(frozen, module = "pitstop")]
pub(super) struct Interrupter {
    inner: crate::Interrupter,
    /// What it listens to inside `with`; `None` if it was not made for that.
    signals: Option<Vec<Signal>>,
    /// What each open `with` has installed, the innermost last.
    open: Mutex<Vec<Vec<Py<Handler>>>>,
}

#[pymethods]
impl Interrupter {
    #[new]
    fn new() -> Interrupter {
        Interrupter::listening(None)
    }

    /// An interrupter that signals stop: by default Ctrl-C and the request of a scheduler to end.
    ///
    /// Inside ``with``, a signal sets the flag, with a message such as ``Stopping training: received
    /// SIGINT.``, and nothing else; then the handler that was there before is called, if it is one of
    /// the user's. A second SIGINT, while the flag is still set, raises ``KeyboardInterrupt``. Leaving
    /// ``with`` puts the previous handlers back, unless somebody has installed others on top: those stay.
    ///
    /// Args:
    ///     signals: Which ones; ``None`` means ``(signal.SIGINT, signal.SIGTERM)``.
    ///
    /// Returns:
    ///     A new interrupter; ``with`` gives the same one.
    ///
    /// Raises:
    ///     TypeError: ``signals`` is no iterable of signals.
    ///     ValueError: One of them does not exist on this system.
    ///     RuntimeError: On entering or leaving ``with`` outside the main thread, where Python takes no
    ///         handlers; or on entering where a handler was installed from outside Python, which
    ///         could not be put back.
    ///
    /// Example:
    ///     >>> with Interrupter.on_signals() as interrupter:
    ///     ...     while not interrupter.should_stop():
    ///     ...         train_step()
    #[classmethod]
    #[pyo3(signature = (signals=None))]
    fn on_signals(
        class: &Bound<'_, PyType>,
        signals: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Interrupter> {
        let signals = match signals {
            Some(signals) => Signal::all(signals)?,
            None => Signal::usual(class.py())?,
        };
        Ok(Interrupter::listening(Some(signals)))
    }

    /// Asks the loop to end.
    ///
    /// Args:
    ///     reason: Why; kept as the message if it is the first since the last ``reset()``.
    #[pyo3(signature = (reason=None))]
    fn stop(&self, reason: Option<&str>) {
        self.inner.stop(reason);
    }

    /// Whether somebody asked the loop to end.
    fn should_stop(&self) -> bool {
        self.inner.should_stop()
    }

    /// Clears the flag and the message.
    fn reset(&self) {
        self.inner.reset();
    }

    /// The first reason given since the last ``reset()``, or ``None``.
    fn get_message(&self) -> Option<String> {
        self.inner.get_message()
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let (py, this) = (slf.py(), slf.get());
        let Some(signals) = &this.signals else {
            let message =
                "this Interrupter listens to no signals; in `with`, use Interrupter.on_signals()";
            return Err(PyTypeError::new_err(message));
        };
        check_thread(py, "entered")?;
        let mut installed = Vec::new();
        for signal in signals {
            match Handler::install(py, &this.inner, signal) {
                Ok(handler) => installed.push(handler),
                Err(error) => {
                    remove(py, installed)?;
                    return Err(error);
                }
            }
        }
        this.open().push(installed);
        Ok(slf.clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        check_thread(py, "left")?;
        let installed = self.open().pop();
        remove(py, installed.unwrap_or_default())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match (self.inner.should_stop(), self.inner.get_message()) {
            (false, _) => "<pitstop.Interrupter: not stopped>".to_owned(),
            (true, None) => "<pitstop.Interrupter: stopped>".to_owned(),
            (true, Some(message)) => {
                let message = PyString::new(py, &message)
                    .repr()?
                    .to_string_lossy()
                    .into_owned();
                format!("<pitstop.Interrupter: stopped, {message}>")
            }
        })
    }
}

impl Interrupter {
    fn listening(signals: Option<Vec<Signal>>) -> Interrupter {
        Interrupter {
            inner: crate::Interrupter::new(),
            signals,
            open: Mutex::new(Vec::new()),
        }
    }

    /// The flag itself, as the core knows it.
    pub(super) fn inner(&self) -> crate::Interrupter {
        self.inner.clone()
    }

    /// Held for a single push or pop; no Python code runs under it.
    fn open(&self) -> std::sync::MutexGuard<'_, Vec<Vec<Py<Handler>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A signal by number and name.
#[derive(Clone)]
struct Signal {
    number: i32,
    name: String,
}

impl Signal {
    fn usual(py: Python<'_>) -> PyResult<Vec<Signal>> {
        let module = py.import("signal")?;
        ["SIGINT", "SIGTERM"]
            .map(|name| Signal::new(&module.getattr(name)?))
            .into_iter()
            .collect()
    }

    /// Each once, in the order given.
    fn all(signals: &Bound<'_, PyAny>) -> PyResult<Vec<Signal>> {
        let mut all: Vec<Signal> = Vec::new();
        let items = signals.try_iter().map_err(|_| {
            let kind = type_name(signals);
            PyTypeError::new_err(format!(
                "signals must be an iterable, such as (signal.SIGTERM,), not {kind}"
            ))
        })?;
        for item in items {
            let signal = Signal::new(&item?)?;
            if all.iter().all(|known| known.number != signal.number) {
                all.push(signal);
            }
        }
        Ok(all)
    }

    fn new(signal: &Bound<'_, PyAny>) -> PyResult<Signal> {
        let module = signal.py().import("signal")?;
        let number: i32 = signal.extract().map_err(|_| {
            let kind = type_name(signal);
            PyTypeError::new_err(format!(
                "a signal must be a number, such as signal.SIGTERM, not {kind}"
            ))
        })?;
        if !module.call_method0("valid_signals")?.contains(number)? {
            return Err(PyValueError::new_err(format!(
                "there is no signal {number} on this system"
            )));
        }
        let name = match module.getattr("Signals")?.call1((number,)) {
            Ok(known) => known.getattr("name")?.extract()?,
            // Real-time signals have numbers only.
            Err(_) => format!("signal {number}"),
        };
        Ok(Signal { number, name })
    }
}

/// What is installed for one signal.
#[pyclass(frozen, module = "pitstop._native")]
struct Handler {
    interrupter: crate::Interrupter,
    signal: Signal,
    /// What was installed before.
    previous: Py<PyAny>,
    /// The signal has come. Counts only while the interrupter is stopped: a reset forgives it.
    seen: AtomicBool,
    /// Its `with` has been left. Somebody who installed a handler on top of it may still call it.
    retired: AtomicBool,
}

#[pymethods]
impl Handler {
    fn __call__(&self, number: &Bound<'_, PyAny>, frame: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = number.py();
        let previous = self.previous.bind(py);
        let chained = previous.is_callable();
        if self.retired.load(Ordering::Relaxed) {
            return if chained {
                previous.call1((number, frame)).map(drop)
            } else {
                Ok(())
            };
        }
        let again = self.seen.swap(true, Ordering::Relaxed) && self.interrupter.should_stop();
        let message = format!("Stopping training: received {}.", self.signal.name);
        self.interrupter.stop(Some(&message));
        // Python's own would raise at the first Ctrl-C.
        let default = py.import("signal")?.getattr("default_int_handler")?;
        if chained && !previous.is(&default) {
            previous.call1((number, frame))?;
        }
        if again && self.signal.name == "SIGINT" {
            return Err(PyKeyboardInterrupt::new_err(()));
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<pitstop.Interrupter's handler of {}>", self.signal.name)
    }
}

impl Handler {
    fn install(
        py: Python<'_>,
        interrupter: &crate::Interrupter,
        signal: &Signal,
    ) -> PyResult<Py<Handler>> {
        let module = py.import("signal")?;
        let previous = module.call_method1("getsignal", (signal.number,))?;
        if previous.is_none() {
            let name = &signal.name;
            let message = format!(
                "the handler of {name} was installed outside Python and could not be put back"
            );
            return Err(PyRuntimeError::new_err(message));
        }
        let handler = Handler {
            interrupter: interrupter.clone(),
            signal: signal.clone(),
            previous: previous.unbind(),
            seen: AtomicBool::new(false),
            retired: AtomicBool::new(false),
        };
        let handler = Py::new(py, handler)?;
        module.call_method1("signal", (signal.number, &handler))?;
        Ok(handler)
    }

    /// Puts the previous handler back if this one is still the installed one.
    fn remove(slf: &Bound<'_, Handler>) -> PyResult<()> {
        let (module, this) = (slf.py().import("signal")?, slf.get());
        this.retired.store(true, Ordering::Relaxed);
        if module
            .call_method1("getsignal", (this.signal.number,))?
            .is(slf)
        {
            module.call_method1("signal", (this.signal.number, &this.previous))?;
        }
        Ok(())
    }
}

/// Removes all of them, last installed first, also if one fails.
fn remove(py: Python<'_>, installed: Vec<Py<Handler>>) -> PyResult<()> {
    let removed = installed
        .into_iter()
        .rev()
        .map(|handler| Handler::remove(handler.bind(py)));
    removed.fold(Ok(()), PyResult::and)
}

fn check_thread(py: Python<'_>, what: &str) -> PyResult<()> {
    let threading = py.import("threading")?;
    let (here, main) = (
        threading.call_method0("current_thread")?,
        threading.call_method0("main_thread")?,
    );
    if here.is(&main) {
        return Ok(());
    }
    let message = format!(
        "Interrupter.on_signals() must be {what} in the main thread: Python takes handlers of signals only there"
    );
    Err(PyRuntimeError::new_err(message))
}
