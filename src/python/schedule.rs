//! When to save: intervals as Python writes them.

use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyString, PyTuple};

use super::arguments::count;
use super::known::{text, type_name};
use crate::IntervalError;

/// How far apart saves are: what ``should_save`` goes by.
///
/// Made by ``EverySteps``, ``EveryMinutes`` and ``Overhead``, and by joining those: ``a | b`` asks for a save
/// when either does. Intervals cannot be changed, and are equal if they are written alike.
///
/// Example:
///     >>> EverySteps(1000) | EveryMinutes(10)
///     EverySteps(1000) | EveryMinutes(10)
#[pyclass(frozen, subclass, module = "pitstop")]
pub(super) struct Interval {
    rule: crate::Interval,
    /// What it was joined from; nothing if it was not.
    parts: Vec<Py<Interval>>,
}

#[pymethods]
impl Interval {
    fn __or__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, Interval>,
    ) -> PyResult<Bound<'py, Interval>> {
        // `a | (b | c)` is `a | b | c`.
        let mut parts = Vec::new();
        for operand in [slf, other] {
            let inner = &operand.get().parts;
            parts.extend(inner.iter().map(|part| part.clone_ref(slf.py())));
            if inner.is_empty() {
                parts.push(operand.clone().unbind());
            }
        }
        let rule = slf.get().rule.clone() | other.get().rule.clone();
        Bound::new(slf.py(), Interval { rule, parts })
    }

    fn __eq__(&self, other: &Bound<'_, Interval>) -> bool {
        self.rule == other.get().rule
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.__repr__()).hash()
    }

    fn __repr__(&self) -> String {
        self.rule.to_string()
    }

    /// Joined ones are pickled as their parts and the ``|`` between them.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let parts = PyTuple::new(py, &self.parts)?;
        let join = py.import("operator")?.getattr("or_")?;
        let reduce = py.import("functools")?.getattr("reduce")?;
        Ok((reduce, (join, parts).into_pyobject(py)?))
    }
}

/// Saves so many steps after the last save, or after the step that was resumed from.
///
/// Args:
///     n: How many steps; at least 1.
///
/// Raises:
///     ValueError: ``n`` is less than 1.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", interval=EverySteps(500))
#[pyclass(frozen, extends = Interval, module = "pitstop")]
pub(super) struct EverySteps {
    /// How many steps.
    #[pyo3(get)]
    n: u64,
}

#[pymethods]
impl EverySteps {
    #[new]
    fn new(n: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<EverySteps>> {
        refuse_bool(n, "EverySteps: n must be an integer")?;
        let n = count(n, "EverySteps: n")?;
        Ok(base(crate::Interval::every_steps(n))?.add_subclass(EverySteps { n }))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (u64,)) {
        (slf.get_type().into_any(), (slf.get().n,))
    }
}

/// Saves so many minutes after the last save, or after the checkpointer was opened.
///
/// The clock goes on while the training does something else, and does not jump when the time is set.
///
/// Args:
///     minutes: How many; more than 0.
///
/// Raises:
///     ValueError: ``minutes`` is 0 or less, NaN, or more than there is time.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", interval=EverySteps(1000) | EveryMinutes(10))
#[pyclass(frozen, extends = Interval, module = "pitstop")]
pub(super) struct EveryMinutes {
    /// How many minutes.
    #[pyo3(get)]
    minutes: f64,
}

#[pymethods]
impl EveryMinutes {
    #[new]
    fn new(minutes: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<EveryMinutes>> {
        let given = number(minutes, "EveryMinutes: minutes")?;
        let refuse = |why: &str| {
            Ok::<_, PyErr>(PyValueError::new_err(format!(
                "EveryMinutes: minutes must be {why}, not {}",
                text(minutes)?
            )))
        };
        if given.is_nan() || given <= 0.0 {
            return Err(refuse("more than 0")?);
        }
        let Ok(time) = Duration::try_from_secs_f64(given * 60.0) else {
            return Err(refuse("a length of time")?);
        };
        let base = base(crate::Interval::every(time))?;
        Ok(base.add_subclass(EveryMinutes { minutes: given }))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (f64,)) {
        (slf.get_type().into_any(), (slf.get().minutes,))
    }
}

/// Saves as often as a share of the run's time allows.
///
/// What saves cost is measured: the time for which ``save`` blocks, and how much longer the steps take that run
/// beside a save. Saves are so far apart that all this costs at most the given share of the time. A cost that
/// changes is followed, and saves that you make yourself are paid from the same budget.
///
/// The first save is asked for as soon as the time of a step is known: after 20 steps, or after a minute if that
/// comes first. None is asked for while another is in flight, or in the 5 seconds after one or after the run was opened.
///
/// What your loop does only where it saves, after ``save``, counts as a cost of saving.
///
/// Args:
///     share: More than 0 and less than 1; 0.02 is two percent.
///
/// Raises:
///     ValueError: ``share`` is anything else, or NaN.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", interval=Overhead(0.02))
#[pyclass(frozen, extends = Interval, module = "pitstop")]
pub(super) struct Overhead {
    /// The share of the run's time.
    #[pyo3(get)]
    share: f64,
}

#[pymethods]
impl Overhead {
    #[new]
    fn new(share: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Overhead>> {
        let share = number(share, "Overhead: share")?;
        Ok(base(crate::Interval::overhead(share))?.add_subclass(Overhead { share }))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (f64,)) {
        (slf.get_type().into_any(), (slf.get().share,))
    }
}

/// What the user passed as `interval`.
///
/// # Errors
///
/// `TypeError` if it is none, such as a number of steps.
pub(super) fn interval(given: &Bound<'_, PyAny>) -> PyResult<crate::Interval> {
    let interval = given.cast::<Interval>().map_err(|_| {
        PyTypeError::new_err(format!(
            "interval must be EverySteps(n), EveryMinutes(minutes), Overhead(share), several of them joined by |, or \
             None, not {}",
            type_name(given)
        ))
    })?;
    Ok(interval.get().rule.clone())
}

fn base(made: Result<crate::Interval, IntervalError>) -> PyResult<PyClassInitializer<Interval>> {
    let rule = made.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyClassInitializer::from(Interval {
        rule,
        parts: Vec::new(),
    }))
}

/// A number that is not a truth value, with which Python counts too.
fn number(value: &Bound<'_, PyAny>, what: &str) -> PyResult<f64> {
    let expected = format!("{what} must be a number");
    refuse_bool(value, &expected)?;
    value
        .extract()
        .map_err(|_| PyTypeError::new_err(format!("{expected}, not {}", type_name(value))))
}

fn refuse_bool(value: &Bound<'_, PyAny>, expected: &str) -> PyResult<()> {
    if value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err(format!("{expected}, not bool")));
    }
    Ok(())
}
