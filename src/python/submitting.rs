//! Taking a snapshot and handing it to the worker.

use std::sync::Arc;

use pyo3::prelude::*;

use super::core::Core;
use super::errors;
use super::flatten::{Flattened, flatten, flatten_and_hold};
use super::handle::SaveHandle;
use super::info::CheckpointInfo;
use super::lending::Lent;
use super::restoring;
use super::retention::Policy;
use super::waiting::{MOMENT, detach, inside, until};
use crate::checkpointer::{Pending, TrySubmitError};
use crate::file_checkpointer::{
    CheckpointInfo as Info, Reads, RestoreError, SaveOptions, Ticket, Transfer,
};
use crate::snapshot::fill_checksums;

/// What a save does while another is in flight.
#[derive(Clone, Copy)]
pub(super) enum OnBusy {
    Wait,
    Skip,
    Raise,
}

/// How a checkpointer saves.
pub(super) struct Terms {
    pub(super) policy: Policy,
    pub(super) on_busy: OnBusy,
    /// Find out whether deferred tensors were changed before they were copied.
    pub(super) check_deferred: bool,
}

/// Which tensors are copied after `save` has returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Defer {
    /// Those of protected optimizers.
    Protected,
    All,
    None,
}

/// Takes a snapshot of `state` and hands it over; `step` and `options` are checked already.
pub(super) fn submit(
    py: Python<'_>,
    core: &Core,
    terms: &Terms,
    step: u64,
    state: &Bound<'_, PyAny>,
    mut options: SaveOptions,
    defer: Defer,
) -> PyResult<SaveHandle> {
    let _inside = inside(py)?;
    let ticket = Arc::new(Ticket::default());
    core.raise_earlier_failure(py)?;
    let _one_at_a_time = core.begin_save(py)?;
    if !core.worker().is_idle() {
        match terms.on_busy {
            OnBusy::Wait => core.wait_idle(py)?,
            OnBusy::Skip => {
                core.note_skip();
                return Ok(SaveHandle::skipped_at(step));
            }
            OnBusy::Raise => {
                let directory = core.run.directory().display();
                let why = format!(
                    "step {step} is not saved, since another save into {directory} is in flight"
                );
                return Err(errors::named(py, "CheckpointError", &why));
            }
        }
    }
    core.raise_earlier_failure(py)?;
    options.overwrite |= may_replace(py, core, step, options.overwrite)?;
    warn_of_rollback(py, core, terms, step)?;
    let Flattened {
        mut state,
        owners,
        lenders,
    } = if core.options.memory_limit.is_some()
        || terms.policy.has_callable()
        || core.protected.defers(py, defer)
    {
        // It is read while the user's code goes on, after some of it ran, or for as long as writing takes.
        flatten_and_hold(state, "state")?
    } else {
        flatten(state, "state")?
    };
    let mut broken_rule = None;
    if terms.policy.has_callable() {
        let rule = retention_after(py, core, &terms.policy, step, state.nbytes(), &options);
        // A function that fails must not cost a checkpoint: all stay, and it is raised afterwards.
        let rule = rule.unwrap_or_else(|error| {
            broken_rule = Some(error);
            crate::Retention::All
        });
        core.monitor.keeping(rule.clone());
        options.retention = Some(rule);
    }
    let deferred = match defer {
        Defer::Protected => core.protected.deferred(py, &state)?,
        Defer::All => vec![true; state.tensors.len()],
        Defer::None => Vec::new(),
    };
    let may_return_at = if deferred.contains(&true) {
        Reads::Deferred
    } else {
        Reads::Nothing
    };
    if terms.check_deferred && may_return_at == Reads::Deferred {
        detach(py, || fill_checksums(&mut state))?;
    }
    let transfer = Transfer {
        state,
        deferred,
        options,
        ticket: Arc::clone(&ticket),
    };
    let pending = Arc::new(hand_over(py, core, step, transfer)?);
    core.lend(Lent {
        pending: Arc::clone(&pending),
        ticket: Arc::clone(&ticket),
        owners,
        lenders,
    });
    // The worker reads the training's own memory, so there is no way back before it lets go of it.
    detach(py, || {
        while !(ticket.wait_reads(may_return_at, MOMENT) || pending.done()) {}
    });
    core.loans.reap();
    core.note_save(step, &ticket);
    match broken_rule {
        Some(error) => Err(error),
        None => Ok(SaveHandle::new(
            step,
            pending,
            ticket,
            Arc::clone(&core.loans),
        )),
    }
}

/// The rule for after this save, with the answers of the user's functions.
fn retention_after(
    py: Python<'_>,
    core: &Core,
    policy: &Policy,
    step: u64,
    nbytes: u64,
    options: &SaveOptions,
) -> PyResult<crate::Retention> {
    let mut infos = look(py, || core.run.checkpoints())?;
    infos.retain(|info| info.step != step);
    infos.push(Info {
        step,
        path: core.run.path(step),
        created: std::time::SystemTime::now(),
        metrics: options.metrics.clone(),
        metadata: options.metadata.clone(),
        nbytes,
    });
    infos.sort_by_key(|info| info.step);
    policy.resolve(py, &python_infos(py, &infos)?)
}

/// Retention goes by steps. After going back to an older one, the checkpoints of the abandoned steps count as
/// newer, and what is saved now may be the first to go.
fn warn_of_rollback(py: Python<'_>, core: &Core, terms: &Terms, step: u64) -> PyResult<()> {
    if terms.policy.keeps_all() {
        return Ok(());
    }
    let later = detach(py, || core.run.latest_after(step));
    match later.ok().flatten() {
        Some(later) => errors::warn(
            py,
            &format!(
                "step {step} is saved while step {} is there, which retention counts as newer; to go back \
                 in a run, delete the later steps first",
                later.step
            ),
        ),
        None => Ok(()),
    }
}

/// Whether what lies under the step's name is to be replaced.
///
/// # Errors
///
/// `StepExistsError` if it is there and is to stay.
fn may_replace(py: Python<'_>, core: &Core, step: u64, overwrite: bool) -> PyResult<bool> {
    let path = core.run.path(step);
    let damaged = match detach(py, || core.run.info(step)) {
        Ok(_) => core.is_known_damaged(step),
        Err(RestoreError::Corrupt { .. }) => true,
        // What is no checkpoint shows when the save is published.
        Err(RestoreError::NotFound { .. }) => return Ok(overwrite),
        // What cannot be looked at may be a checkpoint that is in order.
        Err(RestoreError::Io(error)) => {
            let error = crate::CheckpointerError::IOError(error);
            return Err(errors::failed_save(py, &error));
        }
        // A checkpoint that is in order, under another name or of a newer pitstop.
        Err(_) => false,
    };
    if damaged || overwrite {
        return Ok(true);
    }
    let why = format!(
        "step {step} was saved before, in {}; pass overwrite=True to replace it",
        path.display()
    );
    Err(errors::named(py, "StepExistsError", &why))
}

fn hand_over(py: Python<'_>, core: &Core, step: u64, transfer: Transfer) -> PyResult<Pending> {
    let mut transfer = Some(transfer);
    let worker = core.worker();
    let handed = until(py, || {
        match worker.try_submit(step as usize, transfer.take()?) {
            Ok(pending) => Some(Ok(pending)),
            Err(TrySubmitError::Busy(back)) => {
                transfer = Some(back);
                worker.wait_idle(MOMENT);
                None
            }
            Err(TrySubmitError::Failed(error, _)) => Some(Err(error)),
        }
    })?;
    handed.map_err(|error| errors::from_checkpointer(py, &error))
}

/// Looks at the run, without the GIL. A run whose directory is gone has no checkpoints.
pub(super) fn look<T: Send>(
    py: Python<'_>,
    look: impl FnOnce() -> Result<T, RestoreError> + Send,
) -> PyResult<T> {
    detach(py, look).map_err(|error| restoring::to_error(py, error))
}

pub(super) fn python_infos<'py>(
    py: Python<'py>,
    infos: &[Info],
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    infos
        .iter()
        .map(|info| Ok(Bound::new(py, CheckpointInfo::new(info))?.into_any()))
        .collect()
}
