//! Log records on their way to Python's `logging`.
//!
//! Threads of the core never attach to Python: their records wait in a bounded queue until Python
//! calls in. Loggers are named after the modules of the core: `pitstop.commit.publish`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// The most records that wait; beyond it the oldest is dropped, and counted.
const CAPACITY: usize = 1024;

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    records: VecDeque::new(),
    dropped: 0,
});
/// Whether the queue may hold something.
static WAITING: AtomicBool = AtomicBool::new(false);

struct Queue {
    records: VecDeque<Record>,
    dropped: usize,
}

struct Record {
    level: Level,
    target: String,
    message: String,
    file: Option<&'static str>,
    line: Option<u32>,
    thread: Option<String>,
    time: SystemTime,
}

impl Queue {
    const fn take(&mut self) -> Queue {
        std::mem::replace(
            self,
            Queue {
                records: VecDeque::new(),
                dropped: 0,
            },
        )
    }

    fn push(&mut self, record: Record) {
        if self.records.len() == CAPACITY {
            self.records.pop_front();
            self.dropped += 1;
        }
        self.records.push_back(record);
    }
}

struct Front;

impl log::Log for Front {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        let target = metadata.target();
        target == "pitstop" || target.starts_with("pitstop::")
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let record = Record {
            level: record.level(),
            target: record.target().replace("::", "."),
            message: record.args().to_string(),
            file: record.file_static(),
            line: record.line(),
            thread: thread::current().name().map(str::to_owned),
            time: SystemTime::now(),
        };
        // Held only while a record is moved, here and in `drain`; nobody waits for Python under it.
        QUEUE
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(record);
        WAITING.store(true, Ordering::Release);
    }

    fn flush(&self) {}
}

/// Makes the queue the logger of this crate. Does nothing if a logger was set before: then that one
/// gets the records, and [`drain`] never finds any.
pub(super) fn install() {
    if log::set_logger(&Front).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

/// Hands what has been queued to Python's `logging`, oldest first.
///
/// If nothing waits it costs one atomic load and one look at the level of the logger `pitstop`. That
/// level decides what is queued from here on; warnings and errors always are. Never blocks.
///
/// # Errors
///
/// The first one that a filter of the user raised; the other records are handed over all the same.
pub(super) fn drain(py: Python<'_>) -> PyResult<()> {
    let python = PythonLogging::get(py)?;
    log::set_max_level(python.wanted(py)?);
    if !WAITING.load(Ordering::Acquire) {
        return Ok(());
    }
    let Some(Queue { records, dropped }) = take() else {
        return Ok(());
    };
    let mut outcome = Ok(());
    if dropped > 0 {
        let message = format!("{dropped} older log records were dropped");
        outcome = python
            .pitstop
            .bind(py)
            .call_method1("warning", (message,))
            .map(drop);
    }
    for record in records {
        let handed = python.hand_over(py, &record);
        outcome = outcome.and(handed);
    }
    outcome
}

/// What waits; `None` if another thread is at the queue this very moment, or was when the process
/// forked: it is left for the next time, since a thread that holds the GIL waits for no lock.
fn take() -> Option<Queue> {
    let mut queue = match QUEUE.try_lock() {
        Ok(queue) => queue,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    WAITING.store(false, Ordering::Release);
    Some(queue.take())
}

/// The parts of Python's `logging`.
struct PythonLogging {
    get_logger: Py<PyAny>,
    /// The logger `pitstop`.
    pitstop: Py<PyAny>,
}

impl PythonLogging {
    fn get(py: Python<'_>) -> PyResult<&'static PythonLogging> {
        static LOGGING: PyOnceLock<PythonLogging> = PyOnceLock::new();
        LOGGING.get_or_try_init(py, || {
            let get_logger = py.import("logging")?.getattr("getLogger")?;
            let pitstop = get_logger.call1(("pitstop",))?.unbind();
            Ok(PythonLogging {
                get_logger: get_logger.unbind(),
                pitstop,
            })
        })
    }

    /// The least severe level that is worth queueing.
    fn wanted(&self, py: Python<'_>) -> PyResult<LevelFilter> {
        let pitstop = self.pitstop.bind(py);
        let mut wanted = LevelFilter::Warn;
        for level in [Level::Info, Level::Debug, Level::Trace] {
            if !is_enabled(pitstop, level)? {
                break;
            }
            wanted = level.to_level_filter();
        }
        Ok(wanted)
    }

    fn hand_over(&self, py: Python<'_>, record: &Record) -> PyResult<()> {
        let logger = self.get_logger.bind(py).call1((&record.target,))?;
        if !is_enabled(&logger, record.level)? {
            return Ok(());
        }
        let (file, line) = (
            record.file.unwrap_or("(unknown file)"),
            record.line.unwrap_or(0),
        );
        let arguments = PyTuple::empty(py);
        let made = logger.call_method1(
            "makeRecord",
            (
                &record.target,
                number(record.level),
                file,
                line,
                &record.message,
                arguments,
                py.None(),
            ),
        )?;
        backdate(&made, record.time)?;
        if let Some(name) = &record.thread {
            made.setattr("threadName", name)?;
        }
        logger.call_method1("handle", (made,))?;
        Ok(())
    }
}

/// Gives a record the time at which it was logged instead of the one at which it was handed over.
fn backdate(made: &Bound<'_, PyAny>, time: SystemTime) -> PyResult<()> {
    let Ok(since) = time.duration_since(UNIX_EPOCH) else {
        return Ok(());
    };
    let created: f64 = made.getattr("created")?.extract()?;
    let relative: f64 = made.getattr("relativeCreated")?.extract()?;
    let late = created - since.as_secs_f64();
    made.setattr("created", since.as_secs_f64())?;
    made.setattr("msecs", f64::from(since.subsec_millis()))?;
    made.setattr("relativeCreated", relative - late * 1000.0)
}

fn is_enabled(logger: &Bound<'_, PyAny>, level: Level) -> PyResult<bool> {
    let method = pyo3::intern!(logger.py(), "isEnabledFor");
    logger.call_method1(method, (number(level),))?.extract()
}

/// The level as Python counts.
fn number(level: Level) -> u8 {
    match level {
        Level::Error => 40,
        Level::Warn => 30,
        Level::Info => 20,
        Level::Debug => 10,
        Level::Trace => 5,
    }
}
