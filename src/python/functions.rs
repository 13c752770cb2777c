//! `pitstop.restore`, `pitstop.checkpoints`, `pitstop.save`: the same without a checkpointer.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;

use super::arguments::{count, save_options};
use super::checkpointer::locked;
use super::core::wait_snapshots;
use super::crossing::crossing;
use super::errors;
use super::flatten::{Flattened, flatten_and_hold};
use super::info::CheckpointInfo;
use super::restoring::{self, Request};
use super::waiting::detach;
use crate::checkpointer::{Checkpointer, CheckpointerError};
use crate::file_checkpointer::{FileCheckpointer, Options, Run, Ticket, Transfer, save_as};
use crate::storage::{Local, LockError};

/// Restores a checkpoint without a checkpointer: no lock is taken and nothing is written.
///
/// Args:
///     path: Directory of a run, or of one checkpoint; it may be read-only, copied, moved or renamed.
///     step: Which checkpoint of a run; by default the newest intact one.
///     into: As for ``AsyncCheckpointer.restore``, as are the others.
///     like: A template: the result gets its container types, and the frameworks of its arrays.
///     only: Glob pattern, or list of patterns, over names.
///     framework: ``"numpy"``, ``"torch"`` or ``"jax"``; by default what each array was.
///     mmap: Return at once, with arrays that are read when they are touched.
///     verify: Compare every checksum.
///
/// Returns:
///     The state; with ``into`` the filled object itself.
///
/// Raises:
///     CheckpointNotFoundError: There is none.
///     CorruptCheckpointError: It is not what was saved.
///     StateMismatchError: It does not fit ``into`` or ``like``.
#[pyfunction]
#[pyo3(signature = (path, step=None, *, into=None, like=None, only=None, framework=None, mmap=false, verify=true))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub(super) fn restore<'py>(
    py: Python<'py>,
    path: PathBuf,
    step: Option<&Bound<'py, PyAny>>,
    into: Option<Bound<'py, PyAny>>,
    like: Option<Bound<'py, PyAny>>,
    only: Option<&Bound<'py, PyAny>>,
    framework: Option<String>,
    mmap: bool,
    verify: bool,
) -> PyResult<Bound<'py, PyAny>> {
    crossing("restore", || {
        let step = step.map(|step| count(step, "step")).transpose()?;
        let request = Request::new(into, like, only, framework, mmap)?;
        // What is filled may be what a save of this process still reads.
        wait_snapshots(py)?;
        let run = Run::new(Arc::new(Local::new()), path);
        let restored = restoring::directly(py, &run, step, verify, &request)?;
        let (_, state) = restored.ok_or_else(|| restoring::not_found(py, run.directory()))?;
        Ok(state)
    })
}

/// What is known of the committed checkpoints in a directory; no lock is taken.
///
/// Args:
///     path: Directory of a run, or of one checkpoint.
///
/// Returns:
///     A list by ascending step; empty if there are none.
///
/// Raises:
///     CheckpointNotFoundError: There is no such directory.
#[pyfunction]
pub(super) fn checkpoints(py: Python<'_>, path: PathBuf) -> PyResult<Vec<CheckpointInfo>> {
    crossing("checkpoints", || {
        let run = Run::new(Arc::new(Local::new()), path);
        let infos = detach(py, || {
            if run.is_checkpoint()? {
                run.info_here().map(|info| vec![info])
            } else {
                run.checkpoints()
            }
        });
        let infos = infos.map_err(|error| restoring::to_error(py, error))?;
        Ok(infos.iter().map(CheckpointInfo::new).collect())
    })
}

/// Saves one checkpoint and returns when it is durable; with the same commit as in the background.
///
/// Args:
///     path: Without a ``step``, the directory that becomes the checkpoint; with one, the run that it goes into.
///     state: As for ``AsyncCheckpointer.save``, as are the others.
///     step: The training step.
///     metrics: Numbers to keep with the checkpoint.
///     metadata: Plain values to keep with the checkpoint.
///     overwrite: Replace what was saved there before, atomically.
///     fsync: Make it durable.
///
/// Returns:
///     What was saved.
///
/// Raises:
///     UnsupportedTypeError: The state holds something that cannot be saved.
///     StepExistsError: There is something at ``path``, or the step was saved before.
///     DirectoryLockedError: Somebody else writes into that run.
///     SaveError: It failed; ``__cause__`` is the ``OSError``. What was there before is as it was.
#[pyfunction]
#[pyo3(signature = (path, state, *, step=None, metrics=None, metadata=None, overwrite=false, fsync=true))]
#[expect(
    clippy::too_many_arguments,
    clippy::needless_pass_by_value,
    reason = "they are keywords in Python, and converted from it"
)]
pub(super) fn save(
    py: Python<'_>,
    path: PathBuf,
    state: &Bound<'_, PyAny>,
    step: Option<&Bound<'_, PyAny>>,
    metrics: Option<&Bound<'_, PyAny>>,
    metadata: Option<&Bound<'_, PyAny>>,
    overwrite: bool,
    fsync: bool,
) -> PyResult<CheckpointInfo> {
    crossing("save", || {
        let step = step.map(|step| count(step, "step")).transpose()?;
        let options = save_options(metrics, metadata, overwrite)?;
        // It is read for as long as writing takes, while other threads go on.
        let Flattened {
            state,
            owners,
            lenders,
        } = flatten_and_hold(state, "state")?;
        let ticket = Arc::new(Ticket::default());
        let saved = detach(py, || match step {
            None => {
                let storage = Local::new().fsync(fsync);
                save_as(&storage, &path, 0, state, &options)
                    .map_err(|error| Failed::Save(error.into()))
            }
            Some(step) => {
                let transfer = Transfer {
                    options,
                    ticket: Arc::clone(&ticket),
                    ..Transfer::from(state)
                };
                save_into_run(&path, step, transfer, fsync)
            }
        });
        drop((owners, lenders));
        match saved {
            Ok(info) => Ok(CheckpointInfo::new(&info)),
            Err(failed) => Err(failed.into_error(py, &path, overwrite)),
        }
    })
}

enum Failed {
    Exists(PathBuf),
    Lock(LockError),
    Save(CheckpointerError),
}

fn save_into_run(
    path: &std::path::Path,
    step: u64,
    transfer: Transfer,
    fsync: bool,
) -> Result<crate::CheckpointInfo, Failed> {
    let files = FileCheckpointer::open(
        path,
        Options {
            // The caller waits, so nothing need be copied first.
            memory_limit: Some(0),
            fsync,
            ..Options::default()
        },
    )
    .map_err(Failed::Lock)?;
    if !transfer.options.overwrite && files.run().info(step).is_ok() {
        return Err(Failed::Exists(files.run().path(step)));
    }
    let ticket = Arc::clone(&transfer.ticket);
    Checkpointer::<Transfer>::save(&files, step as usize, transfer).map_err(Failed::Save)?;
    ticket
        .info()
        .cloned()
        .ok_or_else(|| Failed::Save(CheckpointerError::Unknown("nothing was saved".into())))
}

impl Failed {
    fn into_error(self, py: Python<'_>, path: &std::path::Path, overwrite: bool) -> PyErr {
        let exists = |path: &std::path::Path| {
            let advice = if overwrite {
                "is no checkpoint, so it is not replaced; pass step= to save into a run"
            } else {
                "is there already; pass overwrite=True to replace it if it is a checkpoint"
            };
            let why = format!("{} {advice}", path.display());
            errors::named(py, "StepExistsError", &why)
        };
        match self {
            Failed::Exists(path) => exists(&path),
            Failed::Lock(LockError::Io(error)) => {
                errors::failed_save(py, &CheckpointerError::IOError(error))
            }
            Failed::Lock(held @ LockError::Held { .. }) => locked(py, &held),
            Failed::Save(error) => {
                let cause = errors::io_cause(&error);
                if cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::AlreadyExists) {
                    return exists(path);
                }
                errors::failed_save(py, &error)
            }
        }
    }
}
