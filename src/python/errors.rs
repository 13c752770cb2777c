//! Errors on their way to Python.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::known::type_name;
use crate::checkpointer::{CheckpointerError, Operation};
use crate::storage::errno_of;

/// Why an object is not saved.
pub(super) enum Refusal {
    /// Its type is not one that can be: why, and what to do.
    Unsupported(String),
    /// Python raised while it was looked at.
    Python(PyErr),
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Refusal {
        Refusal::Python(error)
    }
}

impl Refusal {
    /// The exception that says what it is about, where it is, and why.
    pub(super) fn at(self, place: &str, object: &Bound<'_, PyAny>) -> PyErr {
        match self {
            Refusal::Unsupported(why) => {
                let message = format!("{place}: {}: {why}", type_name(object));
                named(object.py(), "UnsupportedTypeError", &message)
            }
            Refusal::Python(error) => error,
        }
    }
}

/// An exception of `pitstop.errors`, by name.
pub(super) fn named(py: Python<'_>, class: &str, message: &str) -> PyErr {
    with(py, class, message, &[])
}

/// An exception of `pitstop.errors` with further attributes.
pub(super) fn with(
    py: Python<'_>,
    class: &str,
    message: &str,
    attributes: &[(&str, Bound<'_, PyAny>)],
) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let error = py
            .import("pitstop.errors")?
            .getattr(class)?
            .call1((message,))?;
        for (name, value) in attributes {
            error.setattr(*name, value)?;
        }
        Ok(PyErr::from_value(error))
    };
    make().unwrap_or_else(|error| error)
}

/// The names of a mismatch, sorted into its three kinds.
#[derive(Default)]
pub(super) struct Mismatch {
    pub(super) missing: Vec<String>,
    pub(super) unexpected: Vec<String>,
    pub(super) mismatched: Vec<String>,
}

impl Mismatch {
    pub(super) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.mismatched.is_empty()
    }

    /// The exception that lists them. `keyword`: what the checkpoint was to fit, `into` or `like`.
    pub(super) fn into_error(self, py: Python<'_>, keyword: &str) -> PyErr {
        let what = if keyword == "into" {
            "what is to be filled; nothing was touched"
        } else {
            "the template"
        };
        let mut message = format!("the checkpoint does not fit {what}");
        let kinds = [
            ("missing from the checkpoint", &self.missing),
            ("unexpected in the checkpoint", &self.unexpected),
            ("mismatched", &self.mismatched),
        ];
        for (kind, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
            // Writing to a string never fails.
            let _ = write!(message, "\n  {kind}:\n    {}", names.join("\n    "));
        }
        if self.missing.is_empty() && self.mismatched.is_empty() {
            let _ = write!(
                message,
                "\n  to leave that out, name all that is to be restored: restore({keyword}=..., only=[\"model.*\", ...])"
            );
        }
        let make = || -> PyResult<PyErr> {
            let class = py.import("pitstop.errors")?.getattr("StateMismatchError")?;
            Ok(PyErr::from_value(class.call1((
                message,
                self.missing,
                self.unexpected,
                self.mismatched,
            ))?))
        };
        make().unwrap_or_else(|error| error)
    }
}

/// An `OSError` with number, text and path, of the subclass that belongs to the number.
pub(super) fn os_error(py: Python<'_>, error: &io::Error) -> PyErr {
    let (number, path) = match errno_of(error) {
        Some((number, path)) => (Some(number), Some(path)),
        None => (error.raw_os_error(), None),
    };
    let Some(number) = number else {
        return PyOSError::new_err(error.to_string());
    };
    let make = || -> PyResult<PyErr> {
        let text = py.import("os")?.getattr("strerror")?.call1((number,))?;
        let path = path.map(PathBuf::into_os_string);
        Ok(PyErr::from_value(
            py.get_type::<PyOSError>().call1((number, text, path))?,
        ))
    };
    make().unwrap_or_else(|error| error)
}

/// A checkpoint, or a file in it, that is not what was written.
pub(super) fn corrupt(py: Python<'_>, path: &Path, tensor: Option<&str>, why: &str) -> PyErr {
    let message = format!("{}: {why}", path.display());
    let path = path.as_os_str().into_pyobject(py).map(Bound::into_any);
    let tensor = tensor.into_pyobject(py);
    match (path, tensor) {
        (Ok(path), Ok(tensor)) => with(
            py,
            "CorruptCheckpointError",
            &message,
            &[("path", path), ("tensor", tensor)],
        ),
        _ => named(py, "CorruptCheckpointError", &message),
    }
}

/// The exception for what the worker, or the checkpointer behind it, reported.
pub(super) fn from_checkpointer(py: Python<'_>, error: &CheckpointerError) -> PyErr {
    let class = match error {
        CheckpointerError::Worker(failure) => match failure.operation() {
            Operation::Save => "SaveError",
            Operation::Delete => "DeleteError",
            Operation::Callback => "CallbackError",
        },
        _ => "CheckpointError",
    };
    let raised = named(py, class, &message(error));
    if let Some(cause) = io_cause(error) {
        raised.set_cause(py, Some(os_error(py, cause)));
    }
    raised
}

/// What happened, and to which step: whoever hears of it may be at a later one.
pub(super) fn message(error: &CheckpointerError) -> String {
    match error {
        CheckpointerError::Worker(failure) => format!("step {}: {failure}", failure.epoch()),
        other => other.to_string(),
    }
}

/// The exception for a save that failed before it reached the worker, or without one.
pub(super) fn failed_save(py: Python<'_>, error: &CheckpointerError) -> PyErr {
    let message = format!("Error when saving the state: {error}");
    let raised = named(py, "SaveError", &message);
    if let Some(cause) = io_cause(error) {
        raised.set_cause(py, Some(os_error(py, cause)));
    }
    raised
}

/// The error of the system at the bottom of it.
pub(super) fn io_cause(error: &CheckpointerError) -> Option<&io::Error> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = source {
        if let Some(found) = current.downcast_ref::<io::Error>() {
            return Some(found);
        }
        source = current.source();
    }
    None
}

/// Warns through `warnings.warn`; an error if the user turned warnings into errors.
pub(super) fn warn(py: Python<'_>, message: &str) -> PyResult<()> {
    let category = py.import("pitstop.errors")?.getattr("CheckpointWarning")?;
    let keywords = PyDict::new(py);
    // The function that was called has no frame of its own: it is not written in Python.
    keywords.set_item("stacklevel", 1)?;
    py.import("warnings")?
        .call_method("warn", (message, category), Some(&keywords))?;
    Ok(())
}
