//! What the tests of this room call and users never see; in debug builds only.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::crossing::crossing;
use super::interrupter::Interrupter;
use super::logging;
use super::retention::{Decision, Policy};
use crate::Summary;

/// Writes to the log, from this thread or from another one.
#[pyfunction]
#[pyo3(signature = (level, target, message, times=1, elsewhere=false))]
pub(super) fn probe_log(
    py: Python<'_>,
    level: &str,
    target: &str,
    message: &str,
    times: usize,
    elsewhere: bool,
) -> PyResult<()> {
    let level: log::Level = level
        .parse()
        .map_err(|_| PyValueError::new_err("no such level"))?;
    let write = || (0..times).for_each(|i| log::log!(target: target, level, "{message}{i}"));
    py.detach(|| {
        if elsewhere {
            in_thread("pitstop-probe", write);
        } else {
            write();
        }
    });
    Ok(())
}

/// Hands over what was logged.
#[pyfunction]
pub(super) fn probe_drain(py: Python<'_>) -> PyResult<()> {
    logging::drain(py)
}

/// Panics in one of several ways, inside a crossing.
#[pyfunction]
#[pyo3(signature = (how, call=None))]
pub(super) fn probe_panic(
    py: Python<'_>,
    how: &str,
    call: Option<&Bound<'_, PyAny>>,
) -> PyResult<usize> {
    crossing("probe", || match how {
        "nothing" => Ok(7),
        "call" => call.map_or(Ok(0), |call| call.call0()?.extract()),
        "text" => panic!("a plain text"),
        "formatted" => panic!("text number {}", how.len()),
        "index" => Ok([1, 2, 3][how.len()]),
        "detached" => py.detach(|| panic!("without the GIL")),
        "object" => std::panic::panic_any(Duration::ZERO),
        "resumed" => std::panic::resume_unwind(Box::new("carried over".to_owned())),
        _ => Err(PyValueError::new_err("an ordinary error")),
    })
}

/// Panics in a thread of this name, which nobody catches.
#[pyfunction]
pub(super) fn probe_panic_in_thread(py: Python<'_>, name: &str) {
    py.detach(|| in_thread(name, || panic!("in a thread")));
}

fn in_thread(name: &str, body: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let spawned = thread::Builder::new()
            .name(name.into())
            .spawn_scoped(scope, body);
        let _ = spawned.map(thread::ScopedJoinHandle::join);
    });
}

/// What a retention decides about checkpoints, given as step, seconds, and metrics. A function in it is asked
/// about `infos`.
#[pyfunction]
pub(super) fn probe_decide(
    retention: &Bound<'_, PyAny>,
    infos: &Bound<'_, PyList>,
    checkpoints: Vec<(u64, f64, BTreeMap<String, f64>)>,
) -> PyResult<(bool, String, Vec<Decision>)> {
    let policy = Policy::from_python(retention)?;
    let rule = policy.resolve(retention.py(), &infos.iter().collect::<Vec<_>>())?;
    let summary = |(step, seconds, metrics)| Summary {
        step,
        created: UNIX_EPOCH + Duration::from_secs_f64(seconds),
        metrics,
    };
    let summaries: Vec<Summary> = checkpoints.into_iter().map(summary).collect();
    let decisions = rule
        .decide(&summaries)
        .into_iter()
        .map(Decision::from)
        .collect();
    Ok((policy.has_callable(), rule.to_string(), decisions))
}

/// Stops an interrupter from a thread that knows no Python.
#[pyfunction]
pub(super) fn probe_stop(py: Python<'_>, interrupter: &Bound<'_, Interrupter>, reason: &str) {
    let inner = interrupter.get().inner();
    py.detach(|| in_thread("pitstop-probe", || inner.stop(Some(reason))));
}
