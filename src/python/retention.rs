//! Which checkpoints stay: the rules as Python writes them.
#![expect(
    clippy::doc_markdown,
    reason = "the docs of classes and methods are docstrings, in Python's form"
)]

mod policy;

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};

pub(super) use policy::Policy;

use crate::Mode;

/// A rule that says which checkpoints stay.
///
/// Made by ``KeepLast``, ``KeepBest``, ``KeepEvery``, ``KeepFor`` and ``KeepAll``, and by joining those:
/// ``a | b`` keeps what either keeps, ``a & b`` what both keep. One side may be a function: it is given
/// the list of the checkpoints, oldest step first, and returns an iterable of the steps to keep, or of
/// the checkpoints themselves. It judges those that it is given: a checkpoint that came later stays
/// until the function has seen it.
///
/// Whatever a rule says, the newest checkpoint stays if no other does. Rules cannot be changed, and are
/// equal if they are written alike.
///
/// Example:
///     >>> KeepLast(3) | KeepBest("val_loss")
///     KeepLast(3) | KeepBest("val_loss", mode="min")
#[pyclass(frozen, subclass, module = "pitstop")]
pub(super) struct Retention {
    rule: Rule,
}

enum Rule {
    One(crate::Retention),
    /// Rules and functions, two at least.
    Joined(Join, Vec<Py<PyAny>>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Join {
    Any,
    Both,
}

impl Join {
    fn sign(self) -> &'static str {
        match self {
            Join::Any => " | ",
            Join::Both => " & ",
        }
    }
}

#[pymethods]
impl Retention {
    fn __or__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        join(Join::Any, slf.as_any(), other)
    }

    fn __ror__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        join(Join::Any, other, slf.as_any())
    }

    fn __and__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        join(Join::Both, slf.as_any(), other)
    }

    fn __rand__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        join(Join::Both, other, slf.as_any())
    }

    fn __eq__(&self, other: &Bound<'_, Retention>) -> PyResult<bool> {
        let py = other.py();
        match (&self.rule, &other.get().rule) {
            // The written form says all there is about a rule of the core.
            (Rule::One(ours), Rule::One(theirs)) => Ok(ours.to_string() == theirs.to_string()),
            (Rule::Joined(how, ours), Rule::Joined(other_how, theirs)) if how == other_how => {
                PyTuple::new(py, ours)?.eq(PyTuple::new(py, theirs)?)
            }
            _ => Ok(false),
        }
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        match &self.rule {
            Rule::One(rule) => PyString::new(py, &rule.to_string()).hash(),
            Rule::Joined(how, parts) => (how.sign(), PyTuple::new(py, parts)?)
                .into_pyobject(py)?
                .hash(),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        match &self.rule {
            Rule::One(rule) => written(py, rule),
            Rule::Joined(how, parts) => {
                let parts = parts.iter().map(|part| how.operand(part.bind(py)));
                Ok(parts.collect::<PyResult<Vec<_>>>()?.join(how.sign()))
            }
        }
    }

    // A rule cannot be changed, so that it is as good as its copy.
    fn __copy__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __deepcopy__<'py>(slf: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        slf
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.rule {
            Rule::One(_) => Ok(()),
            Rule::Joined(_, parts) => parts.iter().try_for_each(|part| visit.call(part)),
        }
    }
}

impl Join {
    /// The operand as it is written: `&` binds tighter than `|`.
    fn operand(self, part: &Bound<'_, PyAny>) -> PyResult<String> {
        let Ok(rule) = part.cast::<Retention>() else {
            return Ok(policy::name_of(part));
        };
        let written = rule.get().__repr__(part.py())?;
        Ok(match (self, &rule.get().rule) {
            (Join::Both, Rule::Joined(Join::Any, _)) => format!("({written})"),
            _ => written,
        })
    }
}

/// A rule of the core in Python's quotes, as far as it needs any.
fn written(py: Python<'_>, rule: &crate::Retention) -> PyResult<String> {
    let crate::Retention::Best { metric, .. } = rule else {
        return Ok(rule.to_string());
    };
    let repr = PyString::new(py, metric)
        .repr()?
        .to_string_lossy()
        .into_owned();
    let inner = repr
        .strip_prefix('\'')
        .and_then(|rest| rest.strip_suffix('\''));
    let python = match inner {
        Some(inner) if !inner.contains(['"', '\\']) => format!("\"{inner}\""),
        _ => repr,
    };
    Ok(rule
        .to_string()
        .replacen(&format!("{metric:?}"), &python, 1))
}

/// Joins two operands; `NotImplemented` if one of them is neither a rule nor a function.
fn join<'py>(
    how: Join,
    left: &Bound<'py, PyAny>,
    right: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = left.py();
    if ![left, right].into_iter().all(is_operand) {
        return Ok(py.NotImplemented().into_bound(py));
    }
    // `a | (b | c)` is `a | b | c`.
    let mut parts = Vec::new();
    for operand in [left, right] {
        match operand.cast::<Retention>().map(|rule| &rule.get().rule) {
            Ok(Rule::Joined(inner, more)) if *inner == how => {
                parts.extend(more.iter().map(|part| part.clone_ref(py)));
            }
            _ => parts.push(operand.clone().unbind()),
        }
    }
    Ok(Bound::new(
        py,
        Retention {
            rule: Rule::Joined(how, parts),
        },
    )?
    .into_any())
}

/// A rule or a function. A class is neither, though one can call it: `KeepAll` without its parentheses.
fn is_operand(object: &Bound<'_, PyAny>) -> bool {
    object.is_instance_of::<Retention>()
        || (object.is_callable() && !object.is_instance_of::<PyType>())
}

/// Keeps the checkpoints with the highest steps.
///
/// Args:
///     n: How many; at least 1.
///
/// Raises:
///     ValueError: ``n`` is less than 1.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", retention=KeepLast(3))
#[pyclass(frozen, extends = Retention, module = "pitstop")]
pub(super) struct KeepLast {
    /// How many.
    #[pyo3(get)]
    n: u64,
}

#[pymethods]
impl KeepLast {
    #[new]
    fn new(n: i128) -> PyResult<PyClassInitializer<KeepLast>> {
        let n = at_least_one("KeepLast", "n", n)?;
        Ok(rule(crate::Retention::keep_last(n as usize))?.add_subclass(KeepLast { n }))
    }
}

/// Keeps the checkpoints with the best values of a metric.
///
/// NaN and a missing value are never best. Of equal values the earlier step wins. While no checkpoint has
/// a usable value, all stay.
///
/// Args:
///     metric: Its name in ``save(…, metrics={…})``.
///     mode: ``"min"`` if lower is better, as for a loss; ``"max"`` if higher is.
///     n: How many; at least 1.
///
/// Raises:
///     ValueError: ``mode`` is neither, or ``n`` is less than 1.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", retention=KeepLast(1) | KeepBest("accuracy", mode="max"))
#[pyclass(frozen, extends = Retention, module = "pitstop")]
pub(super) struct KeepBest {
    /// Name of the metric.
    #[pyo3(get)]
    metric: String,
    mode: Mode,
    /// How many.
    #[pyo3(get)]
    n: u64,
}

#[pymethods]
impl KeepBest {
    #[new]
    #[pyo3(signature = (metric, mode="min", n=1))]
    fn new(metric: String, mode: &str, n: i128) -> PyResult<PyClassInitializer<KeepBest>> {
        let mode = parse_mode(mode)?;
        let n = at_least_one("KeepBest", "n", n)?;
        let base = rule(crate::Retention::keep_best(&metric, mode, n as usize))?;
        Ok(base.add_subclass(KeepBest { metric, mode, n }))
    }

    /// ``"min"`` or ``"max"``.
    #[getter]
    fn mode(&self) -> String {
        self.mode.to_string()
    }
}

/// Keeps the checkpoints whose step is a multiple of a number.
///
/// Args:
///     steps: That number; at least 1.
///
/// Raises:
///     ValueError: ``steps`` is less than 1.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", retention=KeepLast(2) | KeepEvery(10_000))
#[pyclass(frozen, extends = Retention, module = "pitstop")]
pub(super) struct KeepEvery {
    /// The distance in steps.
    #[pyo3(get)]
    steps: u64,
}

#[pymethods]
impl KeepEvery {
    #[new]
    fn new(steps: i128) -> PyResult<PyClassInitializer<KeepEvery>> {
        let steps = at_least_one("KeepEvery", "steps", steps)?;
        Ok(rule(crate::Retention::keep_every(steps))?.add_subclass(KeepEvery { steps }))
    }
}

/// Keeps the checkpoints that were saved at most so long before the newest one.
///
/// The time at which the rule is applied plays no part: a run that rests loses nothing.
///
/// Args:
///     seconds: How long; more than 0.
///
/// Raises:
///     ValueError: ``seconds`` is 0 or less, NaN, or more than there is time.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", retention=KeepFor(24 * 3600))
#[pyclass(frozen, extends = Retention, module = "pitstop")]
pub(super) struct KeepFor {
    /// How long.
    #[pyo3(get)]
    seconds: f64,
}

#[pymethods]
impl KeepFor {
    #[new]
    fn new(seconds: f64) -> PyResult<PyClassInitializer<KeepFor>> {
        let refuse = |why: &str| {
            PyValueError::new_err(format!("KeepFor: seconds must be {why}, not {seconds}"))
        };
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(refuse("greater than 0"));
        }
        let duration =
            Duration::try_from_secs_f64(seconds).map_err(|_| refuse("a length of time"))?;
        if duration.is_zero() {
            return Err(refuse("a nanosecond at least"));
        }
        Ok(rule(crate::Retention::keep_for(duration))?.add_subclass(KeepFor { seconds }))
    }
}

/// Keeps every checkpoint, as a checkpointer without a rule does.
///
/// Example:
///     >>> AsyncCheckpointer("runs/exp1", retention=KeepAll())
#[pyclass(frozen, extends = Retention, module = "pitstop")]
pub(super) struct KeepAll;

#[pymethods]
impl KeepAll {
    #[new]
    fn new() -> PyClassInitializer<KeepAll> {
        base(crate::Retention::keep_all()).add_subclass(KeepAll)
    }
}

fn rule(
    made: Result<crate::Retention, crate::RetentionError>,
) -> PyResult<PyClassInitializer<Retention>> {
    made.map(base)
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

fn base(rule: crate::Retention) -> PyClassInitializer<Retention> {
    PyClassInitializer::from(Retention {
        rule: Rule::One(rule),
    })
}

fn at_least_one(class: &str, name: &str, value: i128) -> PyResult<u64> {
    let refuse = |why| PyValueError::new_err(format!("{class}: {name} must be {why}, not {value}"));
    if value < 1 {
        return Err(refuse("at least 1"));
    }
    u64::try_from(value).map_err(|_| refuse("less than 2**64"))
}

/// Which values are better, by the word that Python uses for it.
///
/// # Errors
///
/// `ValueError` for any other word.
pub(super) fn parse_mode(mode: &str) -> PyResult<Mode> {
    match mode {
        "min" => Ok(Mode::Min),
        "max" => Ok(Mode::Max),
        _ => Err(PyValueError::new_err(format!(
            "mode must be \"min\" or \"max\", not {mode:?}"
        ))),
    }
}

/// What becomes of one checkpoint, and why.
#[pyclass(frozen, eq, hash, module = "pitstop")]
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Decision {
    /// The step of the checkpoint.
    #[pyo3(get)]
    step: u64,
    /// Whether it stays.
    #[pyo3(get)]
    keep: bool,
    reasons: Vec<String>,
}

#[pymethods]
impl Decision {
    /// The rules that keep it, such as ``KeepLast(3)``; empty if it goes.
    #[getter]
    fn reasons<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.reasons)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let keep = if self.keep { "True" } else { "False" };
        Ok(format!(
            "Decision(step={}, keep={keep}, reasons={})",
            self.step,
            self.reasons(py)?.repr()?.to_string_lossy()
        ))
    }
}

impl From<crate::Decision> for Decision {
    fn from(decision: crate::Decision) -> Decision {
        let crate::Decision {
            step,
            keep,
            reasons,
        } = decision;
        Decision {
            step,
            keep,
            reasons,
        }
    }
}
