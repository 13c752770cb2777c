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
use super::known::{Std, text, type_name};
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
    /// The contents of a list or a dictionary are replaced by a fresh one's.
    Contents(Bound<'py, PyAny>, usize),
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
    /// Makes dictionary keys, which hold no tensors.
    keys: Builder<'py, 'a>,
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
    damaged: impl Fn(Python<'py>, ReadError) -> PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    let py = target.py();
    let State { root, tensors } = state;
    let mut planner = Planner {
        tensors: &tensors,
        keys: Builder::new(py, &tensors, &[], Vec::new(), None)?,
        partial,
        writes: Vec::new(),
        fresh: Vec::new(),
        mismatch: Mismatch::default(),
    };
    let plan = planner.plan(target, &root, "", Names::Exact)?;
    let Planner {
        writes,
        fresh,
        mismatch,
        ..
    } = planner;
    if !mismatch.is_empty() {
        return Err(mismatch.into_error(py));
    }
    let fresh = State {
        root: Node::List(fresh),
        tensors: tensors.clone(),
    };
    let jobs: Vec<Job> = writes
        .iter()
        .map(|write| Job::new(write, &tensors))
        .collect();
    let read = py.detach(|| run(jobs, &tensors).and_then(|()| load(fresh, None)));
    let loaded = read.map_err(|error| damaged(py, error))?;
    let Node::List(nodes) = loaded.root else {
        unreachable!("made a list above")
    };
    let mut builder = Builder::new(py, &loaded.tensors, &loaded.places, loaded.memories, None)?;
    apply(plan, &nodes, &mut builder)
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
        if let Ok(Some(array)) = arrays::describe(target) {
            return Ok(self.plan_array(target, array, saved, name, names));
        }
        if has_state(target)? {
            return self.plan_object(target, saved, name);
        }
        if *saved == Node::None && !is_fillable(target)? {
            return Ok(self.fresh(saved));
        }
        self.plan_container(target, saved, name, names)
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
    ) -> Fill<'py> {
        let what = array.words();
        let Node::Tensor(leaf) = peeled(saved) else {
            return self.mismatch(target, saved, name, names, &what);
        };
        if self.words(saved) != what {
            return self.mismatch(target, saved, name, names, &what);
        }
        if array.copied {
            let host = TensorRef {
                kind: array.kind.clone(),
                ..leaf.clone()
            };
            let Fill::Fresh(index) = self.fresh(&Node::Tensor(host)) else {
                unreachable!("fresh is fresh")
            };
            return Fill::Copy(target.clone(), index);
        }
        if !array.writable && !array.immutable {
            return self.mismatch(target, saved, name, names, &format!("{what}, read-only"));
        }
        if array.immutable {
            // It is replaced, by one of the framework that it has.
            let same = arrays::framework(&array.kind) == arrays::framework(&leaf.kind);
            let kind = if same { &leaf.kind } else { &array.kind }.clone();
            return self.fresh(&Node::Tensor(TensorRef {
                kind,
                ..leaf.clone()
            }));
        }
        self.writes.push(Write {
            leaf: leaf.clone(),
            array,
        });
        Fill::Keep(target.clone())
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
        let state = target.call_method0(pyo3::intern!(target.py(), "state_dict"))?;
        let fill = if state.is_instance_of::<PyDict>()
            && (module || self.partial || is_fillable(&state)?)
        {
            self.plan_container(&state, inner, name, names)?
        } else {
            self.fresh(inner)
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
            if names == Names::Exact && (own.is_empty() || grows(target)?) {
                // Nothing is known of what belongs there, such as a history before the first step.
                return Ok(self.contents(target, Node::Dict(entries.clone())));
            }
            let planned = self.plan_entries(own, entries, name, names)?;
            return Ok(match names {
                Names::Saved => Fill::NewDict(planned),
                Names::Exact => Fill::Entries(target.clone(), planned),
            });
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
            if names == Names::Exact && !self.partial {
                saved_names(value, &name, &mut self.mismatch.unexpected);
            } else {
                planned.push((self.keys.build(key)?, self.fresh(value)));
            }
        }
        Ok(planned)
    }
}

/// A value in its wrapping: what a tagged container or tensor is made of.
fn peeled(node: &Node) -> &Node {
    match node {
        Node::Tagged { tag, value }
            if !tag.starts_with("numpy.") && !tag.starts_with("jax.key") =>
        {
            peeled(value)
        }
        other => other,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Values that hold nothing else, told by their type alone.
fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_none()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyBytes>()
}

/// Dictionaries whose keys come with use, if they hold plain values.
fn grows(dict: &Bound<'_, PyAny>) -> PyResult<bool> {
    let std = Std::get(dict.py())?;
    let class = dict.get_type();
    let known = [&std.counter, &std.default_dict];
    Ok(known.iter().any(|known| class.is(known.bind(dict.py()))) && !is_fillable(dict)?)
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

/// Whether it is, or holds, an array or an object that takes a state.
fn is_fillable(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    if is_plain(object) {
        return Ok(false);
    }
    if let Ok(dict) = object.cast::<PyDict>() {
        return any_fillable(dict.values().iter());
    }
    if let Some(items) = items_of(object)? {
        return any_fillable(items.into_iter());
    }
    if matches!(arrays::describe(object), Ok(Some(_))) || has_state(object)? {
        return Ok(true);
    }
    match fields_of(object)? {
        Some(fields) => any_fillable(fields.into_iter().map(|(_, value)| value)),
        None => Ok(false),
    }
}

fn any_fillable<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<bool> {
    for item in items {
        if is_fillable(&item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Items of a list, a tuple, or a deque.
fn items_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Ok(Some(list.iter().collect()));
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return Ok(Some(tuple.iter().collect()));
    }
    if object.is_instance(Std::get(object.py())?.deque.bind(object.py()))? {
        return object.try_iter()?.collect::<PyResult<Vec<_>>>().map(Some);
    }
    Ok(None)
}

type Fields<'py> = Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

/// Names and values of a named tuple, a dataclass, or a simple namespace.
fn fields_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Fields<'py>>> {
    let py = object.py();
    let class = object.get_type();
    if let (Ok(tuple), true) = (object.cast::<PyTuple>(), class.hasattr("_fields")?) {
        let names: Vec<_> = class
            .getattr("_fields")?
            .try_iter()?
            .collect::<PyResult<_>>()?;
        return Ok(Some(names.into_iter().zip(tuple.iter()).collect()));
    }
    if class.hasattr("__dataclass_fields__")? {
        return dataclass_fields(object).map(Some);
    }
    if object.is_instance(Std::get(py)?.simple_namespace.bind(py))? {
        let fields = object.getattr("__dict__")?.cast_into::<PyDict>()?;
        return Ok(Some(fields.iter().collect()));
    }
    Ok(None)
}

/// Adds the names of all leaves of an object.
fn leaf_names(object: &Bound<'_, PyAny>, name: &str, names: &mut Vec<String>) -> PyResult<()> {
    let children: Vec<(String, Bound<'_, PyAny>)> = if let Ok(dict) = object.cast::<PyDict>() {
        dict.iter()
            .map(|(key, value)| Ok((key_node(&key)?.name(), value)))
            .collect::<PyResult<_>>()?
    } else if let Some(fields) = fields_of(object)? {
        fields
            .into_iter()
            .map(|(name, value)| Ok((text(&name)?, value)))
            .collect::<PyResult<_>>()?
    } else if let Some(items) = items_of(object)? {
        items
            .into_iter()
            .enumerate()
            .map(|(i, item)| (i.to_string(), item))
            .collect()
    } else {
        Vec::new()
    };
    if children.is_empty() {
        names.push(name.to_owned());
    }
    children
        .into_iter()
        .try_for_each(|(child, value)| leaf_names(&value, &join(name, &child), names))
}

/// Adds the names of all leaves of a node.
fn saved_names(node: &Node, name: &str, names: &mut Vec<String>) {
    match peeled(node) {
        Node::Dict(entries) if !entries.is_empty() => {
            for (key, value) in entries {
                saved_names(value, &join(name, &key.name()), names);
            }
        }
        Node::List(items) | Node::Tuple(items) if !items.is_empty() => {
            for (i, item) in items.iter().enumerate() {
                saved_names(item, &join(name, &i.to_string()), names);
            }
        }
        _ => names.push(name.to_owned()),
    }
}

/// One array to fill, apart from Python.
struct Job {
    leaf: TensorRef,
    extent: Extent,
    layout: Layout,
    nbytes: usize,
    /// The memory takes the stored form of the whole tensor as it is.
    direct: bool,
}

impl Job {
    fn new(write: &Write<'_>, tensors: &[Tensor]) -> Job {
        let Write { leaf, array } = write;
        let direct = array.strides.is_none() && !array.big_endian && leaf.view.is_none();
        Job {
            leaf: leaf.clone(),
            extent: array.extent,
            layout: Layout::new(
                array.dtype,
                &array.shape,
                array.strides.as_deref(),
                array.extent.offset(),
                array.big_endian,
            ),
            nbytes: Shown::of(leaf, &tensors[leaf.index], 0).nbytes(),
            direct,
        }
    }
}

/// Fills all arrays. Those whose memory nobody else shares are read straight into it, side by side; the
/// others one after the other.
fn run(jobs: Vec<Job>, tensors: &[Tensor]) -> Result<(), ReadError> {
    let alone = without_overlap(&jobs);
    let (direct, other): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .zip(alone)
        .partition(|(job, alone)| *alone && job.direct);
    let targets = direct.iter().map(|(job, _)| Target {
        tensor: &tensors[job.leaf.index],
        into: job.extent.target(),
    });
    load_into(targets.collect())?;
    for (job, _) in other {
        let tensor = &tensors[job.leaf.index];
        let mut whole = vec![0; tensor.nbytes() as usize];
        load_into(vec![Target {
            tensor,
            into: &mut whole,
        }])?;
        let mut stored = if job.leaf.view.is_some() {
            let mut stored = vec![0; job.nbytes];
            gather_view(&Shown::of(&job.leaf, tensor, 0), &whole, &mut stored);
            stored
        } else {
            whole
        };
        job.layout.scatter(&mut stored, job.extent.target());
    }
    Ok(())
}

/// For each job, whether its memory is that of no other job.
fn without_overlap(jobs: &[Job]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&i| jobs[i].extent.bounds());
    let mut alone = vec![true; jobs.len()];
    let mut reach: Option<usize> = None;
    for i in order {
        if let Some(before) = reach
            && jobs[before].extent.overlaps(&jobs[i].extent)
        {
            alone[before] = false;
            alone[i] = false;
        }
        if reach.is_none_or(|before| jobs[before].extent.bounds().1 < jobs[i].extent.bounds().1) {
            reach = Some(i);
        }
    }
    alone
}

/// Puts plain values in their places and gives objects their state.
fn apply<'py>(
    fill: Fill<'py>,
    fresh: &[Node],
    builder: &mut Builder<'py, '_>,
) -> PyResult<Bound<'py, PyAny>> {
    match fill {
        Fill::Keep(object) => Ok(object),
        Fill::Fresh(index) => builder.build(&fresh[index]),
        Fill::Copy(target, index) => {
            let source = builder.build(&fresh[index])?;
            let detached = Torch::import(target.py())?.detached(&target)?;
            detached.call_method1("copy_", (source,))?;
            Ok(target)
        }
        Fill::Entries(dict, entries) => {
            for (key, fill) in entries {
                if let Some(value) = changed(fill, fresh, builder)? {
                    dict.set_item(key, value)?;
                }
            }
            Ok(dict)
        }
        Fill::Contents(target, index) => {
            let contents = builder.build(&fresh[index])?;
            if let Ok(list) = target.cast::<PyList>() {
                list.set_slice(0, list.len(), &contents)?;
            } else {
                let dict = target.cast::<PyDict>()?;
                dict.clear();
                for (key, value) in contents.cast::<PyDict>()?.iter() {
                    target.set_item(key, value)?;
                }
            }
            Ok(target)
        }
        Fill::NewDict(entries) => {
            let dict = PyDict::new(builder.py());
            for (key, fill) in entries {
                dict.set_item(key, apply(fill, fresh, builder)?)?;
            }
            Ok(dict.into_any())
        }
        Fill::Items(list, items) => {
            for (i, fill) in items.into_iter().enumerate() {
                if let Some(value) = changed(fill, fresh, builder)? {
                    list.set_item(i, value)?;
                }
            }
            Ok(list)
        }
        Fill::Fields(object, fields) => apply_fields(object, fields, fresh, builder),
        Fill::Tuple(tuple, items) => {
            let items = items
                .into_iter()
                .map(|fill| apply(fill, fresh, builder))
                .collect::<PyResult<Vec<_>>>()?;
            let values = PyTuple::new(builder.py(), items)?;
            let class = tuple.get_type();
            match class.getattr_opt("_make")? {
                Some(make) => make.call1((values,)),
                None => Ok(values.into_any()),
            }
        }
        Fill::Object(object, state) => {
            let state = apply(*state, fresh, builder)?;
            object.call_method1(pyo3::intern!(object.py(), "load_state_dict"), (state,))?;
            Ok(object)
        }
    }
}

/// The value if it is another object than before.
fn changed<'py>(
    fill: Fill<'py>,
    fresh: &[Node],
    builder: &mut Builder<'py, '_>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let before = match &fill {
        Fill::Keep(_) => return Ok(None),
        Fill::Entries(object, _)
        | Fill::Contents(object, _)
        | Fill::Items(object, _)
        | Fill::Fields(object, _)
        | Fill::Object(object, _) => Some(object.clone()),
        _ => None,
    };
    let after = apply(fill, fresh, builder)?;
    Ok(Some(after).filter(|after| before.is_none_or(|before| !before.is(after))))
}

fn apply_fields<'py>(
    object: Bound<'py, PyAny>,
    fields: Vec<(Bound<'py, PyAny>, Fill<'py>)>,
    fresh: &[Node],
    builder: &mut Builder<'py, '_>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut values = Vec::new();
    for (name, fill) in fields {
        if let Some(value) = changed(fill, fresh, builder)? {
            values.push((name.cast_into::<PyString>()?, value));
        }
    }
    if values.is_empty() {
        return Ok(object);
    }
    let py = builder.py();
    let frozen = match object.get_type().getattr_opt("__dataclass_params__")? {
        Some(params) => params.getattr("frozen")?.is_truthy()?,
        None => false,
    };
    // A frozen object keeps its values for whoever else holds it; its container gets a changed copy.
    let target = if frozen {
        py.import("copy")?.call_method1("copy", (&object,))?
    } else {
        object
    };
    let setattr = py.get_type::<PyAny>().getattr("__setattr__")?;
    for (name, value) in values {
        if frozen {
            setattr.call1((&target, name, value))?;
        } else {
            target.setattr(name, value)?;
        }
    }
    Ok(target)
}
