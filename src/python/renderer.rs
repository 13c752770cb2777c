//! `Renderer`: shows a run while it trains, and lets a person stop or kill it.

mod killing;
mod lines;
mod stage;
mod tracking;
mod values;

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments::count;
use super::checkpointer::AsyncCheckpointer;
use super::crossing::crossing;
use super::interrupter::Interrupter;
use super::known::{text, type_name};
use super::leaving::leave;
use crate::renderer::{Course, Event, Goal, KILLING, Metric, Split};
use stage::{Setup, Stage};
use tracking::Track;
use values::Value;

pub(super) use stage::close_all;

/// Shows a run while it trains: metrics, progress, checkpoints; and lets a person stop or kill it.
///
/// In a terminal it takes the whole screen, until ``with`` is left: ``q`` opens a menu to stop or to kill, and what
/// is printed meanwhile, from C too, appears in a part of it, and in the terminal afterwards. Everywhere else it prints a
/// line now and then, in notebooks through ``sys.stdout``, as calls on the renderer come by. The calls of a
/// loop take microseconds, and none waits for the terminal or a disk.
///
/// To stop is to ask: the interrupter is stopped, and the loop ends itself where it looks at ``should_stop()``. To kill
/// raises ``TrainingKilled``, at the next call on the renderer or in the middle of whatever the thread does
/// that entered it; in another thread than the main one once that runs Python code again. Once killed, every call
/// raises. Ctrl-C stops at first and kills then; without an interrupter, and without a screen, it raises
/// ``KeyboardInterrupt`` as ever.
///
/// Where the run begins is told to the screen with the first value or pass. Use it as a context manager, or call
/// ``start`` and ``close``. A script that ends without ``close`` gets its terminal back all the same. In a forked
/// child, such as a worker of a data loader, all calls do nothing.
///
/// Args:
///     epochs: Passes over the training data in all, if that is known.
///     steps: Steps in all, if that is known; then progress and time left are measured by them.
///     epoch: Epochs that are done before, by a run that is resumed.
///     step: Steps that are done before.
///     interrupter: Stopped when a person asks the run to stop. Default: one of its own, ``screen.interrupter``.
///     checkpointer: An ``AsyncCheckpointer`` whose saves are shown.
///     directory: Where the events are appended to ``events.jsonl``, for ``pitstop watch``, and so that the plots
///         of a resumed run begin where it began. Default: the directory of the checkpointer, if there is one.
///     persistent: Keep the screen when the run is over, until a person leaves it with ``q``. Not after an error.
///     plain: ``True`` prints lines, ``False`` insists on the screen, ``None`` takes what the terminal can do.
///
/// Raises:
///     CheckpointError: The checkpointer is closed, or of another process.
///     ValueError: More epochs or steps are done before than there are in all.
///
/// Example:
///     >>> with pitstop.Renderer(epochs=10, interrupter=interrupter, checkpointer=ckpt) as screen:
///     ...     for epoch in range(10):
///     ...         for batch in screen.track(loader, "train"):
///     ...             screen.log(loss=train_step(batch))
///     ...         for batch in screen.track(held_out, "valid"):
///     ...             screen.log(loss=evaluate(batch))
///     ...         ckpt.save(screen.step, state)
///     ...         if interrupter.should_stop():
///     ...             break
#[pyclass(frozen, weakref, name = "Renderer", module = "pitstop")]
pub(super) struct Renderer {
    stage: Arc<Stage>,
    interrupter: Py<Interrupter>,
}

#[pymethods]
impl Renderer {
    #[new]
    #[pyo3(
        signature = (*, epochs=None, steps=None, epoch=None, step=None, interrupter=None, checkpointer=None, directory=None, persistent=false, plain=None),
        text_signature = "(*, epochs=None, steps=None, epoch=0, step=0, interrupter=None, checkpointer=None, directory=None, persistent=False, plain=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        py: Python<'_>,
        epochs: Option<&Bound<'_, PyAny>>,
        steps: Option<&Bound<'_, PyAny>>,
        epoch: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
        interrupter: Option<Bound<'_, Interrupter>>,
        checkpointer: Option<&Bound<'_, AsyncCheckpointer>>,
        directory: Option<PathBuf>,
        persistent: bool,
        plain: Option<bool>,
    ) -> PyResult<Renderer> {
        crossing("Renderer", || {
            let (epochs, steps) = (counted(epochs, "epochs")?, counted(steps, "steps")?);
            let (epoch, step) = (counted(epoch, "epoch")?, counted(step, "step")?);
            let course = Course::new(epochs, steps, epoch.unwrap_or(0), step.unwrap_or(0));
            refuse("Renderer", course.why_not(epoch, step))?;
            let core = checkpointer
                .map(|checkpointer| checkpointer.get().enter_open(py))
                .transpose()?;
            let given = interrupter.is_some();
            let interrupter = match interrupter {
                Some(interrupter) => interrupter,
                None => py.get_type::<Interrupter>().call0()?.cast_into()?,
            };
            // The process may change its working directory later.
            let directory = directory.map(std::path::absolute).transpose()?;
            let setup = Setup {
                interrupter: interrupter.get().inner(),
                interrupter_is_given: given,
                directory: directory.or(core.map(|core| core.run.directory().to_owned())),
                monitor: core.map(|core| Arc::clone(&core.monitor)),
                persistent,
                plain,
            };
            Ok(Renderer {
                stage: Stage::new(setup, course),
                interrupter: interrupter.unbind(),
            })
        })
    }

    /// What is stopped when a person asks the run to stop: the interrupter that was given, or one of its own.
    #[getter]
    fn interrupter(&self, py: Python<'_>) -> Py<Interrupter> {
        self.interrupter.clone_ref(py)
    }

    /// Steps that are done, the one that is worked on included: 1 in the body of the first ``track(..., "train")``.
    ///
    /// Each item of training is a step. Setting it, here or by ``log(step=...)``, says that you count steps yourself;
    /// then nobody else does.
    #[getter]
    fn step(&self) -> u64 {
        self.stage.step()
    }

    #[setter]
    fn set_step(&self, step: &Bound<'_, PyAny>) -> PyResult<()> {
        let number = count(step, "step")?;
        self.stage
            .tell(step.py(), |course, tell| course.set_step(number, tell))
    }

    /// Opens the screen, unless ``with`` has, and says where the run begins: for a run that learns only then that it
    /// is resumed.
    ///
    /// Args:
    ///     epoch: Epochs that are done before; ``None``: as many as when it was made.
    ///     step: Steps that are done before; ``None``: as many as when it was made.
    ///
    /// Raises:
    ///     RuntimeError: It was closed, or ``end`` was called.
    ///     ValueError: There are fewer epochs or steps in all.
    ///     OSError: ``plain`` is ``False``, and the terminal cannot do it.
    ///
    /// Example:
    ///     >>> screen.start(step=ckpt.resume(into=state) or 0)
    #[pyo3(signature = (*, epoch=None, step=None))]
    fn start(
        &self,
        py: Python<'_>,
        epoch: Option<&Bound<'_, PyAny>>,
        step: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        crossing("Renderer.start", || {
            let (epoch, step) = (counted(epoch, "epoch")?, counted(step, "step")?);
            refuse("Renderer.start", self.stage.why_not(epoch, step))?;
            self.stage.open(py)?;
            self.stage
                .tell(py, |course, tell| course.start(epoch, step, tell))
        })
    }

    /// Hands out the items of an iterable, and shows how far that is.
    ///
    /// The pass ends with the loop, also by ``break`` or an exception. A pass may lie inside another, such as a
    /// validation in the middle of the training. Each pass over ``"train"`` is an epoch, which ends when the next one
    /// begins, or with the run; call ``epoch`` if yours are other ones. A run that was given ``steps``, and neither
    /// ``epochs`` nor ``epoch``, has none. No pass ends because somebody asked to stop: look at ``should_stop()``.
    ///
    /// Args:
    ///     iterable: Anything; passed over once.
    ///     split: ``"train"``, ``"valid"`` or ``"test"``. What is logged inside counts as that.
    ///     total: Items in all. Default: ``done`` and the length of the iterable, if it has one.
    ///     done: Items that are done before, in a run that was resumed in the middle of a pass.
    ///
    /// Returns:
    ///     An iterator over the items. The items of training are the steps of the run.
    ///
    /// Raises:
    ///     ValueError: ``split`` is something else.
    ///     TrainingKilled: From the iterator, if the run was killed.
    ///
    /// Example:
    ///     >>> for step in screen.track(range(start + 1, 10_001)):
    ///     ...     screen.log(loss=train_step())
    ///     ...     if step % 500 == 0:
    ///     ...         for batch in screen.track(held_out, "valid"):
    ///     ...             screen.log(loss=evaluate(batch))
    #[pyo3(
        signature = (iterable, split="train", *, total=None, done=None),
        text_signature = "($self, iterable, split='train', *, total=None, done=0)"
    )]
    fn track(
        &self,
        iterable: &Bound<'_, PyAny>,
        split: &str,
        total: Option<&Bound<'_, PyAny>>,
        done: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Track> {
        let (total, done) = (counted(total, "total")?, counted(done, "done")?);
        Ok(Track::new(
            &self.stage,
            iterable,
            parse_split(split)?,
            done.unwrap_or(0),
            total,
        ))
    }

    /// Shows values of metrics. Takes some microseconds; a tensor on a GPU is waited for.
    ///
    /// Values of one metric that belong to the same step, as those of the batches of a validation, are shown as one:
    /// their mean. Where nothing else counts steps, neither ``track`` nor ``step``, each call is one, unless it is of
    /// another split than ``"train"``.
    ///
    /// Args:
    ///     values: A mapping, for metrics whose names are no keywords.
    ///     split: What they were measured on; by default what ``track`` passes over, else ``"train"``.
    ///     step: Steps that are done. Default: as ``screen.step`` counts.
    ///     metrics: By name: numbers, ``bool``, scalars of NumPy, torch and JAX and their arrays with a single
    ///         element, which are plotted; or text.
    ///
    /// Raises:
    ///     TypeError: A value is none of these; the message names the metric.
    ///     RuntimeError: The renderer is not open, or ``end`` was called. Nothing is lost silently.
    ///     TrainingKilled: The run was killed.
    ///
    /// Example:
    ///     >>> screen.log(loss=loss, lr=3e-4)
    ///     >>> screen.log({"accuracy/top 5": 0.98}, split="valid")
    #[pyo3(signature = (values=None, /, *, split=None, step=None, **metrics))]
    fn log<'py>(
        &self,
        py: Python<'py>,
        values: Option<&Bound<'py, PyAny>>,
        split: Option<&str>,
        step: Option<&Bound<'py, PyAny>>,
        metrics: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        crossing("Renderer.log", || {
            let split = split.map(parse_split).transpose()?;
            let step = counted(step, "step")?;
            let values = values::read(values, metrics)?;
            self.stage.tell(py, |course, tell| {
                match step {
                    Some(step) => course.set_step(step, tell),
                    None => course.logged(split, tell),
                }
                let (split, step) = (split.unwrap_or(course.split()), course.step());
                for (name, value) in values {
                    tell(measured(name, value, split, step));
                }
            })
        })
    }

    /// Shows a text, such as the learning-rate phase or a sample of what was generated.
    ///
    /// Args:
    ///     name: What it is.
    ///     text: Shown until the next one of that name.
    ///     split: As for ``log``.
    #[pyo3(signature = (name, text, *, split=None))]
    fn text(
        &self,
        py: Python<'_>,
        name: String,
        text: String,
        split: Option<&str>,
    ) -> PyResult<()> {
        let split = split.map(parse_split).transpose()?;
        self.stage.tell(py, |course, tell| {
            course.begin(tell);
            let split = split.unwrap_or(course.split());
            tell(Event::Text { split, name, text });
        })
    }

    /// Says more of a metric than its name. Metrics need not be registered.
    ///
    /// Args:
    ///     name: Its name.
    ///     unit: Shown behind its values, such as ``"%"``.
    ///     goal: ``"min"`` or ``"max"``: which value is the best one.
    ///
    /// Raises:
    ///     ValueError: ``goal`` is something else.
    #[pyo3(signature = (name, *, unit=String::new(), goal=None), text_signature = "($self, name, *, unit='', goal=None)")]
    fn register(
        &self,
        py: Python<'_>,
        name: String,
        unit: String,
        goal: Option<&str>,
    ) -> PyResult<()> {
        let goal = goal.map(parse_goal).transpose()?;
        let metric = Metric { name, unit, goal };
        self.stage.tell(py, |_, tell| tell(Event::Register(metric)))
    }

    /// Begins a pass over some of the data, for a loop that does without ``track``.
    ///
    /// Args:
    ///     split: ``"train"``, ``"valid"`` or ``"test"``.
    ///     total: Items in all, if that is known.
    ///     done: Items that are done before.
    #[pyo3(
        signature = (split, *, total=None, done=None),
        text_signature = "($self, split, *, total=None, done=0)"
    )]
    fn split_start(
        &self,
        py: Python<'_>,
        split: &str,
        total: Option<&Bound<'_, PyAny>>,
        done: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let split = parse_split(split)?;
        let (total, done) = (counted(total, "total")?, counted(done, "done")?);
        self.stage.tell(py, |course, tell| {
            course.open(split, done.unwrap_or(0), total, tell);
        })
    }

    /// Says how far the pass is.
    ///
    /// Args:
    ///     done: Items of it that are done.
    ///     step: Steps of the run that are done. Default: those of training are its items.
    #[pyo3(signature = (done, step=None))]
    fn progress(&self, done: &Bound<'_, PyAny>, step: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let py = done.py();
        let (done, step) = (count(done, "done")?, counted(step, "step")?);
        self.stage
            .tell(py, |course, tell| course.progress(done, step, tell))
    }

    /// Ends the pass.
    fn split_end(&self, py: Python<'_>) -> PyResult<()> {
        self.stage
            .tell(py, |course, tell| course.close_innermost(tell))
    }

    /// Says how many epochs are done. From then on nobody else counts them.
    ///
    /// Args:
    ///     epoch: So many.
    fn epoch(&self, epoch: &Bound<'_, PyAny>) -> PyResult<()> {
        let number = count(epoch, "epoch")?;
        self.stage
            .tell(epoch.py(), |course, tell| course.set_epoch(number, tell))
    }

    /// Says that something happened, such as a skipped step. Events of one name are counted.
    ///
    /// Args:
    ///     name: What it is counted under.
    ///     text: What happened, if the name does not say it all.
    #[pyo3(signature = (name, text=String::new()), text_signature = "($self, name, text='')")]
    fn event(&self, py: Python<'_>, name: String, text: String) -> PyResult<()> {
        self.stage.tell(py, |course, tell| {
            course.begin(tell);
            tell(Event::Named {
                name,
                text,
                count: 1,
            });
        })
    }

    /// Says that the run has ended well, with some last words. Unless it is persistent, that closes the screen. Only
    /// ``close`` may follow, or leaving ``with``, and ``end`` without a summary, which does nothing.
    ///
    /// Args:
    ///     summary: A mapping from names to values, printed with the last, lowest and highest values of the metrics.
    ///
    /// Raises:
    ///     RuntimeError: It was called before, and there is a summary.
    #[pyo3(signature = (summary=None))]
    fn end(&self, py: Python<'_>, summary: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let summary = summary.map(values::last_words).transpose()?;
        self.stage.end(py, summary.unwrap_or_default())
    }

    /// Ends the run, unless that was said, and gives the terminal back; if the screen is persistent, once a person
    /// has left it, or Ctrl-C. May be called again.
    ///
    /// Raises:
    ///     TrainingKilled: The run was killed a moment ago.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        crossing("Renderer.close", || self.stage.close(py, None))
    }

    /// Opens the screen, and returns the renderer itself.
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        crossing("Renderer.__enter__", || slf.get().stage.open(slf.py()))?;
        Ok(slf)
    }

    /// Closes it. An exception on its way out goes on, and is told to the screen; what goes wrong in closing is added
    /// to it as a note.
    #[pyo3(signature = (exc_type, exc, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (exc_type, traceback);
        crossing("Renderer.__exit__", || {
            leave(exc, self.stage.close(py, describe(exc)?))
        })
    }

    fn __repr__(&self) -> String {
        let (phase, step) = (self.stage.phase(), self.stage.step());
        format!("<pitstop.Renderer: {phase}, step {step}>")
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        Python::attach(|py| self.stage.abandon(py));
    }
}

fn counted(number: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Option<u64>> {
    number.map(|number| count(number, what)).transpose()
}

/// The error that says why, if there is a reason.
fn refuse(place: &str, why: Option<String>) -> PyResult<()> {
    match why {
        Some(why) => Err(PyValueError::new_err(format!("pitstop.{place}: {why}"))),
        None => Ok(()),
    }
}

fn parse_split(split: &str) -> PyResult<Split> {
    let known = Split::ALL.into_iter().find(|known| known.name() == split);
    known.ok_or_else(|| {
        let why = format!("split must be \"train\", \"valid\" or \"test\", not {split:?}");
        PyValueError::new_err(why)
    })
}

fn parse_goal(goal: &str) -> PyResult<Goal> {
    match goal {
        "min" => Ok(Goal::Min),
        "max" => Ok(Goal::Max),
        other => {
            let why = format!("goal must be \"min\" or \"max\", not {other:?}");
            Err(PyValueError::new_err(why))
        }
    }
}

fn measured(name: String, value: Value, split: Split, step: u64) -> Event {
    match value {
        Value::Number(value) => Event::Numeric {
            split,
            name,
            value,
            step,
        },
        Value::Text(text) => Event::Text { split, name, text },
    }
}

/// What an exception says in a line; `None` if there is none, or if the run ended well all the same.
fn describe(exception: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if exception.is_none() {
        return Ok(None);
    }
    if exception.is_instance_of::<PySystemExit>() {
        let code = exception.getattr("code")?;
        if code.is_none() || code.eq(0)? {
            return Ok(None);
        }
    }
    let says = text(exception).unwrap_or_default();
    let says = says.trim().lines().next().unwrap_or_default();
    Ok(Some(match says {
        KILLING => KILLING.to_owned(),
        "" => type_name(exception),
        says => format!("{}: {says}", type_name(exception)),
    }))
}
