//! The end of a `with`.

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;

use super::known::text;

/// What `__exit__` returns once it has closed what it is of. `exc` is the exception that is on its way out of the block,
/// or `None`: it is the news, and what went wrong in closing goes along with it as a note.
///
/// # Errors
///
/// What went wrong, if there is no other exception, or one that nobody is shown, such as `SystemExit`; or if it is none
/// that a program handles, such as `KeyboardInterrupt`.
pub(super) fn leave(exc: &Bound<'_, PyAny>, closed: PyResult<()>) -> PyResult<bool> {
    let py = exc.py();
    if let Err(error) = closed {
        let is_note = is_shown(exc)? && error.is_instance_of::<PyException>(py);
        if !(is_note && add_note(exc, &error).is_ok()) {
            // Python's own `raise` does that.
            error.value(py).setattr("__context__", exc)?;
            return Err(error);
        }
    }
    // The exception goes on.
    Ok(false)
}

fn add_note(exc: &Bound<'_, PyAny>, error: &PyErr) -> PyResult<()> {
    let note = format!("pitstop: {}", text(error.value(exc.py()))?);
    exc.call_method1("add_note", (note,)).map(drop)
}

/// Whether that is an exception of which Python prints what it says, and its notes, if nobody handles it. The end of a
/// task or of an iteration is none: it is handled without a word.
fn is_shown(exc: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_end =
        exc.is_instance_of::<PyStopIteration>() || exc.is_instance_of::<PyStopAsyncIteration>();
    let is_error = exc.is_instance_of::<PyException>() && !is_end;
    if is_error || exc.is_instance_of::<PyKeyboardInterrupt>() {
        return Ok(true);
    }
    let killed = exc
        .py()
        .import("pitstop.errors")?
        .getattr("TrainingKilled")?;
    exc.is_instance(&killed)
}
