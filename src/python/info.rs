//! `CheckpointInfo`: what is known of a committed checkpoint.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::SystemTime;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use super::build::Builder;
use crate::file_checkpointer::CheckpointInfo as Info;

/// What is known of a committed checkpoint without reading its tensors.
#[pyclass(frozen, name = "CheckpointInfo", module = "pitstop")]
pub(super) struct CheckpointInfo {
    info: Info,
    /// Built when it is asked for: what this pitstop does not know hides no checkpoint.
    metadata: PyOnceLock<Py<PyAny>>,
}

impl CheckpointInfo {
    pub(super) fn new(info: &Info) -> CheckpointInfo {
        CheckpointInfo {
            info: info.clone(),
            metadata: PyOnceLock::new(),
        }
    }
}

#[pymethods]
impl CheckpointInfo {
    /// The training step.
    #[getter]
    fn step(&self) -> u64 {
        self.info.step
    }

    /// Its directory, as a ``pathlib.Path``.
    #[getter]
    fn path(&self) -> PathBuf {
        self.info.path.clone()
    }

    /// When it was saved: a ``datetime`` in UTC, to the millisecond.
    #[getter]
    fn created(&self) -> SystemTime {
        self.info.created
    }

    /// Metrics given at the save.
    #[getter]
    fn metrics(&self) -> BTreeMap<String, f64> {
        self.info.metrics.clone()
    }

    /// Metadata given at the save; an error if it holds what this pitstop does not know.
    #[getter]
    fn metadata(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let metadata = self.metadata.get_or_try_init(py, || -> PyResult<_> {
            let mut builder = Builder::new(py, &[], &[], Vec::new(), None)?;
            Ok(builder.build(&self.info.metadata)?.unbind())
        });
        Ok(metadata?.clone_ref(py))
    }

    /// Total size of its files in bytes, without its manifest; files shared with other checkpoints count in full.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.info.nbytes
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let metrics = PyDict::new(py);
        for (name, value) in &self.info.metrics {
            metrics.set_item(name, value)?;
        }
        let path = self.info.path.as_os_str().into_pyobject(py)?.repr()?;
        let path = path.to_string_lossy();
        Ok(format!(
            "CheckpointInfo(step={}, path={path}, metrics={}, nbytes={})",
            self.info.step,
            metrics.repr()?.to_string_lossy(),
            self.info.nbytes
        ))
    }

    fn __eq__(&self, other: &CheckpointInfo) -> bool {
        self.info == other.info
    }

    fn __hash__(&self) -> u64 {
        self.info.step
    }
}
