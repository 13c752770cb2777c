//! Types of other packages. The standard library's are imported; a framework's are looked up only where
//! the user has imported the framework.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// What `find` finds in a framework that the user has imported; looked up once, and never imported here.
///
/// While a framework is being imported, its module is there but not complete: `is_complete` tells.
pub(super) fn once_imported<T: Send + Sync>(
    py: Python<'_>,
    found: &'static PyOnceLock<T>,
    name: &str,
    is_complete: fn(&Bound<'_, PyAny>) -> bool,
    find: fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Option<&'static T>> {
    if let Some(known) = found.get(py) {
        return Ok(Some(known));
    }
    match imported(py, name)? {
        Some(module) if is_complete(&module) => {
            found.get_or_try_init(py, || find(&module)).map(Some)
        }
        _ => Ok(None),
    }
}

/// A module that is imported, by its name in `sys.modules`.
pub(super) fn imported<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || -> PyResult<_> {
        Ok(py
            .import("sys")?
            .getattr("modules")?
            .cast_into::<PyDict>()?
            .unbind())
    })?;
    Ok(modules
        .bind(py)
        .get_item(name)?
        .filter(|module| !module.is_none()))
}

/// Types of the standard library that a state may hold.
pub(super) struct Std {
    pub(super) ordered_dict: Py<PyType>,
    pub(super) counter: Py<PyType>,
    pub(super) default_dict: Py<PyType>,
    pub(super) deque: Py<PyType>,
    pub(super) simple_namespace: Py<PyType>,
    pub(super) array: Py<PyType>,
}

impl Std {
    pub(super) fn get(py: Python<'_>) -> PyResult<&'static Std> {
        static STD: PyOnceLock<Std> = PyOnceLock::new();
        STD.get_or_try_init(py, || {
            let get = |module: &str, name: &str| -> PyResult<Py<PyType>> {
                Ok(py
                    .import(module)?
                    .getattr(name)?
                    .cast_into::<PyType>()?
                    .unbind())
            };
            Ok(Std {
                ordered_dict: get("collections", "OrderedDict")?,
                counter: get("collections", "Counter")?,
                default_dict: get("collections", "defaultdict")?,
                deque: get("collections", "deque")?,
                simple_namespace: get("types", "SimpleNamespace")?,
                array: get("array", "array")?,
            })
        })
    }
}

/// The text of an object, as `str` gives it. Not by `Display`, which prints an error instead of returning it:
/// Python looks at signals here, and a `KeyboardInterrupt` would be lost.
pub(super) fn text(object: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(object.str()?.to_string_lossy().into_owned())
}

/// `module.Name` of a type, as error messages show it; the plain name for built-in types.
pub(super) fn type_name(object: &Bound<'_, PyAny>) -> String {
    let class = object.get_type();
    let name = class.qualname().map_or_else(
        |_| "object".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    match class.module() {
        Ok(module) if module != "builtins" => format!("{}.{name}", module.to_string_lossy()),
        _ => name,
    }
}

/// A name below a path of names.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}
