//! Restoring: choosing a checkpoint, reading it away from Python, and giving it the shape that was asked for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use glob::{MatchOptions, Pattern};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::build::{Builder, CollectorPaused, Loaded, load, map};
use super::core::Core;
use super::fill::{How, fill};
use super::like::build_like;
use super::waiting::{MOMENT, aside, detach, inside, until};
use super::{errors, logging};
use crate::checkpointer::{CheckpointerError, TrySubmitError};
use crate::file_checkpointer::{Damaged, RestoreError, Run, Transfer};
use crate::snapshot::{self, ReadError};
use crate::state::{Node, State};

/// What a restore is to give.
pub(super) struct Request<'py> {
    into: Option<Bound<'py, PyAny>>,
    like: Option<Bound<'py, PyAny>>,
    /// What is filled must stay the object that it is, since the caller gets no other.
    in_place: bool,
    apart: Apart,
}

/// The part of a request that is done away from Python.
#[derive(Clone)]
struct Apart {
    only: Option<Vec<Pattern>>,
    framework: Option<String>,
    mmap: bool,
    /// The tensors are to be compared, and left where they are.
    compare_only: bool,
}

/// What was made of a checkpoint away from Python.
pub(super) enum Restored {
    Loaded(Loaded),
    /// Compared, with its tensors still in the files.
    InFiles(State),
    /// A pattern matched nothing: which one, and what there is.
    Unmatched(String),
}

impl<'py> Request<'py> {
    pub(super) fn new(
        into: Option<Bound<'py, PyAny>>,
        like: Option<Bound<'py, PyAny>>,
        only: Option<&Bound<'py, PyAny>>,
        framework: Option<String>,
        mmap: bool,
    ) -> PyResult<Request<'py>> {
        if into.is_some() && (like.is_some() || framework.is_some() || mmap) {
            return Err(PyValueError::new_err(
                "into fills what is there: it goes with neither like, framework nor mmap",
            ));
        }
        if let Some(name) = framework
            .as_deref()
            .filter(|name| !["numpy", "torch", "jax"].contains(name))
        {
            return Err(PyValueError::new_err(format!(
                "framework must be \"numpy\", \"torch\" or \"jax\", not {name:?}"
            )));
        }
        let only = only.map(patterns).transpose()?;
        let compare_only = into.is_some();
        Ok(Request {
            into,
            like,
            in_place: false,
            apart: Apart {
                only,
                framework,
                mmap,
                compare_only,
            },
        })
    }

    /// A request to fill `into` itself.
    pub(super) fn in_place(into: Bound<'py, PyAny>) -> PyResult<Request<'py>> {
        let request = Request::new(Some(into), None, None, None, false)?;
        Ok(Request {
            in_place: true,
            ..request
        })
    }

    /// Gives what was restored the shape that was asked for.
    fn finish(
        &self,
        py: Python<'py>,
        path: &Path,
        restored: Restored,
    ) -> PyResult<Bound<'py, PyAny>> {
        match (restored, &self.into) {
            (Restored::Unmatched(why), _) => Err(PyValueError::new_err(why)),
            (Restored::InFiles(state), Some(target)) => {
                let damaged = |py: Python<'py>, error: ReadError| {
                    to_error(py, RestoreError::reading(path, error))
                };
                let how = How {
                    partial: self.apart.only.is_some(),
                    in_place: self.in_place,
                };
                fill(target, state, how, damaged)
            }
            (Restored::Loaded(loaded), _) => {
                let _paused = CollectorPaused::new(py)?;
                let framework = self.apart.framework.as_deref();
                let mut builder = Builder::new(
                    py,
                    &loaded.tensors,
                    &loaded.places,
                    loaded.memories,
                    framework,
                )?;
                match &self.like {
                    Some(like) => {
                        build_like(like, &loaded.root, self.apart.only.is_some(), &mut builder)
                    }
                    None => builder.build(&loaded.root),
                }
            }
            (Restored::InFiles(_), None) => Err(PyValueError::new_err("nothing to fill")),
        }
    }
}

/// How many names an error shows, to compare with.
const NAMES_SHOWN: usize = 8;

/// Glob patterns over names, as `fnmatch` has them.
fn patterns(only: &Bound<'_, PyAny>) -> PyResult<Vec<Pattern>> {
    let texts: Vec<String> = match only.cast::<PyString>() {
        Ok(text) => vec![text.extract()?],
        Err(_) => only
            .extract()
            .map_err(|_| PyTypeError::new_err("only must be a pattern or a list of patterns"))?,
    };
    let parse = |text: &String| {
        // `**` means no more than `*` here, since `*` matches dots too.
        let mut plain = text.clone();
        while plain.contains("**") {
            plain = plain.replace("**", "*");
        }
        Pattern::new(&plain).map_err(|error| {
            PyValueError::new_err(format!("only: {text:?} is no pattern: {error}"))
        })
    };
    if texts.is_empty() {
        return Err(PyValueError::new_err(
            "only is empty: nothing would be restored",
        ));
    }
    texts.iter().map(parse).collect()
}

impl Apart {
    /// The part of the state that was asked for, or what to say of a pattern that asks for nothing.
    fn select(&self, mut state: State) -> Result<State, String> {
        let Some(patterns) = &self.only else {
            return Ok(state);
        };
        let options = MatchOptions {
            case_sensitive: true,
            ..MatchOptions::default()
        };
        let mut matched = vec![false; patterns.len()];
        let mut names = Vec::new();
        let mut keep = |name: &str| {
            if names.len() < NAMES_SHOWN {
                names.push(name.to_owned());
            }
            let hits = patterns
                .iter()
                .map(|pattern| pattern.matches_with(name, options));
            let mut any = false;
            for (hit, matched) in hits.zip(&mut matched) {
                *matched |= hit;
                any |= hit;
            }
            any
        };
        let selected = state.root.select(&mut keep);
        if let Some(unmatched) = matched.iter().position(|matched| !matched) {
            return Err(format!(
                "only: {:?} matches no name in the checkpoint; there are such as {}",
                patterns[unmatched].as_str(),
                names.join(", ")
            ));
        }
        state.root = selected.unwrap_or(Node::Dict(Vec::new()));
        Ok(state)
    }

    /// Reads what was asked for of an opened checkpoint.
    fn restore(&self, path: &Path, state: State) -> Result<Restored, RestoreError> {
        let state = match self.select(state) {
            Ok(state) => state,
            Err(unmatched) => return Ok(Restored::Unmatched(unmatched)),
        };
        let reading = |error| RestoreError::reading(path, error);
        let stop = AtomicBool::new(false);
        if self.mmap {
            return map(state, &stop).map(Restored::Loaded).map_err(reading);
        }
        if !self.compare_only {
            return load(state, self.framework.as_deref(), &stop)
                .map(Restored::Loaded)
                .map_err(reading);
        }
        let mut wanted = vec![false; state.tensors.len()];
        state
            .root
            .for_each_tensor(&mut |leaf| wanted[leaf.index] = true);
        let tensors: Vec<_> = state
            .tensors
            .iter()
            .zip(wanted)
            .filter(|(_, wanted)| *wanted)
            .map(|(tensor, _)| tensor.clone())
            .collect();
        snapshot::verify(&tensors).map_err(reading)?;
        Ok(Restored::InFiles(state))
    }

    fn reads_everything(&self) -> bool {
        self.only.is_none() && !self.mmap
    }
}

/// Restores through the worker, after what it has in hand; `step`: or else the newest intact one.
pub(super) fn through_worker<'py>(
    py: Python<'py>,
    core: &Arc<Core>,
    step: Option<u64>,
    request: &Request<'py>,
) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
    let _inside = inside(py)?;
    let attempt = |step: u64| {
        let restored = ask_worker(py, core, step, request.apart.clone())?;
        match &restored {
            Err(RestoreError::Corrupt { .. }) => core.note_damaged(step),
            Ok(_) if request.apart.reads_everything() && core.options.verify => {
                detach(py, || core.note_intact(step));
            }
            _ => {}
        }
        Ok(restored)
    };
    core.wait_idle(py)?;
    choose(py, &core.run, step, request, attempt)
}

/// Restores without a checkpointer: no lock, nothing written.
pub(super) fn directly<'py>(
    py: Python<'py>,
    run: &Run,
    step: Option<u64>,
    verify: bool,
    request: &Request<'py>,
) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
    let _inside = inside(py)?;
    if step.is_none() && run.is_checkpoint().map_err(|error| to_error(py, error))? {
        let (here, apart) = (run.clone(), request.apart.clone());
        let restored = aside(py, move || {
            let opened = here.open_here(verify)?;
            Ok((
                opened.info.step,
                apart.restore(here.directory(), opened.state)?,
            ))
        })?;
        let (step, restored) = restored.map_err(|error| to_error(py, error))?;
        return Ok(Some((step, request.finish(py, run.directory(), restored)?)));
    }
    let attempt = |step: u64| {
        let (run, apart) = (run.clone(), request.apart.clone());
        aside(py, move || {
            let opened = run.open(step, verify)?;
            apart.restore(&run.path(step), opened.state)
        })
    };
    choose(py, run, step, request, attempt)
}

/// Tries the step, or all from the newest on; warns of the damaged ones that were passed over.
fn choose<'py>(
    py: Python<'py>,
    run: &Run,
    step: Option<u64>,
    request: &Request<'py>,
    attempt: impl Fn(u64) -> PyResult<Result<Restored, RestoreError>>,
) -> PyResult<Option<(u64, Bound<'py, PyAny>)>> {
    if let Some(step) = step {
        let restored = attempt(step)?.map_err(|error| to_error(py, error))?;
        return Ok(Some((step, request.finish(py, &run.path(step), restored)?)));
    }
    // What Python raises ends the search at once.
    let mut raised = None;
    let found = run.newest_intact(|step| match attempt(step) {
        Ok(restored) => restored.map(|restored| (step, Some(restored))),
        Err(error) => {
            raised = Some(error);
            Ok((step, None))
        }
    });
    if let Some(error) = raised {
        return Err(error);
    }
    logging::drain(py)?;
    let (found, damaged) = found.map_err(|error| to_error(py, error))?;
    for Damaged { step, error } in &damaged {
        let what = if error.is_damage() {
            "is damaged"
        } else {
            "cannot be read"
        };
        errors::warn(
            py,
            &format!("step {step} {what} and was passed over: {error}"),
        )?;
    }
    match found {
        Some((step, Some(restored))) => {
            Ok(Some((step, request.finish(py, &run.path(step), restored)?)))
        }
        _ => Ok(None),
    }
}

fn ask_worker(
    py: Python<'_>,
    core: &Arc<Core>,
    step: u64,
    apart: Apart,
) -> PyResult<Result<Restored, RestoreError>> {
    let path = core.run.path(step);
    let mut then = Some(move |opened: Result<Transfer, CheckpointerError>| {
        // What went wrong travels in its own form; only the worker's own failures are errors here.
        let state = match opened {
            Ok(transfer) => transfer.state,
            Err(error) => return Ok(Err(reader_error(error)?)),
        };
        Ok(apart.restore(&path, state))
    });
    let reply = until(py, || {
        let job = then.take()?;
        match core.worker().try_restore_with(step as usize, job) {
            Ok(reply) => Some(Ok(reply)),
            Err(TrySubmitError::Busy(job)) => {
                then = Some(job);
                core.worker().wait_idle(MOMENT);
                None
            }
            Err(TrySubmitError::Failed(error, _)) => Some(Err(error)),
        }
    })?;
    let mut reply = reply.map_err(|error| errors::from_checkpointer(py, &error))?;
    until(py, || reply.recv_timeout(MOMENT))?.map_err(|error| errors::from_checkpointer(py, &error))
}

/// The reader's own error, out of what the worker's checkpointer made of it.
fn reader_error(error: CheckpointerError) -> Result<RestoreError, CheckpointerError> {
    match error {
        CheckpointerError::IOError(error) => Ok(RestoreError::Io(error)),
        CheckpointerError::RecorderError(error) => match error.downcast::<RestoreError>() {
            Ok(error) => Ok(*error),
            Err(other) => Err(CheckpointerError::RecorderError(other)),
        },
        other => Err(other),
    }
}

/// The exception for what the reader reported.
pub(super) fn to_error(py: Python<'_>, error: RestoreError) -> PyErr {
    match error {
        RestoreError::NotFound { path } => not_found(py, &path),
        RestoreError::Corrupt { path, tensor, why } => {
            errors::corrupt(py, &path, tensor.as_deref(), &why)
        }
        RestoreError::Misplaced { ref path, found } => {
            let why = format!("it holds step {found}; rename it to step-{found}, or move it away");
            errors::corrupt(py, path, None, &why)
        }
        RestoreError::Io(error) => errors::os_error(py, &error),
        other => errors::named(py, "CheckpointError", &other.to_string()),
    }
}

/// The exception for a checkpoint, or a run, that is not there.
pub(super) fn not_found(py: Python<'_>, path: &Path) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let class = py
            .import("pitstop.errors")?
            .getattr("CheckpointNotFoundError")?;
        let number = py.import("errno")?.getattr("ENOENT")?;
        Ok(PyErr::from_value(class.call1((
            number,
            "there is no checkpoint",
            path.as_os_str(),
        ))?))
    };
    make().unwrap_or_else(|error| error)
}
