//! Restoring into objects that are already there.
//!
//! First everything is compared, without touching anything; then the bytes are read into place; then plain
//! values, and objects that take a state, follow.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::arrays::{self, Array, Shown, torch::Torch};
use super::build::{Builder, gather_view, load};
use super::errors::Mismatch;
use super::flatten::{dataclass_fields, has_state, key_node};
use super::known::{Std, type_name};
use super::tensor::Extent;
use crate::snapshot::{Layout, ReadError, Target, load_into};
use crate::state::{Node, State, Tensor, TensorRef};

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
    /// Items are set in place.
    Items(Bound<'py, PyAny>, Vec<Fill<'py>>),
    /// Attributes are set, on a copy if the object is frozen.
    Fields(Bound<'py, PyAny>, Vec<(Bound<'py, PyAny>, Fill<'py>)>),
    /// A tuple, or a named one, is made anew.
    Tuple(Bound<'py, PyAny>, Vec<Fill<'py>>),
    /// The object takes its state.
    Object(Bound<'py, PyAny>, Box<Fill<'py>>),
}

/// An array whose memory is filled.
struct Write<'py> {
    leaf: TensorRef,
    array: Array<'py>,
}

/// How strictly names must agree.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    /// Each name on either side needs its counterpart.
    Exact,
    /// The state of an object: what was saved counts, the object itself judges it.
    Saved,
}

struct Planner<'py, 'a> {
    tensors: &'a [Tensor],
    /// Only a part of the checkpoint is to be restored; what has no counterpart stays.
    partial: bool,
    writes: Vec<Write<'py>>,
    fresh: Vec<Node>,
    mismatch: Mismatch,
}

/// Fills `target` from `state` and returns it, or what takes its place if it cannot be changed.
///
/// # Errors
///
/// `StateMismatchError` before anything is touched; an error of reading, or what an object raises when it is
/// given its state, after which parts of the target may be filled.
pub(super) fn fill<'py>(
    target: &Bound<'py, PyAny>,
    state: State,
    partial: bool,
    damaged: impl Fn(Python<'py>, &ReadError) -> PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    let py = target.py();
    let State { root, tensors } = state;
    let mut planner =
        Planner { tensors: &tensors, partial, writes: Vec::new(), fresh: Vec::new(), mismatch: Mismatch::default() };
    let plan = planner.plan(target, &root, "", Names::Exact)?;
    let Planner { writes, fresh, mismatch, .. } = planner;
    if !mismatch.is_empty() {
        return Err(mismatch.into_error(py));
    }
    let fresh = State { root: Node::List(fresh), tensors: tensors.clone() };
    let jobs: Vec<Job> = writes.iter().map(|write| Job::new(write, &tensors)).collect();
    let read = py.detach(|| run(jobs, &tensors).and_then(|()| load(fresh, None)));
    let loaded = read.map_err(|error| damaged(py, &error))?;
    let Node::List(nodes) = loaded.root else { unreachable!("made a list above") };
    let mut builder = Builder::new(py, &loaded.tensors, &loaded.places, loaded.memories, None)?;
    apply(plan, &nodes, &mut builder)
}

impl<'py> Planner<'py, '_> {
    fn plan(&mut self, target: &Bound<'py, PyAny>, saved: &Node, name: &str, names: Names) -> PyResult<Fill<'py>> {
        if self.partial && *saved == Node::None {
            return Ok(Fill::Keep(target.clone()));
        }
        if is_plain(target) {
            return Ok(self.fresh(saved));
        }
        // An array of a kind that cannot be described, such as a sparse one, is replaced.
        if let Ok(Some(array)) = arrays::describe(target) {
            return Ok(self.plan_array(target, array, saved, name, names));
        }
        if has_state(target)? {
            return self.plan_object(target, saved, name);
        }
        if !self.partial && !is_fillable(target)? {
            return Ok(self.fresh(saved));
        }
        self.plan_container(target, saved, name, names)
    }

    fn fresh(&mut self, saved: &Node) -> Fill<'py> {
        self.fresh.push(saved.clone());
        Fill::Fresh(self.fresh.len() - 1)
    }

    fn mismatch(&mut self, target: &Bound<'py, PyAny>, saved: &Node, name: &str, names: Names, what: &str) -> Fill<'py> {
        if names == Names::Saved {
            return self.fresh(saved);
        }
        let name = if name.is_empty() { "(the whole state)" } else { name };
        self.mismatch.mismatched.push(format!("{name} (saved: {}, to fill: {what})", self.words(saved)));
        Fill::Keep(target.clone())
    }

    fn words(&self, saved: &Node) -> String {
        match peeled(saved) {
            Node::Tensor(leaf) => {
                let shown = Shown::of(leaf, &self.tensors[leaf.index], 0);
                arrays::words(shown.kind, shown.dtype, shown.shape)
            }
            Node::None => "None".to_owned(),
            Node::Bool(_) => "bool".to_owned(),
            Node::Int(_) | Node::BigInt(_) => "int".to_owned(),
            Node::Float(_) => "float".to_owned(),
            Node::Complex(..) => "complex".to_owned(),
            Node::Str(_) => "str".to_owned(),
            Node::Bytes(_) => "bytes".to_owned(),
            Node::List(items) => format!("list of {}", items.len()),
            Node::Tuple(items) => format!("tuple of {}", items.len()),
            Node::Set(items) => format!("set of {}", items.len()),
            Node::Dict(entries) => format!("dict of {}", entries.len()),
            Node::Tagged { tag, .. } => tag.clone(),
        }
    }

    fn plan_array(
        &mut self,
        target: &Bound<'py, PyAny>,
        array: Array<'py>,
        saved: &Node,
        name: &str,
        names: Names,
    ) -> Fill<'py> {
        let what = array.words();
        let Node::Tensor(leaf) = peeled(saved) else {
            return self.mismatch(target, saved, name, names, &what);
        };
        if self.words(saved) != what {
            return self.mismatch(target, saved, name, names, &what);
        }
        if array.copied {
            let host = TensorRef { kind: array.kind.clone(), ..leaf.clone() };
            let Fill::Fresh(index) = self.fresh(&Node::Tensor(host)) else { unreachable!("fresh is fresh") };
            return Fill::Copy(target.clone(), index);
        }
        if !array.writable {
            // It keeps the framework that it has.
            let kind = match arrays::framework(&array.kind) == arrays::framework(&leaf.kind) {
                true => leaf.kind.clone(),
                false => array.kind.clone(),
            };
            return self.fresh(&Node::Tensor(TensorRef { kind, ..leaf.clone() }));
        }
        self.writes.push(Write { leaf: leaf.clone(), array });
        Fill::Keep(target.clone())
    }

    fn plan_object(&mut self, target: &Bound<'py, PyAny>, saved: &Node, name: &str) -> PyResult<Fill<'py>> {
        let inner = match saved {
            Node::Tagged { tag, value } if tag.starts_with("object:") => value,
            other => other,
        };
        if !matches!(saved, Node::Tagged { tag, .. } if tag.starts_with("object:")) && !matches!(peeled(saved), Node::Dict(_)) {
            return Ok(self.mismatch(target, saved, name, Names::Exact, &type_name(target)));
        }
        let module = Torch::get(target.py())?.map_or(Ok(false), |torch| torch.is_module(target))?;
        let names = if module { Names::Exact } else { Names::Saved };
        let state = target.call_method0(pyo3::intern!(target.py(), "state_dict"))?;
        let fill = match is_fillable(&state)? || self.partial {
            true => self.plan(&state, inner, name, names)?,
            false if module && !same_keys(&state, inner)? => self.plan_container(&state, inner, name, names)?,
            false => self.fresh(inner),
        };
        Ok(Fill::Object(target.clone(), Box::new(fill)))
    }

    fn plan_container(
        &mut self,
        target: &Bound<'py, PyAny>,
        saved: &Node,
        name: &str,
        names: Names,
    ) -> PyResult<Fill<'py>> {
        let saved_as = peeled(saved);
        if let (Ok(dict), Node::Dict(entries)) = (target.cast::<PyDict>(), saved_as) {
            let own: Vec<_> = dict.iter().collect();
            let planned = self.plan_entries(own, entries, name, names)?;
            return Ok(match names {
                Names::Saved => Fill::NewDict(planned),
                Names::Exact => Fill::Entries(target.clone(), planned),
            });
        }
        if let (Some(own), Node::Dict(entries)) = (fields_of(target)?, saved_as) {
            let planned = self.plan_entries(own, entries, name, names)?;
            return Ok(match target.is_instance_of::<PyTuple>() {
                true => Fill::Tuple(target.clone(), planned.into_iter().map(|(_, fill)| fill).collect()),
                false => Fill::Fields(target.clone(), planned),
            });
        }
        let own = items_of(target)?;
        if let (Some(own), Node::List(items) | Node::Tuple(items)) = (own, saved_as)
            && own.len() == items.len()
        {
            let plan = |(i, (item, saved)): (usize, (&Bound<'py, PyAny>, &Node))| {
                self.plan(item, saved, &join(name, &i.to_string()), names)
            };
            let planned = own.iter().zip(items).enumerate().map(plan).collect::<PyResult<Vec<_>>>()?;
            return Ok(match target.is_instance_of::<PyTuple>() {
                true => Fill::Tuple(target.clone(), planned),
                false => Fill::Items(target.clone(), planned),
            });
        }
        let len = target.len().map_or(String::new(), |len| format!(" of {len}"));
        Ok(self.mismatch(target, saved, name, names, &format!("{}{len}", type_name(target))))
    }

    fn plan_entries(
        &mut self,
        own: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
        saved: &[(Node, Node)],
        name: &str,
        names: Names,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, Fill<'py>)>> {
        let mut rest: HashMap<String, usize> =
            saved.iter().enumerate().map(|(i, (key, _))| (format!("{key:?}"), i)).collect();
        let mut planned = Vec::with_capacity(saved.len());
        for (key, value) in own {
            let node = key_node(&key)?;
            let name = join(name, &node.name());
            match rest.remove(&format!("{node:?}")) {
                Some(i) => planned.push((key, self.plan(&value, &saved[i].1, &name, names)?)),
                None if self.partial => planned.push((key, Fill::Keep(value))),
                None if names == Names::Exact => {
                    leaf_names(&value, &name, &mut self.mismatch.missing)?;
                    planned.push((key, Fill::Keep(value)));
                }
                None => {}
            }
        }
        let mut left: Vec<usize> = rest.into_values().collect();
        left.sort_unstable();
        for i in left {
            let (key, value) = &saved[i];
            let name = join(name, &key.name());
            if names == Names::Exact && !self.partial {
                saved_names(value, &name, &mut self.mismatch.unexpected);
            } else if let Some(py) = planned.first().map(|(key, _): &(Bound<'py, PyAny>, _)| key.py()) {
                let key = self.build_key(py, key)?;
                planned.push((key, self.fresh(value)));
            } else {
                Python::attach(|_| ());
                let key = Python::attach(|py| self.build_key(py, key).map(Bound::unbind))?;
                // SAFETY-free: the caller is attached, so this is the same interpreter.
                let py = unsafe_free_py();
                planned.push((key.into_bound(py), self.fresh(value)));
            }
        }
        Ok(planned)
    }
}
