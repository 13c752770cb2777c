//! The versions of torch's modules: a state dict has them in an attribute, beside its entries, and
//! `load_state_dict` translates by them what an older module left.

use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::known::Std;
use crate::state::Node;

/// The tag of an ordered dictionary. After a colon follow its versions as JSON, if it has any.
const TAG: &str = "collections.OrderedDict";

const ATTRIBUTE: &str = "_metadata";

/// What `load_state_dict(…, assign=True)` leaves in the versions. The next one to be given them would replace its
/// parameters, not fill them.
const ASSIGN: &str = "assign_to_params_buffers";

/// The tag for an ordered dictionary. An attribute that JSON cannot say is not that of torch, and is left out.
pub(super) fn tag(dict: &Bound<'_, PyAny>) -> PyResult<String> {
    let versions = dict.getattr_opt(ATTRIBUTE)?;
    let Some(versions) = versions.filter(PyAnyMethods::is_instance_of::<PyDict>) else {
        return Ok(TAG.to_owned());
    };
    match as_json(&versions) {
        Ok(Some(json)) => Ok(format!("{TAG}:{json}")),
        Err(error) if !error.is_instance_of::<PyException>(dict.py()) => Err(error),
        _ => Ok(TAG.to_owned()),
    }
}

/// The versions as JSON, if that gives back the same.
fn as_json(versions: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let json = versions.py().import("json")?;
    let text = json.call_method1("dumps", (versions,))?;
    if !json.call_method1("loads", (&text,))?.eq(versions)? {
        return Ok(None);
    }
    Ok(Some(text.extract()?))
}

/// The versions that a dictionary was saved with.
///
/// # Errors
///
/// As [`read`].
pub(super) fn saved_with<'py>(
    py: Python<'py>,
    saved: &Node,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Node::Tagged { tag, value } = saved else {
        return Ok(None);
    };
    match tag.strip_prefix(TAG) {
        Some(rest) => read(py, rest.strip_prefix(':').unwrap_or_default()),
        None => saved_with(py, value),
    }
}

/// The versions that stand after the colon of a tag.
///
/// # Errors
///
/// `ValueError` if they are no JSON, or not that of a dictionary.
pub(super) fn read<'py>(py: Python<'py>, json: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    if json.is_empty() {
        return Ok(None);
    }
    from_json(py, json).map(Some).map_err(|error| {
        if !error.is_instance_of::<PyException>(py) {
            return error;
        }
        let told =
            PyValueError::new_err("the checkpoint holds versions of modules that are no versions");
        told.set_cause(py, Some(error));
        told
    })
}

fn from_json<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    let read = py.import("json")?.call_method1("loads", (json,))?;
    let versions = read.cast_into::<PyDict>()?;
    for of_module in versions.values() {
        if let Ok(of_module) = of_module.cast::<PyDict>()
            && of_module.contains(ASSIGN)?
        {
            of_module.del_item(ASSIGN)?;
        }
    }
    Std::get(py)?.ordered_dict.bind(py).call1((versions,))
}

/// Whether a dictionary may be one of torch's.
pub(super) fn fit(dict: &Bound<'_, PyAny>) -> PyResult<bool> {
    dict.is_instance(Std::get(dict.py())?.ordered_dict.bind(dict.py()))
}

/// The dictionary with the versions; an ordered one instead of a plain one, which has no attributes.
pub(super) fn with<'py>(
    mut dict: Bound<'py, PyAny>,
    versions: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    if dict.is_exact_instance_of::<PyDict>() {
        let py = dict.py();
        dict = Std::get(py)?.ordered_dict.bind(py).call1((dict,))?;
    }
    dict.setattr(ATTRIBUTE, versions)?;
    Ok(dict)
}
