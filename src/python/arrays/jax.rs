//! JAX arrays. JAX never changes them, but where they lie in host memory, somebody else may.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use super::numpy::Numpy;
use super::{Array, Shown, incomplete, unsupported};
use crate::python::errors::Refusal;
use crate::python::known::{once_imported, text};
use crate::python::tensor::Memory;

pub(in crate::python) struct Jax {
    array: Py<PyAny>,
    tracer: Py<PyAny>,
    prng_key: Py<PyAny>,
    /// The class of arrays with values, known from the first of them.
    concrete: PyOnceLock<Py<PyType>>,
}

impl Jax {
    /// JAX, if the user has imported it.
    pub(in crate::python) fn get(py: Python<'_>) -> PyResult<Option<&'static Jax>> {
        static JAX: PyOnceLock<Jax> = PyOnceLock::new();
        let is_complete = |module: &Bound<'_, PyAny>| module.hasattr("random").unwrap_or(false);
        once_imported(py, &JAX, "jax", is_complete, Jax::find)
    }

    /// JAX, imported because an array is wanted.
    pub(in crate::python) fn import(py: Python<'_>) -> PyResult<&'static Jax> {
        py.import("jax")?;
        Jax::get(py)?.ok_or_else(|| incomplete("JAX"))
    }

    fn find(module: &Bound<'_, PyAny>) -> PyResult<Jax> {
        Ok(Jax {
            array: module.getattr("Array")?.unbind(),
            tracer: module.getattr("core")?.getattr("Tracer")?.unbind(),
            prng_key: module.getattr("dtypes")?.getattr("prng_key")?.unbind(),
            concrete: PyOnceLock::new(),
        })
    }

    pub(in crate::python) fn is_array(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.is_concrete(object) || object.is_instance(self.array.bind(object.py()))?)
    }

    fn is_concrete(&self, object: &Bound<'_, PyAny>) -> bool {
        let known = self.concrete.get(object.py());
        known.is_some_and(|class| object.get_type().is(class))
    }

    /// A typed random key, as `jax.random.key` makes them.
    pub(in crate::python) fn is_key(&self, array: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = array.py();
        let dtype = array.getattr(pyo3::intern!(py, "dtype"))?;
        if Numpy::import(py)?.is_dtype(&dtype)? {
            return Ok(false);
        }
        let is_sub = py.import("jax")?.getattr("dtypes")?.getattr("issubdtype")?;
        is_sub.call1((dtype, self.prng_key.bind(py)))?.extract()
    }

    pub(super) fn describe<'py>(&self, array: &Bound<'py, PyAny>) -> Result<Array<'py>, Refusal> {
        let py = array.py();
        if !self.is_concrete(array) {
            if array.is_instance(self.tracer.bind(py))? {
                return Err(unsupported(
                    "a traced value has no contents; save outside jax.jit",
                ));
            }
            if self.is_key(array)? {
                return Err(unsupported("a typed random key is no array of numbers"));
            }
        }
        let whole = array.getattr(pyo3::intern!(py, "is_fully_replicated"))?;
        if !whole.extract::<bool>()? {
            return Err(unsupported(
                "an array sharded over several devices; gather it first with jax.device_get",
            ));
        }
        let numpy = Numpy::import(py)?;
        let view = numpy.view(array)?;
        self.concrete.get_or_init(py, || array.get_type().unbind());
        let described = numpy.describe(&view)?;
        // Memory that NumPy does not own is the array's own, and `device_put` and `from_dlpack` may have it from
        // another array, whose owner can change it. A copy of what lies on a device is JAX's alone.
        let copied = view
            .getattr(pyo3::intern!(py, "flags"))?
            .getattr(pyo3::intern!(py, "owndata"))?
            .is_truthy()?;
        let kind = format!(
            "jax{}",
            described.kind.strip_prefix("numpy").unwrap_or_default()
        )
        .into();
        Ok(Array {
            kind,
            immutable: copied,
            writable: false,
            copied,
            ..described
        })
    }

    #[expect(
        clippy::unused_self,
        reason = "it shows that JAX is there, as for the other methods"
    )]
    pub(super) fn make<'py>(
        &self,
        memory: &Bound<'py, Memory>,
        shown: &Shown<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = memory.py();
        let host = Numpy::import(py)?.make(memory, shown)?;
        let keywords = PyDict::new(py);
        keywords.set_item("copy", true)?;
        let array = py
            .import("jax.numpy")?
            .call_method("array", (&host,), Some(&keywords))?;
        let (want, got) = (host.getattr("dtype")?, array.getattr("dtype")?);
        if !want.eq(&got)? {
            return Err(PyValueError::new_err(format!(
                "JAX would turn {} into {}: set jax_enable_x64, or pass framework=\"numpy\"",
                text(&want)?,
                text(&got)?
            )));
        }
        Ok(array)
    }
}
