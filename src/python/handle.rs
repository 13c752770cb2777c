//! `SaveHandle`: follows one save.

use std::sync::Arc;

use pyo3::prelude::*;

use super::core::refuse_in_child;
use super::crossing::crossing;
use super::errors;
use super::info::CheckpointInfo;
use super::lending::Loans;
use super::waiting::{Deadline, MOMENT, detach, until};
use crate::checkpointer::{CheckpointerError, Pending};
use crate::file_checkpointer::{Reads, Ticket};

/// Follows one save from the call to the commit.
#[pyclass(frozen, name = "SaveHandle", module = "pitstop")]
pub(super) struct SaveHandle {
    step: u64,
    following: Option<Following>,
    pid: u32,
}

/// A save that was made.
struct Following {
    pending: Arc<Pending>,
    ticket: Arc<Ticket>,
    loans: Arc<Loans>,
}

impl SaveHandle {
    pub(super) fn new(
        step: u64,
        pending: Arc<Pending>,
        ticket: Arc<Ticket>,
        loans: Arc<Loans>,
    ) -> SaveHandle {
        let following = Following {
            pending,
            ticket,
            loans,
        };
        SaveHandle {
            step,
            following: Some(following),
            pid: std::process::id(),
        }
    }

    /// A save that was not made, since another was in flight.
    pub(super) fn skipped_at(step: u64) -> SaveHandle {
        SaveHandle {
            step,
            following: None,
            pid: std::process::id(),
        }
    }
}

#[pymethods]
impl SaveHandle {
    /// The step that is saved.
    #[getter]
    fn step(&self) -> u64 {
        self.step
    }

    /// Nothing is saved, since another save was in flight and ``on_busy`` is ``"skip"``.
    #[getter]
    fn skipped(&self) -> bool {
        self.following.is_none()
    }

    /// Whether the save has ended, well or not. Never blocks, never raises its failure.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        refuse_in_child(py, self.pid)?;
        // The lock behind it may be held for a moment by the worker.
        Ok(detach(py, || {
            self.following
                .as_ref()
                .is_none_or(|following| following.pending.done())
        }))
    }

    /// Waits until all of the state may be changed: at once, unless the snapshot was deferred.
    ///
    /// Whether the save succeeds is for ``result`` to say.
    fn wait_snapshot(&self, py: Python<'_>) -> PyResult<()> {
        refuse_in_child(py, self.pid)?;
        let Some(save) = &self.following else {
            return Ok(());
        };
        until(py, || {
            let free = save.ticket.wait_reads(Reads::Nothing, MOMENT) || save.pending.done();
            free.then_some(())
        })?;
        save.loans.reap();
        Ok(())
    }

    /// Waits until the checkpoint is durable.
    ///
    /// Args:
    ///     timeout: Seconds to wait; ``None`` for ever.
    ///
    /// Returns:
    ///     What was saved.
    ///
    /// Raises:
    ///     SaveError: It failed; then no later call on the checkpointer raises this.
    ///     TimeoutError: It is not done yet; it goes on.
    ///     CheckpointError: It was skipped.
    #[pyo3(signature = (timeout=None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<CheckpointInfo> {
        crossing("SaveHandle.result", || {
            refuse_in_child(py, self.pid)?;
            let deadline = Deadline::after(timeout)?;
            let Some(save) = &self.following else {
                let why = format!(
                    "step {} was skipped, since another save was in flight",
                    self.step
                );
                return Err(errors::named(py, "CheckpointError", &why));
            };
            let waited = until(py, || {
                let over = deadline.is_over();
                match save.pending.wait(Some(deadline.moment())) {
                    Some(result) => Some(Some(result)),
                    None if over => Some(None),
                    None => None,
                }
            })?;
            save.loans.reap();
            match waited {
                Some(Ok(())) => {
                    let info = save.ticket.info().ok_or_else(|| {
                        errors::from_checkpointer(
                            py,
                            &CheckpointerError::Unknown("nothing was saved".into()),
                        )
                    })?;
                    Ok(CheckpointInfo::new(info))
                }
                Some(Err(error)) => Err(errors::from_checkpointer(py, &error)),
                None => Err(Deadline::error(&format!("saving step {}", self.step))),
            }
        })
    }

    /// How far the save is.
    ///
    /// Returns:
    ///     Bytes written so far and bytes to write in all; the latter is 0 until it is known.
    fn progress(&self) -> (u64, u64) {
        self.following
            .as_ref()
            .map_or((0, 0), |save| save.ticket.progress())
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let state = match (&self.following, self.done(py)) {
            (None, _) => "skipped",
            (_, Ok(true)) => "done",
            (_, Ok(false)) => "in flight",
            (_, Err(_)) => "of another process",
        };
        format!("SaveHandle(step={}, {state})", self.step)
    }
}
