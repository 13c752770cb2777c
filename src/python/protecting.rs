//! Deferred snapshots: which memory is left alone until it is copied, and by whom.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyWeakrefMethods, PyWeakrefReference};

use super::arrays;
use super::core::Core;
use super::known::type_name;
use super::submitting::Defer;
use super::waiting::detach;
use crate::state::{Data, State};

/// Optimizers that wait for a deferred snapshot before they change anything.
#[derive(Default)]
pub(super) struct Protected(Mutex<Vec<Py<PyWeakrefReference>>>);

/// The step hook of a protected optimizer.
#[pyclass(frozen, name = "SnapshotGuard", module = "pitstop._native")]
struct SnapshotGuard {
    core: Weak<Core>,
}

#[pymethods]
impl SnapshotGuard {
    /// Waits until nothing is read any more. What the optimizer was called with does not matter.
    #[pyo3(signature = (*_args))]
    fn __call__(&self, py: Python<'_>, _args: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(core) = self.core.upgrade().filter(|core| core.is_here()) else {
            return Ok(());
        };
        let waited = core.wait_snapshot(py);
        // It may be the last to know the checkpointer, which then waits for its save.
        detach(py, || drop(core));
        waited
    }
}

/// Lets `optimizer` wait for deferred snapshots of `core` from now on.
pub(super) fn protect(core: &Arc<Core>, optimizer: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = optimizer.py();
    let Some(register) = optimizer
        .getattr_opt(pyo3::intern!(py, "register_step_pre_hook"))?
        .filter(PyAnyMethods::is_callable)
    else {
        return Err(PyTypeError::new_err(format!(
            "protect takes an optimizer with register_step_pre_hook, as those of torch have, not {}; without one, \
             pass deferred=True to save and call wait_snapshot on its handle before anything is changed",
            type_name(optimizer)
        )));
    };
    if core
        .protected
        .alive(py)
        .iter()
        .any(|known| known.is(optimizer))
    {
        return Ok(());
    }
    let guard = SnapshotGuard {
        core: Arc::downgrade(core),
    };
    let reference = PyWeakrefReference::new(optimizer)?;
    register.call1((guard,))?;
    core.protected.lock().push(reference.unbind());
    Ok(())
}

impl Protected {
    fn lock(&self) -> MutexGuard<'_, Vec<Py<PyWeakrefReference>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are still there. Python is asked without the lock: it may run a finalizer, or wait for a
    /// thread that waits for the lock.
    fn alive<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let known: Vec<_> = self.lock().iter().map(|it| it.clone_ref(py)).collect();
        let (mut alive, mut gone) = (Vec::with_capacity(known.len()), Vec::new());
        for reference in known {
            match reference.bind(py).upgrade() {
                Some(optimizer) => alive.push(optimizer),
                None => gone.push(reference),
            }
        }
        if !gone.is_empty() {
            self.lock()
                .retain(|it| gone.iter().all(|gone| !it.is(gone)));
        }
        alive
    }

    /// Whether anything may be deferred.
    pub(super) fn defers(&self, py: Python<'_>, defer: Defer) -> bool {
        match defer {
            Defer::All => true,
            Defer::Protected => !self.alive(py).is_empty(),
            Defer::None => false,
        }
    }

    /// Which tensors of the state lie in memory that only protected optimizers change.
    pub(super) fn deferred(&self, py: Python<'_>, state: &State) -> PyResult<Vec<bool>> {
        let optimizers = self.alive(py);
        if optimizers.is_empty() {
            return Ok(Vec::new());
        }
        let mut stretches = Vec::new();
        for optimizer in &optimizers {
            let groups = optimizer.getattr(pyo3::intern!(py, "param_groups"))?;
            for group in groups.try_iter()? {
                collect(&group?.get_item("params")?, &mut stretches)?;
            }
            collect(
                &optimizer.getattr(pyo3::intern!(py, "state"))?,
                &mut stretches,
            )?;
        }
        let stretches = joined(stretches);
        let is_covered = |(low, high): (usize, usize)| {
            let after = stretches.partition_point(|&(start, _)| start <= low);
            after > 0 && high <= stretches[after - 1].1
        };
        Ok(state
            .tensors
            .iter()
            .map(|tensor| match &tensor.data {
                Data::Memory(memory) => {
                    let bytes = memory.region.bytes().as_ptr_range();
                    is_covered((bytes.start.addr(), bytes.end.addr()))
                }
                _ => false,
            })
            .collect())
    }
}

/// The memory of all arrays in nested lists and dictionaries. What cannot be described is left out, and so is
/// not deferred.
fn collect(object: &Bound<'_, PyAny>, stretches: &mut Vec<(usize, usize)>) -> PyResult<()> {
    if let Ok(dict) = object.cast::<PyDict>() {
        return dict
            .values()
            .iter()
            .try_for_each(|value| collect(&value, stretches));
    }
    if object.is_instance_of::<pyo3::types::PyList>()
        || object.is_instance_of::<pyo3::types::PyTuple>()
    {
        return object
            .try_iter()?
            .try_for_each(|item| collect(&item?, stretches));
    }
    // Describing what lies on a device would copy it, and it is copied before `save` returns anyway.
    let on_host = match object.getattr_opt(pyo3::intern!(object.py(), "is_cpu"))? {
        Some(is_cpu) => is_cpu.is_truthy()?,
        None => true,
    };
    if on_host
        && let Ok(Some(array)) = arrays::describe(object)
        && !array.copied
    {
        let (low, high) = array.extent.bounds();
        // What lies in its gaps belongs to others.
        if (high - low) as u64 == crate::state::size_of(array.dtype, &array.shape) {
            stretches.push((low, high));
        }
    }
    Ok(())
}

/// Sorted, with those that touch made one.
fn joined(mut stretches: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    stretches.sort_unstable();
    let mut joined: Vec<(usize, usize)> = Vec::with_capacity(stretches.len());
    for (low, high) in stretches {
        match joined.last_mut() {
            Some(last) if low <= last.1 => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}
