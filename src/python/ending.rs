//! The exit code of a script that ends without having asked how its saves went.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{core, renderer};

/// Gives the terminal back and saves what is pending when the interpreter ends. What nobody has heard of is
/// printed, and the exit code is not 0.
#[pyfunction]
pub(super) fn drain_all(py: Python<'_>) -> PyResult<()> {
    let closed = renderer::close_all(py);
    let Err(error) = core::drain_all(py).and(closed) else {
        return Ok(());
    };
    // Ctrl-C has its own way to end a script.
    if error.is_instance_of::<PyException>(py) {
        return raise_at_the_end(py, error);
    }
    Err(error)
}

/// Stands in for `sys.stdout` while the interpreter ends: its last flush fails.
///
/// Python ignores what is raised at exit, with one exception: when the standard streams cannot be flushed, it
/// prints why, and the exit code is 120.
#[pyclass(frozen, name = "Unheard", module = "pitstop._native")]
struct Unheard {
    stdout: Py<PyAny>,
    sys: Py<PyModule>,
    failure: PyErr,
}

#[pymethods]
impl Unheard {
    fn __getattr__<'py>(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.stdout.bind(name.py()).getattr(name)
    }

    /// Python flushes no stream that is closed, and this one has yet to be heard.
    #[getter]
    #[expect(clippy::unused_self, reason = "Python asks an object")]
    fn closed(&self) -> bool {
        false
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let closed = self.stdout.getattr(py, "closed");
        if !closed.is_ok_and(|closed| closed.is_truthy(py).unwrap_or(false)) {
            self.stdout.call_method0(py, "flush")?;
        }
        // Others who flush while the script still runs are not to blame.
        if self.sys.call_method0(py, "is_finalizing")?.is_truthy(py)? {
            return Err(self.failure.clone_ref(py));
        }
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __repr__(&self) -> &'static str {
        "<pitstop: what failed in the background, and nobody had asked for>"
    }
}

fn raise_at_the_end(py: Python<'_>, failure: PyErr) -> PyResult<()> {
    let sys = py.import("sys")?;
    let stdout = sys.getattr("stdout")?;
    if stdout.is_none() {
        return Err(failure);
    }
    let unheard = Unheard {
        stdout: stdout.unbind(),
        sys: sys.clone().unbind(),
        failure,
    };
    sys.setattr("stdout", Bound::new(py, unheard)?)
}
