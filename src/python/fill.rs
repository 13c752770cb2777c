//! Restoring into objects that are already there.
//!
//! First everything is compared, without touching anything; then the bytes are read into place; then plain
//! values, and objects that take a state, follow.

mod apply;
mod contents;
mod plan;
mod write;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use self::apply::apply;
use self::plan::{Planned, plan};
use self::write::{Job, announce, run};
use super::build::{Builder, load};
use super::known::type_name;
use super::module_versions;
use super::waiting::beside;
use crate::snapshot::ReadError;
use crate::state::{Node, State};

/// What becomes of an object.
enum Fill<'py> {
    /// It stays; its memory may have been filled.
    Keep(Bound<'py, PyAny>),
    /// It is replaced by what was saved: an index into the list of fresh nodes.
    Fresh(usize),
    /// A tensor that is not in host memory: it is copied over from a fresh one.
    Copy(Bound<'py, PyAny>, usize),
    /// Entries are set in place.
    Entries(Bound<'py, PyAny>, Vec<(Bound<'py, PyAny>, Fill<'py>)>),
    /// A new dictionary.
    NewDict(Vec<(Bound<'py, PyAny>, Fill<'py>)>),
    /// A dictionary of torch, with the versions that were saved beside its entries.
    Versioned(Box<Fill<'py>>, Bound<'py, PyAny>),
    /// The contents of a list or a dictionary are replaced by a fresh one's.
    Contents(Bound<'py, PyAny>, usize),
    /// Items are set in place.
    Items(Bound<'py, PyAny>, Vec<Fill<'py>>),
    /// Attributes are set, on a copy if the object is frozen.
    Fields(Bound<'py, PyAny>, Vec<(Bound<'py, PyAny>, Fill<'py>)>),
    /// A tuple, or a named one, is made anew.
    Tuple(Bound<'py, PyAny>, Vec<Fill<'py>>),
    /// The object of that name takes its state.
    Object(Bound<'py, PyAny>, Box<Fill<'py>>, String),
    /// A container that was shared becomes one of its own.
    Apart(Box<Fill<'py>>),
}

impl<'py> Fill<'py> {
    /// Whether another object takes the place of the one that was to be filled.
    fn replaces(&self) -> bool {
        match self {
            Fill::Fresh(_) | Fill::NewDict(_) | Fill::Apart(_) => true,
            Fill::Versioned(dict, _) => dict.replaces(),
            Fill::Tuple(_, items) => items.iter().any(Fill::replaces),
            Fill::Fields(object, fields) => {
                is_frozen(object) && fields.iter().any(|(_, fill)| fill.replaces())
            }
            _ => false,
        }
    }

    /// The object that stays, with other contents.
    fn object(&self) -> Option<&Bound<'py, PyAny>> {
        match self {
            Fill::Entries(object, _)
            | Fill::Contents(object, _)
            | Fill::Items(object, _)
            | Fill::Fields(object, _)
            | Fill::Object(object, _, _) => Some(object),
            Fill::Versioned(dict, _) => dict.object(),
            _ => None,
        }
    }

    /// With the versions of modules that the dictionary was saved with, if it can take them.
    fn with_versions(self, dict: &Bound<'py, PyAny>, saved: &Node) -> PyResult<Fill<'py>> {
        if !matches!(self, Fill::NewDict(_)) && !module_versions::fit(dict)? {
            return Ok(self);
        }
        Ok(match module_versions::saved_with(dict.py(), saved)? {
            Some(versions) => Fill::Versioned(Box::new(self), versions),
            None => self,
        })
    }
}

/// Whether it is an instance of a frozen dataclass.
fn is_frozen(object: &Bound<'_, PyAny>) -> bool {
    let frozen = || {
        object
            .get_type()
            .getattr("__dataclass_params__")?
            .getattr("frozen")?
            .is_truthy()
    };
    frozen().unwrap_or(false)
}

/// What filling may and may not do.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// Only a part of the checkpoint is restored; what has no counterpart in it stays.
    pub(super) partial: bool,
    /// The target itself must be filled, since nobody gets what would take its place.
    pub(super) in_place: bool,
}

/// Fills `target` from `state` and returns it, or what takes its place if it cannot be changed.
///
/// # Errors
///
/// `StateMismatchError`, or `TypeError` if it cannot be filled in place and must be, before anything is touched; an error of reading, or what an object raises when it is
/// given its state, after which parts of the target may be filled.
pub(super) fn fill<'py>(
    target: &Bound<'py, PyAny>,
    state: State,
    how: How,
    damaged: impl Fn(Python<'py>, ReadError) -> PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    let py = target.py();
    let State { root, tensors } = state;
    let Planned {
        fill,
        writes,
        fresh,
    } = plan(target, &root, &tensors, how.partial)?;
    if how.in_place && fill.replaces() {
        let why = format!(
            "a {} cannot be filled in place: put it into a dict, or use state = restore(into=state)",
            type_name(target)
        );
        return Err(PyTypeError::new_err(why));
    }
    let fresh = State {
        root: Node::List(fresh),
        tensors: tensors.clone(),
    };
    let jobs: Vec<Job> = writes
        .iter()
        .map(|write| Job::new(write, &tensors))
        .collect();
    // Before they are read, since a read that fails half-way has changed some too.
    announce(py, &writes)?;
    let read = beside(py, |stop| {
        run(jobs, &tensors, stop)?;
        load(fresh, None, stop)
    })?;
    let loaded = read.map_err(|error| damaged(py, error))?;
    let Node::List(nodes) = loaded.root else {
        unreachable!("made a list above")
    };
    let mut builder = Builder::new(py, &loaded.tensors, &loaded.places, loaded.memories, None)?;
    apply(fill, &nodes, &mut builder)
}
