//! What a checkpointer is given as its retention, and what the worker gets of it.

use std::collections::BTreeSet;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyList, PyString, PyType};
use pyo3::{PyTraverseError, PyVisit};

use super::{Join, Retention, Rule, is_operand};
use crate::python::known::type_name;

/// The retention of a checkpointer: a rule, a function, or nothing.
pub(in crate::python) struct Policy {
    /// A [`Retention`] or a function; `None` keeps everything.
    source: Option<Py<PyAny>>,
    has_callable: bool,
}

impl Policy {
    /// Takes what the user passed as `retention`.
    ///
    /// # Errors
    ///
    /// `TypeError` if it is neither `None`, nor a rule, nor a function.
    pub(in crate::python) fn from_python(retention: &Bound<'_, PyAny>) -> PyResult<Policy> {
        if retention.is_none() {
            return Ok(Policy {
                source: None,
                has_callable: false,
            });
        }
        if !is_operand(retention) {
            let kind = if retention.is_instance_of::<PyType>() {
                format!("the class {}", name_of(retention))
            } else {
                type_name(retention)
            };
            return Err(PyTypeError::new_err(format!(
                "retention must be a rule such as KeepLast(3), a function from the list of checkpoints to the \
                 steps to keep, or None, not {kind}"
            )));
        }
        Ok(Policy {
            source: Some(retention.clone().unbind()),
            has_callable: has_callable(retention),
        })
    }

    /// Whether nothing was passed, so that everything stays.
    pub(in crate::python) fn keeps_all(&self) -> bool {
        self.source.is_none()
    }

    /// Whether it holds a function, so that it needs to be resolved anew for each save.
    pub(in crate::python) fn has_callable(&self) -> bool {
        self.has_callable
    }

    /// The rule for the worker, which never calls Python: each function is asked now, with `infos`, and
    /// replaced by its answer. The answer covers the checkpoints in `infos`; others, which are
    /// younger, stay as far as the function is concerned.
    ///
    /// `infos` are the committed checkpoints as objects with a `step`, in ascending order; nobody looks
    /// at them if there is no function.
    ///
    /// # Errors
    ///
    /// What a function raised; `TypeError` or `ValueError` if it returned something else than steps.
    pub(in crate::python) fn resolve<'py>(
        &self,
        py: Python<'py>,
        infos: &[Bound<'py, PyAny>],
    ) -> PyResult<crate::Retention> {
        match &self.source {
            Some(source) => resolve(source.bind(py), infos),
            None => Ok(crate::Retention::keep_all()),
        }
    }

    /// For the garbage collector: a function may refer to the checkpointer that refers to it.
    pub(in crate::python) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.source)
    }
}

fn has_callable(operand: &Bound<'_, PyAny>) -> bool {
    match operand.cast::<Retention>().map(|rule| &rule.get().rule) {
        Ok(Rule::One(_)) => false,
        Ok(Rule::Joined(_, parts)) => parts
            .iter()
            .any(|part| has_callable(part.bind(operand.py()))),
        Err(_) => true,
    }
}

fn resolve<'py>(
    operand: &Bound<'py, PyAny>,
    infos: &[Bound<'py, PyAny>],
) -> PyResult<crate::Retention> {
    match operand.cast::<Retention>().map(|rule| &rule.get().rule) {
        Ok(Rule::One(rule)) => Ok(rule.clone()),
        Ok(Rule::Joined(how, parts)) => {
            let mut parts = parts
                .iter()
                .map(|part| resolve(part.bind(operand.py()), infos));
            let first = parts
                .next()
                .unwrap_or_else(|| Ok(crate::Retention::keep_all()))?;
            parts.try_fold(first, |all, part| {
                Ok(match how {
                    Join::Any => all | part?,
                    Join::Both => all & part?,
                })
            })
        }
        Err(_) => ask(operand, infos),
    }
}

/// Asks a function which checkpoints stay.
fn ask<'py>(
    function: &Bound<'py, PyAny>,
    infos: &[Bound<'py, PyAny>],
) -> PyResult<crate::Retention> {
    let name = name_of(function);
    let mut judged = BTreeSet::new();
    for info in infos {
        judged.insert(info.getattr("step")?.extract::<u64>()?);
    }
    let answer = function.call1((PyList::new(function.py(), infos)?,))?;
    let kept = steps(&answer, &name)?;
    Ok(crate::Retention::custom(name, move |checkpoints| {
        // A checkpoint that was committed since was not judged: above all the one being saved.
        let stays = |step: &u64| kept.contains(step) || !judged.contains(step);
        checkpoints
            .iter()
            .map(|checkpoint| checkpoint.step)
            .filter(stays)
            .collect()
    }))
}

fn steps(answer: &Bound<'_, PyAny>, function: &str) -> PyResult<BTreeSet<u64>> {
    let refuse = |what: String| {
        PyTypeError::new_err(format!(
            "the retention function {function} must return an iterable of the steps to keep, or of the checkpoints \
             to keep; it returned {what}"
        ))
    };
    if !answer.hasattr("__iter__")? || answer.is_instance_of::<PyString>() {
        return Err(refuse(type_name(answer)));
    }
    let mut steps = BTreeSet::new();
    for item in answer.try_iter()? {
        let item = item?;
        let step = step_of(&item)?
            .ok_or_else(|| refuse(format!("one with {} in it", type_name(&item))))?;
        // A negative one is an index by mistake; to pass over it would delete what was meant to stay.
        let step = step.extract().map_err(|_| {
            PyValueError::new_err(format!(
                "the retention function {function} returned {step}, which is no step"
            ))
        })?;
        steps.insert(step);
    }
    Ok(steps)
}

/// The step that an item stands for: itself, or its `step`. A truth value is none, though Python counts with
/// it: a list of those would keep the steps 0 and 1.
fn step_of<'py>(item: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let step = match item.getattr_opt("step")? {
        Some(step) => step,
        None => item.clone(),
    };
    if step.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    if step.is_instance_of::<PyInt>() {
        return Ok(Some(step));
    }
    // Integers of NumPy, and what else is one without being an `int`.
    match step
        .py()
        .import("operator")?
        .call_method1("index", (&step,))
    {
        Ok(step) => Ok(Some(step)),
        Err(error) if error.is_instance_of::<PyTypeError>(step.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What to call a function: its name, or the type of an object that can be called.
pub(super) fn name_of(function: &Bound<'_, PyAny>) -> String {
    let name = function
        .getattr("__name__")
        .and_then(|name| name.extract::<String>());
    name.unwrap_or_else(|_| type_name(function))
}
