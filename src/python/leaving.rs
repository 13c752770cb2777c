//! The end of a `with`.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::known::text;

/// What `__exit__` returns once it has closed what it is of. `exc` is the exception that is on its way out of the block,
/// or `None`: it is the news, and what went wrong in closing goes along with it as a note.
///
/// # Errors
///
/// What went wrong, if there is no other exception, or if it is none that a program handles, such as
/// `KeyboardInterrupt`.
pub(super) fn leave(exc: &Bound<'_, PyAny>, closed: PyResult<()>) -> PyResult<bool> {
    let py = exc.py();
    match closed {
        Err(error) if !exc.is_none() && error.is_instance_of::<PyException>(py) => {
            let note = format!("pitstop: {}", text(error.value(py))?);
            exc.call_method1("add_note", (note,))?;
        }
        closed => closed?,
    }
    // The exception goes on.
    Ok(false)
}
