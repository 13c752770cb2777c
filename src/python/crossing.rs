//! Panics on their way to Python: they arrive as exceptions, and no report of them is printed.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;
use std::thread;

use pyo3::prelude::*;

use super::errors;
use crate::checkpointer::panic::catch;

thread_local! {
    /// How many crossings this thread is inside.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Where the last panic inside a crossing came from: file and line.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the body of a function that Python called; a panic becomes a `CheckpointError` with its text.
///
/// `py_name` is what Python calls the function, such as `AsyncCheckpointer.save`.
///
/// The body need not be unwind safe. What it shares with later calls lies behind locks that ignore
/// poison or inside Python objects, both of which are valid after each single assignment; and whoever
/// called it learns from the exception that the call ended half-way, as with any other exception.
///
/// # Errors
///
/// What the body returns, or `pitstop.errors.CheckpointError` if it panicked.
pub(super) fn crossing<T>(py_name: &str, body: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let inside = Inside::enter();
    let outcome = catch(body);
    drop(inside);
    outcome.unwrap_or_else(|text| Err(to_error(py_name, &text)))
}

fn to_error(py_name: &str, text: &str) -> PyErr {
    let place = PLACE.take().map(|place| format!(" (at {place})"));
    let message = format!(
        "{py_name}: internal error: {text}{}",
        place.unwrap_or_default()
    );
    Python::attach(|py| errors::named(py, "CheckpointError", &message))
}

/// Installs the hook that keeps panics off stderr which are told in another way: those inside a
/// [`crossing`], and those in the threads of this crate, which the checkpointer catches and reports.
/// All others go to the hook that was there before. Later calls do nothing.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if DEPTH.get() > 0 {
                PLACE.set(
                    info.location()
                        .map(|place| format!("{}:{}", place.file(), place.line())),
                );
            } else if !is_own_thread() {
                previous(info);
            }
        }));
    });
}

fn is_own_thread() -> bool {
    thread::current()
        .name()
        .is_some_and(|name| name.starts_with("pitstop"))
}

/// A thread inside a crossing, until dropped.
struct Inside;

impl Inside {
    fn enter() -> Inside {
        // A panic that never passes the hook must not be given the place of an earlier one.
        PLACE.set(None);
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
