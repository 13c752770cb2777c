//! The Python module `pitstop._native`. Everything here translates; what it translates to lives in the
//! other rooms.

mod arrays;
mod build;
mod errors;
mod fill;
mod flatten;
mod known;
mod tensor;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::tensor::Memory;
}
