//! What `track` returns: an iterator that tells the screen of each item.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyIterator;
use pyo3::{PyTraverseError, PyVisit};

use super::stage::Stage;
use crate::renderer::Split;

/// Hands out the items of an iterable, and tells the screen of each.
#[pyclass(frozen, module = "pitstop._native")]
pub(super) struct Track {
    stage: Arc<Stage>,
    split: Split,
    done: u64,
    total: Option<u64>,
    state: Mutex<State>,
}

enum State {
    New(Py<PyAny>),
    Open(Py<PyIterator>, u64),
    Over,
}

impl Track {
    pub(super) fn new(
        stage: &Arc<Stage>,
        iterable: &Bound<'_, PyAny>,
        split: Split,
        done: u64,
        total: Option<u64>,
    ) -> Track {
        Track {
            stage: Arc::clone(stage),
            split,
            done,
            total,
            state: Mutex::new(State::New(iterable.clone().unbind())),
        }
    }

    /// Held for a moment; no Python code runs under it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The iterator and the number of its pass, which begins with the first item; `None` if it is over.
    fn opened(&self, py: Python<'_>) -> PyResult<Option<(Py<PyIterator>, u64)>> {
        let iterable = match &*self.state() {
            State::New(iterable) => iterable.clone_ref(py),
            State::Open(iterator, pass) => return Ok(Some((iterator.clone_ref(py), *pass))),
            State::Over => return Ok(None),
        };
        let iterable = iterable.bind(py);
        let total = match self.total {
            Some(total) => Some(total),
            None => length(iterable)?.map(|length| length + self.done),
        };
        // Told before the iterator is made: that of a loader may take its time to start processes.
        let pass = self.stage.tell(py, |course, tell| {
            course.open(self.split, self.done, total, tell)
        })?;
        match iterable.try_iter() {
            Ok(iterator) => {
                let iterator = iterator.unbind();
                self.set(State::Open(iterator.clone_ref(py), pass));
                Ok(Some((iterator, pass)))
            }
            Err(error) => {
                self.stage.close_pass(pass);
                Err(error)
            }
        }
    }

    /// What was there before is let go of when no lock is held: that may run anything.
    fn set(&self, state: State) {
        let before = std::mem::replace(&mut *self.state(), state);
        drop(before);
    }

    /// The pass is over, before its end.
    fn break_off(&self) {
        let before = std::mem::replace(&mut *self.state(), State::Over);
        if let State::Open(_, pass) = &before {
            self.stage.close_pass(*pass);
        }
    }
}

/// How many items there are, where that is known.
fn length(iterable: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    match iterable.len() {
        Ok(length) => Ok(Some(length as u64)),
        Err(error) if error.is_instance_of::<PyException>(iterable.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

#[pymethods]
impl Track {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some((iterator, pass)) = self.opened(py)? else {
            return Ok(None);
        };
        let told = self
            .stage
            .tell(py, |course, tell| course.finish_item(pass, tell));
        let next = match told {
            Ok(()) => iterator.into_bound(py).next().transpose(),
            Err(error) => Err(error),
        };
        match next {
            Ok(Some(item)) => {
                self.stage.begin_item(pass);
                Ok(Some(item))
            }
            Ok(None) => {
                self.set(State::Over);
                self.stage
                    .tell(py, |course, tell| course.close(pass, true, tell))?;
                Ok(None)
            }
            Err(error) => {
                self.break_off();
                Err(error)
            }
        }
    }

    /// Ends the pass here, as leaving a ``for`` loop over it does.
    fn close(&self) {
        self.break_off();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Locked only while its owner runs, and then there is nothing to collect.
        match self.state.try_lock().as_deref() {
            Ok(State::New(iterable)) => visit.call(iterable),
            Ok(State::Open(iterator, _)) => visit.call(iterator),
            _ => Ok(()),
        }
    }
}

impl Drop for Track {
    fn drop(&mut self) {
        // Left by `break` or an exception.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Open(_, pass) = state {
            self.stage.close_pass(*pass);
        }
    }
}
