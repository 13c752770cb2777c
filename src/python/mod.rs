//! The Python module `pitstop._native`. Everything here translates; what it translates to lives in the
//! other rooms.

mod arrays;
mod build;
mod crossing;
mod errors;
mod fill;
mod flatten;
mod interrupter;
mod known;
mod logging;
#[cfg(debug_assertions)]
mod probe;
mod retention;
mod tensor;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::interrupter::Interrupter;
    #[cfg(debug_assertions)]
    #[pymodule_export]
    use super::probe::{probe_decide, probe_drain, probe_log, probe_panic, probe_panic_in_thread, probe_stop};
    #[pymodule_export]
    use super::retention::{Decision, KeepAll, KeepBest, KeepEvery, KeepFor, KeepLast, Retention};
    #[pymodule_export]
    use super::tensor::Memory;

    #[pymodule_init]
    #[expect(clippy::unnecessary_wraps, reason = "the signature is given")]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::crossing::install();
        super::logging::install();
        Ok(())
    }
}
