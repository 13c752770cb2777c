//! Named tuples and dataclasses: what they are made of.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyType};

use crate::python::known::text;

/// Names and values of the fields of a dataclass instance.
pub(in crate::python) fn dataclass_fields<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    static FIELDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let fields = FIELDS.import(object.py(), "dataclasses", "fields")?;
    fields
        .call1((object,))?
        .try_iter()?
        .map(|field| {
            let name = field?.getattr("name")?;
            let value = object.getattr(name.cast::<PyString>()?)?;
            Ok((name, value))
        })
        .collect()
}

/// Whether `collections.namedtuple` makes a class of these names again.
pub(super) fn makes_named_tuple(
    name: &Bound<'_, PyString>,
    fields: &[Bound<'_, PyAny>],
) -> PyResult<bool> {
    static IS_KEYWORD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let keyword = IS_KEYWORD.import(name.py(), "keyword", "iskeyword")?;
    let is_name = |name: &Bound<'_, PyAny>| -> PyResult<bool> {
        Ok(name.call_method0("isidentifier")?.is_truthy()?
            && !keyword.call1((name,))?.is_truthy()?)
    };
    let mut seen = HashSet::new();
    for (index, field) in fields.iter().enumerate() {
        let Ok(field) = field.cast::<PyString>() else {
            return Ok(false);
        };
        let spelled = text(field)?;
        // What `rename=True` makes of a field that is no name.
        let renamed = spelled == format!("_{index}");
        if !renamed && (spelled.starts_with('_') || !is_name(field)?) {
            return Ok(false);
        }
        if !seen.insert(spelled) {
            return Ok(false);
        }
    }
    is_name(name)
}

/// An attribute of `object` that is none of its `fields`. What `functools.cached_property` keeps, what a descriptor
/// keeps of a field, and names that are Python's own, do not count.
pub(super) fn further_attribute<'py>(
    object: &Bound<'py, PyAny>,
    fields: &[(Bound<'py, PyAny>, Bound<'py, PyAny>)],
) -> PyResult<Option<String>> {
    static CACHED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = object.py();
    let Some(attributes) = object.getattr_opt(pyo3::intern!(py, "__dict__"))? else {
        return Ok(None);
    };
    let Ok(attributes) = attributes.cast_into::<PyDict>() else {
        return Ok(None);
    };
    let rest = attributes.copy()?;
    let mut elsewhere = Vec::new();
    for (name, _) in fields {
        if rest.contains(name)? {
            rest.del_item(name)?;
        } else {
            elsewhere.push(text(name)?);
        }
    }
    // A descriptor, such as a property, keeps its field under a name like it, maybe a private one of its class.
    let is_field = |spelled: &str| {
        let mut fields = elsewhere.iter();
        fields
            .any(|field| spelled == format!("_{field}") || spelled.ends_with(&format!("__{field}")))
    };
    for name in rest.keys() {
        let spelled = text(&name)?;
        let kept = object.get_type().getattr_opt(spelled.as_str())?;
        let cached = CACHED.import(py, "functools", "cached_property")?;
        let is_cached = kept.map_or(Ok(false), |kept| kept.is_instance(cached))?;
        let is_pythons_own = spelled.starts_with("__") && spelled.ends_with("__");
        if !(is_cached || is_pythons_own || is_field(&spelled)) {
            return Ok(Some(spelled));
        }
    }
    Ok(None)
}
