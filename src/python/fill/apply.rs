//! Putting things in their places: plain values, and the states of objects.

use pyo3::prelude::*;
use pyo3::types::{PyAny, PyDict, PyList, PyString, PyTuple};

use super::{Fill, is_frozen};
use crate::python::arrays::torch::Torch;
use crate::python::build::Builder;
use crate::python::module_versions;
use crate::state::Node;

/// Puts plain values in their places and gives objects their state.
pub(super) fn apply<'py>(
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
        Fill::Versioned(dict, versions) => {
            module_versions::with(apply(*dict, fresh, builder)?, versions)
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
        Fill::Apart(fill) => apply(*fill, fresh, builder),
        Fill::Object(object, state, name) => {
            let state = apply(*state, fresh, builder)?;
            let py = object.py();
            object
                .call_method1(pyo3::intern!(py, "load_state_dict"), (state,))
                .map_err(|error| noted(py, error, &name))?;
            Ok(object)
        }
    }
}

/// Says where it happened, and what that means; the exception stays the object's own.
fn noted(py: Python<'_>, error: PyErr, name: &str) -> PyErr {
    let place = if name.is_empty() {
        "the whole state"
    } else {
        name
    };
    let note = format!(
        "pitstop: raised by load_state_dict of {place}; its arrays, and what came before it, are restored"
    );
    // A note that cannot be added must not take the place of the error.
    let _ = error.value(py).call_method1("add_note", (note,));
    error
}

/// The value if it is another object than before.
fn changed<'py>(
    fill: Fill<'py>,
    fresh: &[Node],
    builder: &mut Builder<'py, '_>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if matches!(fill, Fill::Keep(_)) {
        return Ok(None);
    }
    let before = fill.object().cloned();
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
    let frozen = is_frozen(&object);
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
