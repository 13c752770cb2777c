//! `AsyncCheckpointer`: the face of the worker.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

use super::arguments::{count, save_options};
use super::core::{Core, wait_snapshots};
use super::crossing::crossing;
use super::errors;
use super::handle::SaveHandle;
use super::info::CheckpointInfo;
use super::interrupter::Interrupter;
use super::leaving::leave;
use super::protecting;
use super::restoring::{self, Request};
use super::retention::{Decision, Policy, parse_mode};
use super::schedule;
use super::stats::Stats;
use super::submitting::{Defer, OnBusy, Terms, look, python_infos, submit};
use super::waiting::{Deadline, MOMENT, detach, until};
use crate::checkpointer::{CheckpointerError, TrySubmitError};
use crate::file_checkpointer::{CheckpointInfo as Info, Options, RestoreError};
use crate::storage::LockError;

/// Saves the state of a training run in the background, and gives it back.
///
/// One checkpointer writes to a directory at a time; any number of readers may look at it. Use it as a
/// context manager, or call ``close``: both wait for what is pending and raise what went wrong.
///
/// Args:
///     directory: Where the checkpoints go, one subdirectory a step; made with its parents.
///     retention: Which checkpoints stay after each save: ``KeepLast(3) | KeepBest("loss")``, or a function that
///         is given the list of ``CheckpointInfo`` and returns the steps to keep; if it raises, ``save`` raises
///         that, with the checkpoint saved and nothing deleted. Default: all.
///     interrupter: Told of each failure in the background; then ``save`` and ``delete`` do not raise those,
///         and ``wait`` and ``close`` still do.
///     on_busy: What ``save`` does while another save is in flight: ``"wait"``; ``"skip"``, which returns a handle
///         whose ``skipped`` is true; or ``"raise"``.
///     memory_limit: Bytes of host memory that snapshots may take. What does not fit is written straight from the
///         training's memory, and ``save`` blocks until that is done. Default: as much as the state has.
///     verify: Compare every checksum when restoring.
///     incremental: Link files that did not change since the previous checkpoint instead of writing them, so that
///         up to 128 checkpoints share a file, and damage to it. With ``False`` no two share anything. Where files
///         cannot be linked, as on some network file systems, all are written each time; a warning is logged.
///     fsync: Make every save durable. Without, a power cut may lose checkpoints that were reported as saved.
///     check_deferred: For debugging: compute the checksums of what is deferred before ``save`` returns, and copy it
///         when the training waits for that, or a second later, so that the save fails, naming the tensor, if that
///         was changed before.
///     interval: When ``should_save`` says so: ``EverySteps(500)``, ``EveryMinutes(10)``, ``Overhead(0.02)``, or
///         several joined by ``|``. Saves are made all the same only by ``save``.
///
/// Raises:
///     DirectoryLockedError: Another checkpointer writes there; the message names its process.
///     OSError: The directory cannot be made or used, or is itself one checkpoint.
///
/// Example:
///     >>> with pitstop.AsyncCheckpointer("runs/exp1") as ckpt:
///     ...     start = ckpt.resume(into=state) or 0
///     ...     for step in range(start + 1, 1001):
///     ...         train_step(state)
///     ...         if step % 100 == 0:
///     ...             ckpt.save(step, state)
#[pyclass(frozen, weakref, name = "AsyncCheckpointer", module = "pitstop")]
pub(super) struct AsyncCheckpointer {
    core: Option<Arc<Core>>,
    terms: Terms,
}

impl AsyncCheckpointer {
    /// The core, after what every call does first.
    fn enter(&self, py: Python<'_>) -> PyResult<&Arc<Core>> {
        let core = self
            .core
            .as_ref()
            .ok_or_else(|| errors::named(py, "CheckpointError", "the checkpointer is closed"))?;
        core.enter(py)?;
        Ok(core)
    }

    /// The same for calls that need the worker.
    pub(super) fn enter_open(&self, py: Python<'_>) -> PyResult<&Arc<Core>> {
        let core = self.enter(py)?;
        if core.is_open() {
            Ok(core)
        } else {
            let directory = core.run.directory().display();
            let why = format!("the checkpointer of {directory} is closed");
            Err(errors::named(py, "CheckpointError", &why))
        }
    }
}

#[pymethods]
impl AsyncCheckpointer {
    #[new]
    #[pyo3(signature = (directory, *, retention=None, interrupter=None, on_busy="wait", memory_limit=None, verify=true, incremental=true, fsync=true, check_deferred=false, interval=None))]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "they are keywords in Python"
    )]
    fn new(
        py: Python<'_>,
        directory: PathBuf,
        retention: Option<&Bound<'_, PyAny>>,
        interrupter: Option<&Bound<'_, Interrupter>>,
        on_busy: &str,
        memory_limit: Option<&Bound<'_, PyAny>>,
        verify: bool,
        incremental: bool,
        fsync: bool,
        check_deferred: bool,
        interval: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<AsyncCheckpointer> {
        crossing("AsyncCheckpointer", || {
            let on_busy = match on_busy {
                "wait" => OnBusy::Wait,
                "skip" => OnBusy::Skip,
                "raise" => OnBusy::Raise,
                other => {
                    let why =
                        format!("on_busy must be \"wait\", \"skip\" or \"raise\", not {other:?}");
                    return Err(PyValueError::new_err(why));
                }
            };
            let memory_limit = memory_limit
                .map(|limit| count(limit, "memory_limit"))
                .transpose()?;
            let policy = Policy::from_python(
                &retention.map_or_else(|| py.None().into_bound(py), Clone::clone),
            )?;
            let resolved = if policy.has_callable() {
                crate::Retention::All
            } else {
                policy.resolve(py, &[])?
            };
            let options = Options {
                retention: resolved,
                verify,
                incremental,
                memory_limit,
                fsync,
                ..Options::default()
            };
            let interrupter = interrupter.map(|interrupter| interrupter.get().inner());
            let interval = interval.map(schedule::interval).transpose()?;
            let opened = detach(py, || Core::open(directory, options, interrupter, interval));
            let core = opened.map_err(|error| locked(py, &error))?;
            core.register(py);
            core.enter(py)?;
            Ok(AsyncCheckpointer {
                core: Some(core),
                terms: Terms {
                    policy,
                    on_busy,
                    check_deferred,
                },
            })
        })
    }

    /// Takes a snapshot of the state and saves it in the background.
    ///
    /// Returns once the tensors are copied, at the speed of memory: they may be changed at once. What does not
    /// fit ``memory_limit`` is written before it returns, and Ctrl-C waits for that.
    ///
    /// Tensors whose copy is deferred are copied in the background, and must not be changed before: until the
    /// step of a protected optimizer, which waits, or until ``wait_snapshot`` of the handle has returned.
    ///
    /// Args:
    ///     step: The training step, not negative.
    ///     state: Nested containers with arrays and plain values, and objects with ``state_dict()``.
    ///     metrics: Numbers to keep with the checkpoint, by name; retention and ``best`` judge by them.
    ///     metadata: Plain values to keep with the checkpoint.
    ///     overwrite: Replace a checkpoint of the same step, atomically.
    ///     deferred: ``None`` defers the tensors of protected optimizers, ``True`` all, ``False`` none.
    ///
    /// Returns:
    ///     A handle to follow the save with.
    ///
    /// Raises:
    ///     UnsupportedTypeError: The state holds something that cannot be saved; the message says where.
    ///     StepExistsError: The step was saved before.
    ///     SaveError: An *earlier* save failed, and nobody had heard of it. This one was not made.
    ///
    /// What a retention function raises comes out of here too; then the checkpoint is saved all the same, and
    /// nothing is deleted.
    #[pyo3(signature = (step, state, *, metrics=None, metadata=None, overwrite=false, deferred=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn save(
        &self,
        py: Python<'_>,
        step: &Bound<'_, PyAny>,
        state: &Bound<'_, PyAny>,
        metrics: Option<&Bound<'_, PyAny>>,
        metadata: Option<&Bound<'_, PyAny>>,
        overwrite: bool,
        deferred: Option<bool>,
    ) -> PyResult<SaveHandle> {
        crossing("AsyncCheckpointer.save", || {
            let core = self.enter_open(py)?;
            let step = count(step, "step")?;
            let options = save_options(metrics, metadata, overwrite)?;
            let defer = match deferred {
                None => Defer::Protected,
                Some(true) => Defer::All,
                Some(false) => Defer::None,
            };
            submit(py, core, &self.terms, step, state, options, defer)
        })
    }

    /// Defers the snapshot of what an optimizer changes: ``save`` returns at once, the copy runs beside forward
    /// and backward, and the optimizer's step waits until it is done.
    ///
    /// Its parameters and its state must be changed by nothing but its ``step`` between a ``save`` and the next
    /// step; ``check_deferred`` finds out. Memory must not be freed or moved under a tensor meanwhile, as
    /// ``untyped_storage().resize_``, ``share_memory_`` and sending it to another process do: that ends the
    /// process. Everything else in a state is still copied before ``save`` returns.
    ///
    /// Args:
    ///     optimizer: A ``torch.optim.Optimizer``, or anything that has ``register_step_pre_hook``,
    ///         ``param_groups`` and ``state`` as those do. It is not kept alive.
    ///
    /// Raises:
    ///     TypeError: It has no ``register_step_pre_hook``.
    fn protect(&self, py: Python<'_>, optimizer: &Bound<'_, PyAny>) -> PyResult<()> {
        crossing("AsyncCheckpointer.protect", || {
            protecting::protect(self.enter_open(py)?, optimizer)
        })
    }

    /// Whether to save now, by the checkpointer's ``interval``. Takes a few microseconds at most.
    ///
    /// Call it once for each training step, at the place where the loop would save. Asked again for the same
    /// step, it says the same until there was a save. It is told of every ``save``, also of those that it did
    /// not ask for, and of ``resume``.
    ///
    /// If several processes train together, let one of them ask and tell the others: clocks and costs differ,
    /// and so would the answers.
    ///
    /// Args:
    ///     step: The training step, as for ``save``.
    ///
    /// Raises:
    ///     CheckpointError: The checkpointer has no ``interval``, or is closed.
    ///     SaveError, DeleteError: An *earlier* call failed, and nobody had heard of it. The question was not
    ///         looked at.
    ///
    /// Example:
    ///     >>> with pitstop.AsyncCheckpointer("runs/exp1", interval=pitstop.Overhead(0.02)) as ckpt:
    ///     ...     for step in range(1, 1001):
    ///     ...         train_step(state)
    ///     ...         if ckpt.should_save(step):
    ///     ...             ckpt.save(step, state)
    fn should_save(&self, py: Python<'_>, step: &Bound<'_, PyAny>) -> PyResult<bool> {
        let core = self.enter_open(py)?;
        let step = count(step, "step")?;
        core.raise_earlier_failure(py)?;
        core.should_save(step).ok_or_else(|| {
            let why = "should_save needs an interval, such as \
                       AsyncCheckpointer(..., interval=pitstop.EverySteps(500))";
            errors::named(py, "CheckpointError", why)
        })
    }

    /// What the saves of this checkpointer cost. Always counted; also there after ``close``.
    ///
    /// Returns:
    ///     A ``Stats``: the last hundred saves one by one, and sums over all of them.
    ///
    /// Example:
    ///     >>> ckpt.stats().saves[-1].stall
    ///     0.013
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        Ok(self.enter(py)?.stats().into())
    }

    /// Host memory that snapshots take, in bytes.
    ///
    /// Returns:
    ///     ``"in_use"``: by the snapshot of the save in flight. ``"kept"``: held ready for the next one. Both are 0
    ///     after ``close``.
    fn memory(&self, py: Python<'_>) -> PyResult<BTreeMap<&'static str, usize>> {
        let core = self.enter(py)?;
        let (all, in_use) = detach(py, || core.memory());
        Ok([("in_use", in_use), ("kept", all - in_use)].into())
    }

    /// Restores a checkpoint, after the saves that were made before.
    ///
    /// Args:
    ///     step: Which one; by default the newest intact one. Damaged ones are passed over with a warning.
    ///     into: Objects to fill in place: tensors keep their memory, objects with ``load_state_dict`` are given
    ///         their state, plain values are replaced in their container.
    ///     like: A template whose container types the result gets, such as a named tuple of optax. Its arrays say in
    ///         which framework those of the result are; shapes, element types and values are those that were saved.
    ///     only: Glob pattern, or list of patterns, over names such as ``"model.*"``. What matches none is left
    ///         out, or left as it is with ``into``.
    ///     framework: ``"numpy"``, ``"torch"`` or ``"jax"``; by default what each array was.
    ///     mmap: Return at once, with private, writable arrays that are read when they are touched. Their
    ///         checksums are not compared.
    ///
    /// Returns:
    ///     The state; with ``into`` the filled object, which is the same one unless it is a tuple or frozen.
    ///
    /// Raises:
    ///     CheckpointNotFoundError: There is none.
    ///     CorruptCheckpointError: It is not what was saved.
    ///     StateMismatchError: It does not fit ``into`` or ``like``; all differences are listed.
    #[pyo3(signature = (step=None, *, into=None, like=None, only=None, framework=None, mmap=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn restore<'py>(
        &self,
        py: Python<'py>,
        step: Option<&Bound<'py, PyAny>>,
        into: Option<Bound<'py, PyAny>>,
        like: Option<Bound<'py, PyAny>>,
        only: Option<&Bound<'py, PyAny>>,
        framework: Option<String>,
        mmap: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        crossing("AsyncCheckpointer.restore", || {
            let core = self.enter_open(py)?;
            let step = step.map(|step| count(step, "step")).transpose()?;
            let request = Request::new(into, like, only, framework, mmap)?;
            wait_snapshots(py)?;
            core.raise_earlier_failure(py)?;
            let restored = restoring::through_worker(py, core, step, &request)?;
            let (_, state) =
                restored.ok_or_else(|| restoring::not_found(py, core.run.directory()))?;
            Ok(state)
        })
    }

    /// Restores the newest intact checkpoint into what is there, to continue a run.
    ///
    /// Args:
    ///     into: As for ``restore``; a dictionary, a list, an object or an array, which stays the object it is.
    ///
    /// Returns:
    ///     The step that was restored; ``None`` if there is no checkpoint, and then nothing is touched.
    ///
    /// Raises:
    ///     CorruptCheckpointError: There are checkpoints, and all are damaged.
    ///     StateMismatchError: It does not fit.
    ///     TypeError: ``into`` is a tuple or something else that cannot be filled in place.
    ///     SaveError, DeleteError: An *earlier* call failed, and nobody had heard of it. Nothing was restored.
    #[pyo3(signature = (*, into))]
    fn resume(&self, py: Python<'_>, into: Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        crossing("AsyncCheckpointer.resume", || {
            let core = self.enter_open(py)?;
            let request = Request::in_place(into)?;
            wait_snapshots(py)?;
            core.raise_earlier_failure(py)?;
            let restored = restoring::through_worker(py, core, None, &request)?;
            let step = restored.map(|(step, _)| step);
            if let Some(step) = step {
                core.note_resume(step);
            }
            Ok(step)
        })
    }

    /// The newest committed step, or ``None``. Never shows a step before it is durable.
    fn latest(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let core = self.enter(py)?;
        look(py, || core.run.latest()).map(|info| info.map(|info| info.step))
    }

    /// The committed step with the best value of a metric, or ``None``. NaN is never best.
    ///
    /// Args:
    ///     metric: Its name.
    ///     mode: ``"min"`` or ``"max"``.
    ///
    /// Returns:
    ///     The step; of several with the same value the earliest.
    ///
    /// Raises:
    ///     ValueError: ``mode`` is something else.
    #[pyo3(signature = (metric, mode="min"))]
    fn best(&self, py: Python<'_>, metric: &str, mode: &str) -> PyResult<Option<u64>> {
        let core = self.enter(py)?;
        let mode = parse_mode(mode)?;
        look(py, || core.run.best(metric, mode)).map(|info| info.map(|info| info.step))
    }

    /// The committed steps, ascending.
    fn steps(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let core = self.enter(py)?;
        Ok(look(py, || core.run.checkpoints())?
            .iter()
            .map(|info| info.step)
            .collect())
    }

    /// What is known of the committed checkpoints, by ascending step.
    fn checkpoints(&self, py: Python<'_>) -> PyResult<Vec<CheckpointInfo>> {
        let core = self.enter(py)?;
        let infos = look(py, || core.run.checkpoints())?;
        Ok(infos.iter().map(CheckpointInfo::new).collect())
    }

    /// What is known of one committed checkpoint.
    ///
    /// Args:
    ///     step: Its step.
    ///
    /// Returns:
    ///     Its ``CheckpointInfo``; no tensors are read.
    ///
    /// Raises:
    ///     CheckpointNotFoundError: There is none of that step.
    fn info(&self, py: Python<'_>, step: &Bound<'_, PyAny>) -> PyResult<CheckpointInfo> {
        let core = self.enter(py)?;
        let step = count(step, "step")?;
        let info = look(py, || core.run.info(step))?;
        Ok(CheckpointInfo::new(&info))
    }

    /// Deletes a checkpoint in the background. It vanishes as a whole.
    ///
    /// Args:
    ///     step: Its step.
    ///
    /// Raises:
    ///     CheckpointNotFoundError: There is none of that step.
    ///     SaveError, DeleteError: An *earlier* call failed. Nothing was deleted.
    fn delete(&self, py: Python<'_>, step: &Bound<'_, PyAny>) -> PyResult<()> {
        crossing("AsyncCheckpointer.delete", || {
            let core = self.enter_open(py)?;
            let step = count(step, "step")?;
            core.raise_earlier_failure(py)?;
            core.wait_idle(py)?;
            core.raise_earlier_failure(py)?;
            // A damaged one may be deleted; one that is not there, or is another step, may not.
            look(py, || match core.run.info(step) {
                Err(RestoreError::Corrupt { .. } | RestoreError::TooNew { .. }) => Ok(()),
                other => other.map(drop),
            })?;
            let worker = core.worker();
            let handed = until(py, || match worker.try_delete(step as usize) {
                Ok(_) => Some(Ok(())),
                Err(TrySubmitError::Busy(())) => {
                    worker.wait_idle(MOMENT);
                    None
                }
                Err(TrySubmitError::Failed(error, ())) => Some(Err(error)),
            })?;
            handed.map_err(|error| errors::from_checkpointer(py, &error))
        })
    }

    /// Waits until everything is saved, and raises what went wrong and was not raised yet.
    ///
    /// Args:
    ///     timeout: Seconds to wait; ``None`` for ever.
    ///
    /// Raises:
    ///     SaveError, DeleteError, CallbackError: The oldest failure that was not raised yet.
    ///     TimeoutError: Something is still in flight.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        crossing("AsyncCheckpointer.wait", || {
            let core = self.enter(py)?;
            let deadline = Deadline::after(timeout)?;
            let drained = until(py, || {
                let over = deadline.is_over();
                if core.worker().wait_idle(deadline.moment()) {
                    Some(true)
                } else {
                    over.then_some(false)
                }
            })?;
            core.enter(py)?;
            core.raise_failure(py)?;
            if drained {
                Ok(())
            } else {
                Err(Deadline::error("the save in flight"))
            }
        })
    }

    /// Raises a failure in the background that was not raised yet; else returns at once. Cheap.
    ///
    /// Raises:
    ///     SaveError, DeleteError, CallbackError: The oldest failure that was not raised yet.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.enter(py)?;
        core.raise_failure(py)
    }

    /// What retention would keep if it ran now, and why.
    ///
    /// Returns:
    ///     For each committed checkpoint its ``step``, ``keep`` and ``reasons``, by ascending step.
    fn plan(&self, py: Python<'_>) -> PyResult<Vec<Decision>> {
        let core = self.enter(py)?;
        let infos = look(py, || core.run.checkpoints())?;
        let retention = self.terms.policy.resolve(py, &python_infos(py, &infos)?)?;
        let summaries: Vec<_> = infos.iter().map(Info::summary).collect();
        Ok(retention
            .decide(&summaries)
            .into_iter()
            .map(Decision::from)
            .collect())
    }

    /// Waits until everything is saved, releases the directory and the memory, and raises what was not raised
    /// yet. May be called again.
    ///
    /// Raises:
    ///     SaveError, DeleteError, CallbackError: The oldest failure; its notes name any others.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        crossing("AsyncCheckpointer.close", || {
            let core = self.enter(py)?;
            let failures = core.close(py)?;
            match failures.split_first() {
                None => Ok(()),
                Some((first, others)) => {
                    Err(with_notes(py, errors::from_checkpointer(py, first), others))
                }
            }
        })
    }

    /// Returns the checkpointer itself.
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().enter_open(slf.py())?;
        Ok(slf)
    }

    /// Closes it. An exception on its way out stays the one that is raised, and gets a note of what went wrong.
    #[pyo3(signature = (exc_type, exc, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (exc_type, traceback);
        let is_here = self.core.as_ref().is_none_or(|core| core.is_here());
        // A forked child that goes its own way, as by `sys.exit`, has nothing to close.
        if !is_here && !exc.is_none() {
            return Ok(false);
        }
        leave(exc, self.close(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let directory = match &self.core {
            Some(core) => core
                .run
                .directory()
                .as_os_str()
                .into_pyobject(py)?
                .repr()?
                .to_string_lossy()
                .into_owned(),
            None => "None".to_owned(),
        };
        let closed = if self.core.as_ref().is_some_and(|core| core.is_open()) {
            ""
        } else {
            ", closed"
        };
        Ok(format!("AsyncCheckpointer({directory}{closed})"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.terms.policy.traverse(&visit)
    }
}

impl Drop for AsyncCheckpointer {
    fn drop(&mut self) {
        let core = self.core.take();
        // The worker is waited for, which other threads of Python need not do.
        Python::attach(|py| detach(py, || drop(core)));
    }
}

fn with_notes(py: Python<'_>, error: PyErr, others: &[CheckpointerError]) -> PyErr {
    for other in others.iter().map(errors::message) {
        // A note that cannot be added must not take the place of the error.
        let _ = error
            .value(py)
            .call_method1("add_note", (format!("also: {other}"),));
    }
    error
}

/// The exception for a directory that cannot be opened for writing.
pub(super) fn locked(py: Python<'_>, error: &LockError) -> PyErr {
    match error {
        LockError::Held { pid, .. } => {
            let number = pid.into_pyobject(py);
            match number {
                Ok(number) => errors::with(
                    py,
                    "DirectoryLockedError",
                    &error.to_string(),
                    &[("pid", number)],
                ),
                Err(never) => match never {},
            }
        }
        LockError::Io(error) => errors::os_error(py, error),
    }
}
