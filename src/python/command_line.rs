//! `pitstop`, the script of the wheel, and `python -m pitstop`.

use std::ffi::OsString;
use std::iter;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use super::crossing::crossing;
use super::waiting;
use crate::cli;

/// Runs the command line with the arguments of the process, as ``pitstop`` in a shell does.
///
/// It writes to the standard output and standard error of the process, not to ``sys.stdout``.
///
/// Returns:
///     The exit code: 0; 1 if something is damaged or failed; 2 if the arguments make no sense; 130 after
///     Ctrl-C.
///
/// Example:
///     >>> sys.exit(command_line())
#[pyfunction]
pub(super) fn command_line(py: Python<'_>) -> PyResult<u8> {
    crossing("command_line", || {
        let arguments: Vec<OsString> = py.import("sys")?.getattr("argv")?.extract()?;
        let arguments = iter::once("pitstop".into()).chain(arguments.into_iter().skip(1));
        let code = waiting::beside(py, |stop| cli::run(arguments, stop));
        match code {
            Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => Ok(cli::INTERRUPTED),
            code => code,
        }
    })
}
