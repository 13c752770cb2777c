//! The Python module `pitstop._native`. Everything here translates; what it translates to lives in the
//! other rooms.
#![expect(
    clippy::doc_markdown,
    reason = "what Python sees is documented as Python does it"
)]

mod arguments;
mod arrays;
mod build;
mod checkpointer;
#[cfg(feature = "cli")]
mod command_line;
mod core;
mod crossing;
mod dlpack;
mod ending;
mod errors;
mod fill;
mod flatten;
mod functions;
mod handle;
mod info;
mod interrupter;
mod known;
mod leaving;
mod lending;
mod like;
mod logging;
mod module_versions;
mod protecting;
mod renderer;
mod restoring;
mod retention;
mod schedule;
mod stats;
mod storages;
mod submitting;
mod tensor;
mod waiting;

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::checkpointer::AsyncCheckpointer;
    #[cfg(feature = "cli")]
    #[pymodule_export]
    use super::command_line::command_line;
    #[pymodule_export]
    use super::functions::{checkpoints, restore, save};
    #[pymodule_export]
    use super::handle::SaveHandle;
    #[pymodule_export]
    use super::info::CheckpointInfo;
    #[pymodule_export]
    use super::interrupter::Interrupter;
    #[pymodule_export]
    use super::renderer::Renderer;
    #[pymodule_export]
    use super::retention::{Decision, KeepAll, KeepBest, KeepEvery, KeepFor, KeepLast, Retention};
    #[pymodule_export]
    use super::schedule::{EveryMinutes, EverySteps, Interval, Overhead};
    #[pymodule_export]
    use super::stats::{SaveStats, Stats};
    #[pymodule_export]
    use super::tensor::Memory;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Not by `add`, which would make it part of `__all__`.
        module.setattr("__version__", env!("CARGO_PKG_VERSION"))?;
        super::prepare(module.py())
    }
}

/// Once for each process: logs and panics go the ways of Python, terminals are given back and pending saves
/// drained when the interpreter ends, and a forked child lets go of what is its parent's.
fn prepare(py: Python<'_>) -> PyResult<()> {
    logging::install();
    crossing::install();
    // Imported now, since an import while the interpreter ends makes it forget that Ctrl-C ended it.
    py.import("logging")?;
    let drain = wrap_pyfunction!(ending::drain_all, py)?;
    py.import("atexit")?.call_method1("register", (drain,))?;
    let os = py.import("os")?;
    if os.hasattr("register_at_fork")? {
        let abandon = [("after_in_child", wrap_pyfunction!(abandon_all, py)?)];
        os.call_method("register_at_fork", (), Some(&abandon.into_py_dict(py)?))?;
    }
    Ok(())
}

/// Closes, in a forked child, the locks that belong to its parent.
#[pyfunction]
fn abandon_all() {
    core::abandon_all();
}
