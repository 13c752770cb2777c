//! Comparing: what becomes of each object, and which names do not fit.

mod place;

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use self::place::Filled;
use super::Fill;
use super::contents::{
    array_of, fields_of, grows, is_fillable, is_plain, items_of, leaf_names, peeled, refuse_cycles,
    saved_names,
};
use super::write::Write;
use crate::python::arrays::{self, Array, Shown, torch::Torch};
use crate::python::build::Builder;
use crate::python::errors::{self, Mismatch};
use crate::python::flatten::{has_state, key_node};
use crate::python::known::{join, type_name};
use crate::python::waiting::beside;
use crate::snapshot::{self, ReadError};
use crate::state::{Node, Tensor, TensorRef};

/// What is to be done.
pub(super) struct Planned<'py> {
    pub(super) fill: Fill<'py>,
    /// Arrays whose memory is filled.
    pub(super) writes: Vec<Write<'py>>,
    /// Nodes to build anew.
    pub(super) fresh: Vec<Node>,
}

/// Compares `target` with what was saved, and touches nothing.
///
/// # Errors
///
/// `StateMismatchError` with all that differs.
pub(super) fn plan<'py>(
    target: &Bound<'py, PyAny>,
    saved: &Node,
    tensors: &[Tensor],
    partial: bool,
) -> PyResult<Planned<'py>> {
    let py = target.py();
    refuse_cycles(target)?;
    let mut planner = Planner {
        tensors,
        keys: Builder::new(py, tensors, &[], Vec::new(), None)?,
        partial,
        writes: Vec::new(),
        filled: Vec::new(),
        fresh: Vec::new(),
        mismatch: Mismatch::default(),
        met: HashMap::new(),
        warnings: Vec::new(),
    };
    let fill = planner.plan(target, saved, "", Names::Exact)?;
    planner.refuse_conflicts(py)?;
    if !planner.mismatch.is_empty() {
        return Err(planner.mismatch.into_error(py, "into"));
    }
    for warning in &planner.warnings {
        errors::warn(py, warning)?;
    }
    Ok(Planned {
        fill,
        writes: planner.writes,
        fresh: planner.fresh,
    })
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
    /// Makes dictionary keys, which hold no tensors.
    keys: Builder<'py, 'a>,
    /// Only a part of the checkpoint is to be restored; what has no counterpart stays.
    partial: bool,
    writes: Vec<Write<'py>>,
    /// All arrays that are filled, by reading or by copying.
    filled: Vec<Filled>,
    fresh: Vec<Node>,
    mismatch: Mismatch,
    /// Objects that were met, by address.
    met: HashMap<usize, Met<'py>>,
    /// What is odd without being wrong.
    warnings: Vec<String>,
}

/// An object that is to be filled.
struct Met<'py> {
    /// Held, so that no other object gets its address meanwhile.
    _object: Bound<'py, PyAny>,
    saved: Node,
    name: String,
}

impl<'py> Planner<'py, '_> {
    fn plan(
        &mut self,
        target: &Bound<'py, PyAny>,
        saved: &Node,
        name: &str,
        names: Names,
    ) -> PyResult<Fill<'py>> {
        if self.partial && *saved == Node::None {
            return Ok(Fill::Keep(target.clone()));
        }
        if is_plain(target) {
            return Ok(if takes_the_place(target, peeled(saved), self.tensors) {
                self.fresh(saved)
            } else {
                self.mismatch(target, saved, name, names, &type_name(target))
            });
        }
        // An array of a kind that cannot be described, such as a sparse one, is replaced.
        if let Some(array) = array_of(target)? {
            return self.plan_array(target, array, saved, name, names);
        }
        if let Some(fill) = self.plan_again(target, saved, name, names)? {
            return Ok(fill);
        }
        if has_state(target)? {
            return self.plan_object(target, saved, name);
        }
        if *saved == Node::None && !is_fillable(target)? {
            return Ok(self.fresh(saved));
        }
        self.plan_container(target, saved, name, names)
    }

    /// What becomes of an object that is met a second time: nothing, if both places were saved alike. If not, a
    /// container becomes two, so that neither place gets what belongs to the other.
    fn plan_again(
        &mut self,
        target: &Bound<'py, PyAny>,
        saved: &Node,
        name: &str,
        names: Names,
    ) -> PyResult<Option<Fill<'py>>> {
        // A tuple is made anew wherever it is.
        if target.is_instance_of::<PyTuple>() {
            return Ok(None);
        }
        let address = target.as_ptr().addr();
        let Some(Met {
            saved: before,
            name: first,
            ..
        }) = self.met.get(&address)
        else {
            let met = Met {
                _object: target.clone(),
                saved: saved.clone(),
                name: name.to_owned(),
            };
            self.met.insert(address, met);
            return Ok(None);
        };
        if before == saved {
            return Ok(Some(Fill::Keep(target.clone())));
        }
        if target.is_instance_of::<PyDict>() || target.is_instance_of::<PyList>() {
            let copy = target
                .py()
                .import("copy")?
                .call_method1("copy", (target,))?;
            let fill = self.plan_container(&copy, saved, name, names)?;
            return Ok(Some(Fill::Apart(Box::new(fill))));
        }
        let what = format!("the same object as {first}, which was saved with other values");
        Ok(Some(self.mismatch(
            target,
            saved,
            name,
            Names::Exact,
            &what,
        )))
    }

    /// Arrays that share memory cannot both be filled, unless with the same bytes.
    fn refuse_conflicts(&mut self, py: Python<'py>) -> PyResult<()> {
        self.filled.sort_by(|one, other| {
            let by_place = one.extent.bounds().cmp(&other.extent.bounds());
            one.memory.cmp(&other.memory).then(by_place)
        });
        for (rank, one) in self.filled.iter().enumerate() {
            for other in &self.filled[rank + 1..] {
                if one.memory != other.memory || !one.extent.overlaps(&other.extent) {
                    break;
                }
                if !self.agree(py, one, other)? {
                    let conflict = "shares memory with";
                    self.mismatch.mismatched.push(format!(
                        "{} ({conflict} {}, which was saved with other values)",
                        other.name, one.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether two arrays over the same memory were saved as one in the same way, or with the same bytes.
    fn agree(&self, py: Python<'py>, one: &Filled, other: &Filled) -> PyResult<bool> {
        if one.flags != other.flags {
            return Ok(false);
        }
        if one.index == other.index {
            return Ok(one.place.agrees(&other.place));
        }
        let whole = one.whole && other.whole;
        if !whole || one.place != other.place {
            return Ok(false);
        }
        are_alike(py, &self.tensors[one.index], &self.tensors[other.index])
    }

    fn fresh(&mut self, saved: &Node) -> Fill<'py> {
        self.fresh.push(saved.clone());
        Fill::Fresh(self.fresh.len() - 1)
    }

    fn contents(&mut self, target: &Bound<'py, PyAny>, saved: Node) -> Fill<'py> {
        self.fresh.push(saved);
        Fill::Contents(target.clone(), self.fresh.len() - 1)
    }

    fn mismatch(
        &mut self,
        target: &Bound<'py, PyAny>,
        saved: &Node,
        name: &str,
        names: Names,
        what: &str,
    ) -> Fill<'py> {
        if names == Names::Saved {
            return self.fresh(saved);
        }
        let name = if name.is_empty() {
            "(the whole state)"
        } else {
            name
        };
        self.mismatch.mismatched.push(format!(
            "{name} (saved: {}, to fill: {what})",
            self.words(saved)
        ));
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
    ) -> PyResult<Fill<'py>> {
        let what = array.words();
        let Node::Tensor(leaf) = peeled(saved) else {
            return Ok(self.mismatch(target, saved, name, names, &what));
        };
        if self.words(saved) != what {
            return Ok(self.mismatch(target, saved, name, names, &what));
        }
        if arrays::framework(&array.kind) == "jax" {
            // It cannot be filled: it is replaced, by one of its own framework.
            let same = arrays::framework(&leaf.kind) == "jax";
            let kind = if same { &leaf.kind } else { &array.kind }.clone();
            return Ok(self.fresh(&Node::Tensor(TensorRef {
                kind,
                ..leaf.clone()
            })));
        }
        if array.overlaps_itself(target)? {
            let what = format!("{what}, whose elements share memory");
            return Ok(self.mismatch(target, saved, name, names, &what));
        }
        let tensor = &self.tensors[leaf.index];
        if array.copied {
            let filled = Filled::elsewhere(target, leaf, tensor, name)?;
            self.filled.push(filled);
            let host = TensorRef {
                kind: array.kind.clone(),
                ..leaf.clone()
            };
            let Fill::Fresh(index) = self.fresh(&Node::Tensor(host)) else {
                unreachable!("fresh is fresh")
            };
            return Ok(Fill::Copy(target.clone(), index));
        }
        if !array.writable {
            let what = format!("{what}, read-only");
            return Ok(self.mismatch(target, saved, name, names, &what));
        }
        self.filled
            .push(Filled::on_host(&array, leaf, tensor, name));
        self.writes.push(Write {
            leaf: leaf.clone(),
            array,
        });
        Ok(Fill::Keep(target.clone()))
    }

    fn plan_object(
        &mut self,
        target: &Bound<'py, PyAny>,
        saved: &Node,
        name: &str,
    ) -> PyResult<Fill<'py>> {
        let inner = match saved {
            Node::Tagged { tag, value } if tag.starts_with("object:") => value,
            other => other,
        };
        let from_object = matches!(saved, Node::Tagged { tag, .. } if tag.starts_with("object:"));
        if !from_object && !matches!(peeled(saved), Node::Dict(_)) {
            return Ok(self.mismatch(target, saved, name, Names::Exact, &type_name(target)));
        }
        let module = Torch::get(target.py())?.map_or(Ok(false), |torch| torch.is_module(target))?;
        let names = if module { Names::Exact } else { Names::Saved };
        let class = type_name(target);
        if let Node::Tagged { tag, .. } = saved
            && let Some(saved_class) = tag.strip_prefix("object:")
            && !module
            && saved_class != class
        {
            self.warnings.push(format!(
                "{name} was saved from a {saved_class} and is given to a {class}"
            ));
        }
        let state = target.call_method0(pyo3::intern!(target.py(), "state_dict"))?;
        let fill = if state.is_instance_of::<PyDict>()
            && (module || self.partial || is_fillable(&state)?)
        {
            self.plan_container(&state, inner, name, names)?
        } else {
            self.fresh(inner)
        };
        Ok(Fill::Object(
            target.clone(),
            Box::new(fill),
            name.to_owned(),
        ))
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
            // A copy: another thread may change it meanwhile.
            let own: Vec<_> = dict.copy()?.iter().collect();
            // What is restored in part stays of the version that it has.
            let whole = !self.partial || own.len() == entries.len();
            let fill = if names == Names::Saved {
                Fill::NewDict(self.plan_entries(own, entries, name, names)?)
            } else if own.is_empty() || grows(target)? {
                // Nothing is known of what belongs there, such as a history before the first step.
                self.contents(target, Node::Dict(entries.clone()))
            } else {
                Fill::Entries(
                    target.clone(),
                    self.plan_entries(own, entries, name, names)?,
                )
            };
            return if whole {
                fill.with_versions(target, saved)
            } else {
                Ok(fill)
            };
        }
        if let (Some(own), Node::Dict(entries)) = (fields_of(target)?, saved_as) {
            let planned = self.plan_entries(own, entries, name, names)?;
            return Ok(if target.is_instance_of::<PyTuple>() {
                Fill::Tuple(
                    target.clone(),
                    planned.into_iter().map(|(_, fill)| fill).collect(),
                )
            } else {
                Fill::Fields(target.clone(), planned)
            });
        }
        let own = items_of(target)?;
        let plain = !is_fillable(target)?;
        if let (Some(own), Node::List(items) | Node::Tuple(items)) = (&own, saved_as)
            && own.len() == items.len()
        {
            // In plain containers what was saved counts; the types that the target has are kept.
            let names = if plain { Names::Saved } else { names };
            let pairs = own.iter().zip(items).enumerate();
            let planned = pairs
                .map(|(i, (item, saved))| {
                    self.plan(item, saved, &join(name, &i.to_string()), names)
                })
                .collect::<PyResult<Vec<_>>>()?;
            return Ok(if target.is_instance_of::<PyTuple>() {
                Fill::Tuple(target.clone(), planned)
            } else {
                Fill::Items(target.clone(), planned)
            });
        }
        if let (true, Ok(_), Node::List(items)) = (plain, target.cast::<PyList>(), saved_as) {
            return Ok(self.contents(target, Node::List(items.clone())));
        }
        let alike = match saved_as {
            Node::List(_) | Node::Tuple(_) => own.is_some(),
            Node::Tensor(_) | Node::Dict(_) => false,
            _ => own.is_none(),
        };
        if plain && alike {
            return Ok(self.fresh(saved));
        }
        let len = target
            .len()
            .map_or(String::new(), |len| format!(" of {len}"));
        Ok(self.mismatch(
            target,
            saved,
            name,
            names,
            &format!("{}{len}", type_name(target)),
        ))
    }

    fn plan_entries(
        &mut self,
        own: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
        saved: &[(Node, Node)],
        name: &str,
        names: Names,
    ) -> PyResult<Vec<(Bound<'py, PyAny>, Fill<'py>)>> {
        let mut rest: HashMap<String, usize> = saved
            .iter()
            .enumerate()
            .map(|(i, (key, _))| (format!("{key:?}"), i))
            .collect();
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
            if names == Names::Exact {
                saved_names(value, &name, &mut self.mismatch.unexpected);
            } else {
                planned.push((self.keys.build(key)?, self.fresh(value)));
            }
        }
        Ok(planned)
    }
}

/// Whether a saved value may take the place of a plain one: any other plain value, a number that has become a
/// scalar tensor meanwhile, and anything at all where there was nothing yet.
fn takes_the_place(target: &Bound<'_, PyAny>, saved: &Node, tensors: &[Tensor]) -> bool {
    match saved {
        _ if target.is_none() => true,
        Node::Tensor(leaf) => Shown::of(leaf, &tensors[leaf.index], 0).shape.is_empty(),
        Node::List(_) | Node::Tuple(_) | Node::Set(_) | Node::Dict(_) => false,
        _ => true,
    }
}

/// Whether two tensors were saved with the same bytes. They are read if their checksums are not at hand, as with
/// `verify=False`.
fn are_alike(py: Python<'_>, one: &Tensor, other: &Tensor) -> PyResult<bool> {
    if let (Some(one), Some(other)) = (one.checksum, other.checksum) {
        return Ok(one == other);
    }
    let read = beside(py, |stop| {
        let pair = [one, other];
        let mut bytes = pair.map(|tensor| vec![0u8; tensor.nbytes() as usize]);
        let targets = pair
            .into_iter()
            .zip(&mut bytes)
            .map(|(tensor, into)| snapshot::Target { tensor, into })
            .collect();
        snapshot::load_into(targets, stop).map(|()| bytes[0] == bytes[1])
    })?;
    read.map_err(|error| match error {
        ReadError::Io { source, .. } => errors::os_error(py, &source),
        damaged @ ReadError::Damaged { .. } => {
            errors::named(py, "CorruptCheckpointError", &damaged.to_string())
        }
    })
}
