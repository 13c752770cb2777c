//! What `log` and `end` are given, as numbers and texts.

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyMapping, PyString};

use crate::python::known::{text, type_name};

/// A value of a metric.
#[derive(Debug)]
pub(super) enum Value {
    Number(f64),
    Text(String),
}

/// The names and values of a mapping, and of keywords, in their order.
pub(super) fn read<'py>(
    mapping: Option<&Bound<'py, PyAny>>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Vec<(String, Value)>> {
    let mapping = mapping.map(dictionary).transpose()?;
    let dictionaries = [mapping.as_ref(), keywords];
    let length = dictionaries.into_iter().flatten().map(PyDictMethods::len);
    let mut values = Vec::with_capacity(length.sum());
    for dictionary in dictionaries.into_iter().flatten() {
        for (name, given) in dictionary.iter() {
            let name = name_of(&name)?;
            let value = value(&name, &given)?;
            values.push((name, value));
        }
    }
    Ok(values)
}

/// The names and values of a summary, as texts.
pub(super) fn last_words(summary: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let mapping = summary.cast::<PyMapping>().map_err(|_| {
        let kind = type_name(summary);
        PyTypeError::new_err(format!(
            "summary must be a mapping from names to values, not {kind}"
        ))
    })?;
    let items = mapping.items()?;
    items
        .iter()
        .map(|item| {
            let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
            Ok((text(&name)?, text(&value)?))
        })
        .collect()
}

fn dictionary<'py>(mapping: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    if let Ok(dictionary) = mapping.cast_exact::<PyDict>() {
        return Ok(dictionary.clone());
    }
    if mapping.cast::<PyMapping>().is_err() {
        let why = format!(
            "metrics must be a mapping from names to values, or keywords, not {}",
            type_name(mapping)
        );
        return Err(PyTypeError::new_err(why));
    }
    let made = mapping.py().get_type::<PyDict>().call1((mapping,))?;
    Ok(made.cast_into::<PyDict>()?)
}

fn name_of(name: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = name.cast::<PyString>().map_err(|_| {
        let kind = type_name(name);
        PyTypeError::new_err(format!("names of metrics must be text, not {kind}"))
    })?;
    Ok(name.to_string_lossy().into_owned())
}

/// A number, or a text. What is most common is looked for first.
fn value(name: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    if given.is_exact_instance_of::<PyFloat>() {
        return given.extract::<f64>().map(Value::Number);
    }
    if let Ok(text) = given.cast::<PyString>() {
        return Ok(Value::Text(text.to_string_lossy().into_owned()));
    }
    // Truth values are integers.
    if given.is_instance_of::<PyFloat>() || given.is_instance_of::<PyInt>() {
        return number(name, given, given);
    }
    // What arrays of NumPy, torch and JAX have in common; it takes one with a single element, on any device.
    match given.getattr_opt(intern!(given.py(), "item"))? {
        Some(item) => {
            let plain = item
                .call0()
                .map_err(|error| not_single(name, given, error))?;
            number(name, given, &plain)
        }
        None => number(name, given, given),
    }
}

fn number(name: &str, given: &Bound<'_, PyAny>, plain: &Bound<'_, PyAny>) -> PyResult<Value> {
    plain.extract::<f64>().map(Value::Number).map_err(|error| {
        let why = format!(
            "metric {name:?} must be a number or a text, not {}",
            type_name(given)
        );
        because(given.py(), &why, error)
    })
}

/// The error for an array that does not have a single element; any other is left as it is.
fn not_single(name: &str, given: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = given.py();
    let shape = given.getattr(intern!(py, "shape"));
    let shape = shape.and_then(|shape| shape.extract::<Vec<u64>>());
    match shape {
        Ok(shape) if shape.iter().product::<u64>() != 1 => {
            let why = format!(
                "metric {name:?} must be a single number, not a {} of shape {shape:?}",
                type_name(given)
            );
            let refused = PyTypeError::new_err(why);
            refused.set_cause(py, Some(error));
            refused
        }
        _ => error,
    }
}

/// A `TypeError` that tells more than the one it is for.
fn because(py: Python<'_>, why: &str, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(py) {
        return error;
    }
    let refused = PyTypeError::new_err(why.to_owned());
    refused.set_cause(py, Some(error));
    refused
}
