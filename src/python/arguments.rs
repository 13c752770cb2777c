//! What users pass, checked and translated.

use std::collections::BTreeMap;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};

use super::errors;
use super::flatten::flatten;
use super::known::{text, type_name};
use crate::file_checkpointer::SaveOptions;

/// A number that counts something: an integer, not negative.
pub(super) fn count(value: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    let number = value.call_method0("__index__").map_err(|_| {
        PyTypeError::new_err(format!(
            "{what} must be an integer, not {}",
            type_name(value)
        ))
    })?;
    // Steps travel as `usize` and are compared with `i64` in other tools.
    let small = number.extract::<i64>().ok();
    if let Some(number) = small.and_then(|number| u64::try_from(number).ok()) {
        return Ok(number);
    }
    let why = format!(
        "{what} must be between 0 and 2**63 - 1, not {}",
        text(&number)?
    );
    Err(PyValueError::new_err(why))
}

/// Metrics and metadata as they are kept.
pub(super) fn save_options(
    metrics: Option<&Bound<'_, PyAny>>,
    metadata: Option<&Bound<'_, PyAny>>,
    overwrite: bool,
) -> PyResult<SaveOptions> {
    let mut options = SaveOptions {
        overwrite,
        ..SaveOptions::default()
    };
    if let Some(metrics) = metrics {
        let mapping = metrics
            .cast::<PyMapping>()
            .map_err(|_| PyTypeError::new_err("metrics must be a mapping from names to numbers"))?;
        options.metrics = read_metrics(mapping)?;
    }
    if let Some(metadata) = metadata {
        let flattened = flatten(metadata, "metadata")?;
        if !flattened.state.tensors.is_empty() {
            return Err(errors::named(
                metadata.py(),
                "UnsupportedTypeError",
                "metadata holds arrays; put those into the state",
            ));
        }
        options.metadata = flattened.state.root;
    }
    Ok(options)
}

fn read_metrics(metrics: &Bound<'_, PyMapping>) -> PyResult<BTreeMap<String, f64>> {
    let mut read = BTreeMap::new();
    let dict = metrics
        .py()
        .get_type::<PyDict>()
        .call1((metrics,))?
        .cast_into::<PyDict>()?;
    for (name, value) in dict.iter() {
        let name: String = name
            .extract()
            .map_err(|_| PyTypeError::new_err("names of metrics must be text"))?;
        let value: f64 = value.extract().map_err(|_| {
            PyTypeError::new_err(format!(
                "metric {name:?} must be a number, not {}",
                type_name(&value)
            ))
        })?;
        read.insert(name, value);
    }
    Ok(read)
}
