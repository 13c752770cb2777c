//! Plain lines on their way to `sys.stdout`, where that is not the standard output of the process: in notebooks, and
//! where a test captures it. The thread of the screen never attaches to Python, so its lines wait until Python calls.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;

/// Bytes that may wait; what comes then is left out.
const CAPACITY: usize = 1 << 20;

/// A writer of lines, and where they wait.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    /// Whether there are any.
    any: AtomicBool,
    bytes: Mutex<Vec<u8>>,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() + bytes.len() <= CAPACITY {
            waiting.extend_from_slice(bytes);
            self.0.any.store(true, Ordering::Release);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Hands the lines that wait to `sys.stdout`. If none do, it costs one atomic load.
    pub(super) fn drain(&self, py: Python<'_>) -> PyResult<()> {
        if !self.0.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let Some(whole) = self.take() else {
            return Ok(());
        };
        let stdout = py.import("sys")?.getattr("stdout")?;
        if stdout.is_none() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&whole);
        let written = stdout.call_method1("write", (text,)).map(drop);
        unless_unwritable(py, written)
    }

    /// The lines that are whole; none if one is being added this very moment, for a thread that holds the GIL waits
    /// for no other.
    fn take(&self) -> Option<Vec<u8>> {
        let mut waiting = self.0.bytes.try_lock().ok()?;
        let end = waiting.iter().rposition(|byte| *byte == b'\n')? + 1;
        let rest = waiting.split_off(end);
        self.0.any.store(!rest.is_empty(), Ordering::Release);
        Some(std::mem::replace(&mut *waiting, rest))
    }
}

/// Writes out what `sys.stdout` and `sys.stderr` still hold.
pub(super) fn flush_standard_streams(py: Python<'_>) -> PyResult<()> {
    let sys = py.import("sys")?;
    for name in ["stdout", "stderr"] {
        let stream = sys.getattr(name)?;
        if !stream.is_none() {
            unless_unwritable(py, stream.call_method0("flush").map(drop))?;
        }
    }
    Ok(())
}

/// Whether what is printed goes to the standard output of the process.
pub(super) fn stdout_is_of_the_process(py: Python<'_>) -> PyResult<bool> {
    let stdout = py.import("sys")?.getattr("stdout")?;
    match stdout
        .call_method0("fileno")
        .and_then(|number| number.extract::<i32>())
    {
        Ok(number) => Ok(number == 1),
        Err(error) => unless_unwritable(py, Err(error)).map(|()| false),
    }
}

/// A stream that takes nothing must not end the training; Ctrl-C may.
fn unless_unwritable(py: Python<'_>, outcome: PyResult<()>) -> PyResult<()> {
    match outcome {
        Err(error) if !error.is_instance_of::<PyException>(py) => Err(error),
        _ => Ok(()),
    }
}
