//! The end of a `with`.

use pyo3::exceptions::{PyException, PyGeneratorExit, PySystemExit};
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
    match closed {
        Err(error) if is_shown(exc) && error.is_instance_of::<PyException>(py) => {
            let note = format!("pitstop: {}", text(error.value(py))?);
            exc.call_method1("add_note", (note,))?;
        }
        Err(error) => {
            // Python's own `raise` does that.
            error.value(py).setattr("__context__", exc)?;
            return Err(error);
        }
        Ok(()) => {}
    }
    // The exception goes on.
    Ok(false)
}

/// Whether that is an exception of which Python prints what it says, and its notes, if nobody handles it.
fn is_shown(exc: &Bound<'_, PyAny>) -> bool {
    let is_silent = exc.is_instance_of::<PySystemExit>() || exc.is_instance_of::<PyGeneratorExit>();
    !exc.is_none() && !is_silent
}
