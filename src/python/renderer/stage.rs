//! What a `Renderer` is made of, apart from its Python face: the screen, and where the run is.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::killing::{self, Handler, Kill};
use super::lines::{Lines, flush_standard_streams, stdout_is_of_the_process};
use crate::checkpointer::Interrupter;
use crate::python::waiting::{MOMENT, detach, until};
use crate::python::{errors, logging};
use crate::renderer::{
    Checkpoints, Course, Event, Monitor, Screen, ScreenOptions, default_renderer, now,
};

/// What a screen is opened with.
pub(super) struct Setup {
    /// What the screen stops.
    pub(super) interrupter: Interrupter,
    /// Whether the user gave it, and looks at it.
    pub(super) interrupter_is_given: bool,
    pub(super) directory: Option<PathBuf>,
    pub(super) monitor: Option<Arc<Monitor>>,
    pub(super) persistent: bool,
    /// Lines or a screen; `None`: what the terminal can do.
    pub(super) plain: Option<bool>,
}

/// The screen of one run, in the process that made it. In a forked child it does nothing.
pub(super) struct Stage {
    pid: u32,
    kill: Arc<Kill>,
    lines: Lines,
    /// Held by threads of Python only, and no Python runs under it.
    show: Mutex<Show>,
}

struct Show {
    phase: Phase,
    course: Course,
}

enum Phase {
    New(Setup),
    Open(Open),
    Closed,
}

/// A screen that is up.
struct Open {
    screen: Screen,
    /// Of SIGINT, to be removed in the end.
    handler: Option<Py<Handler>>,
    /// When it was opened, in seconds since 1970 (UTC).
    since: f64,
}

/// For so long a screen may take to give the terminal back after a signal has ended the wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// All that are open.
static OPEN: Mutex<Vec<Weak<Stage>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    pub(super) fn new(setup: Setup, course: Course) -> Arc<Stage> {
        Arc::new(Stage {
            pid: std::process::id(),
            kill: Kill::new(),
            lines: Lines::default(),
            show: Mutex::new(Show {
                phase: Phase::New(setup),
                course,
            }),
        })
    }

    /// Whether this is the process that made it.
    fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Takes the terminal, or begins to write lines. Does nothing if that was done.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if it was closed.
    pub(super) fn open(self: &Arc<Stage>, py: Python<'_>) -> PyResult<()> {
        if !self.is_here() {
            return Ok(());
        }
        let setup = {
            let mut show = lock(&self.show);
            match std::mem::replace(&mut show.phase, Phase::Closed) {
                Phase::New(setup) => setup,
                Phase::Closed => return Err(closed()),
                open @ Phase::Open(_) => {
                    show.phase = open;
                    return Ok(());
                }
            }
        };
        let since = now();
        flush_standard_streams(py)?;
        let handler = killing::reach(py, &self.kill, setup.given())?;
        match self.screen(py, setup) {
            Ok(screen) => {
                lock(&self.show).phase = Phase::Open(Open {
                    screen,
                    handler,
                    since,
                });
                let mut open = lock(&OPEN);
                open.retain(|stage| stage.strong_count() > 0);
                open.push(Arc::downgrade(self));
                drop(open);
                let logged = logging::drain(py);
                if logged.is_err() {
                    // Whoever fails to enter is never left.
                    self.close(py, None)?;
                }
                logged
            }
            Err(error) => {
                self.kill.end(py);
                handler.map_or(Ok(()), |handler| Handler::remove(handler.bind(py)))?;
                Err(error)
            }
        }
    }

    fn screen(&self, py: Python<'_>, setup: Setup) -> PyResult<Screen> {
        let ours = stdout_is_of_the_process(py)?;
        let (plain, lines) = (setup.plain, self.lines.clone());
        let options = setup.options(&self.kill);
        let opened = detach(py, || match plain {
            Some(false) => terminal(options),
            _ if !ours => Ok(Screen::plain_to(options, lines)),
            Some(true) => Ok(Screen::plain(options)),
            None => Ok(default_renderer(options)),
        });
        opened.map_err(|error| errors::os_error(py, &error))
    }

    /// Why no run can begin with so many epochs and steps done, if none can.
    pub(super) fn why_not(&self, epoch: Option<u64>, step: Option<u64>) -> Option<String> {
        if !self.is_here() {
            return None;
        }
        lock(&self.show).course.why_not(epoch, step)
    }

    /// Tells the screen something.
    ///
    /// # Errors
    ///
    /// `TrainingKilled`; `RuntimeError` if it is not open, or the run is over: nobody would see it.
    pub(super) fn tell<T: Default>(
        &self,
        py: Python<'_>,
        say: impl FnOnce(&mut Course, &mut dyn FnMut(Event)) -> T,
    ) -> PyResult<T> {
        self.act(py, |course, open| {
            if course.is_over() {
                return Err(over());
            }
            Ok(say(course, &mut |event| open.screen.send(event)))
        })
    }

    /// Says that the run has ended well. Once that was said, there is nothing to add to it.
    ///
    /// # Errors
    ///
    /// As [`tell`](Self::tell), but that the run is over is one only if there are words that would be lost.
    pub(super) fn end(&self, py: Python<'_>, summary: Vec<(String, String)>) -> PyResult<()> {
        self.act(py, |course, open| {
            let has_ended = open.end(course, true);
            if !has_ended && !summary.is_empty() {
                return Err(over());
            }
            if has_ended {
                let error = None;
                open.screen.send(Event::End { summary, error });
            }
            Ok(())
        })
    }

    /// What every call on the renderer does; nothing in a forked child.
    fn act<T: Default>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Course, &Open) -> PyResult<T>,
    ) -> PyResult<T> {
        if !self.is_here() {
            return Ok(T::default());
        }
        self.kill.check(py)?;
        let acted = {
            let mut show = lock(&self.show);
            let Show { phase, course } = &mut *show;
            match phase {
                Phase::Open(open) => act(course, open),
                Phase::New(_) => Err(not_started()),
                Phase::Closed => Err(closed()),
            }
        }?;
        self.lines.drain(py)?;
        Ok(acted)
    }

    /// Tells the screen that a pass is over, if it still listens. Calls no Python: an exception may be on its way.
    pub(super) fn close_pass(&self, id: u64) {
        if !self.is_here() {
            return;
        }
        let mut show = lock(&self.show);
        let Show { phase, course } = &mut *show;
        if let Phase::Open(open) = phase {
            course.close(id, false, &mut |event| open.screen.send(event));
        }
    }

    /// An item of a pass is handed out.
    pub(super) fn begin_item(&self, id: u64) {
        if self.is_here() {
            lock(&self.show).course.begin_item(id);
        }
    }

    pub(super) fn step(&self) -> u64 {
        if self.is_here() {
            lock(&self.show).course.step()
        } else {
            0
        }
    }

    /// `new`, `open` or `closed`.
    pub(super) fn phase(&self) -> &'static str {
        if !self.is_here() {
            return "of another process";
        }
        match lock(&self.show).phase {
            Phase::New(_) => "new",
            Phase::Open(_) => "open",
            Phase::Closed => "closed",
        }
    }

    /// Shows the end, waits for the person if the screen is persistent, and gives the terminal back. `error`: what ended
    /// the run, unless it ended well. Does nothing if it is not open.
    ///
    /// # Errors
    ///
    /// What a handler of a signal raises meanwhile, such as `KeyboardInterrupt`, after the terminal is back, or when
    /// it still takes nothing some seconds later;
    /// `TrainingKilled` if a kill came too late to be told otherwise, and the run ended well.
    pub(super) fn close(&self, py: Python<'_>, error: Option<String>) -> PyResult<()> {
        let well = error.is_none();
        let Some(Open {
            screen, handler, ..
        }) = self.take(well)
        else {
            return Ok(());
        };
        self.kill.end(py);
        let mut outcome = flush_standard_streams(py);
        screen.finish(error);
        let waited = until(py, || screen.wait(MOMENT).then_some(()));
        if waited.is_err() {
            screen.leave();
        }
        if waited.is_ok() || detach(py, || screen.wait(PATIENCE)) {
            detach(py, || drop(screen));
        } else {
            // A pipe that nobody reads holds its thread up, maybe for ever.
            std::mem::forget(screen);
        }
        outcome = outcome.and(waited);
        let removed = handler.map_or(Ok(()), |handler| Handler::remove(handler.bind(py)));
        outcome = outcome.and(removed);
        outcome = outcome.and(self.lines.drain(py)).and(logging::drain(py));
        if outcome.is_ok() && well && self.kill.is_unheard() {
            return Err(self.kill.raised(py));
        }
        outcome
    }

    /// Closes it where no Python may run, and nobody waits for a person.
    pub(super) fn abandon(&self, py: Python<'_>) {
        if let Some(Open { screen, .. }) = self.take(true) {
            self.kill.end_quietly();
            screen.finish(None);
            screen.leave();
            detach(py, || drop(screen));
        }
    }

    /// Takes the screen, with all told that the run is; from now on it is closed. `None` if it is not open.
    fn take(&self, well: bool) -> Option<Open> {
        if !self.is_here() {
            return None;
        }
        let mut show = lock(&self.show);
        match std::mem::replace(&mut show.phase, Phase::Closed) {
            Phase::Open(open) => {
                open.end(&mut show.course, well);
                Some(open)
            }
            other => {
                show.phase = other;
                None
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.is_here() {
            // In a forked child its thread does not exist, and the terminal is the parent's.
            let show = self.show.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget(std::mem::replace(&mut show.phase, Phase::Closed));
        }
    }
}

impl Open {
    /// Says that the run is over, unless that was said; returns whether it was not. A run that has told nothing so far
    /// began when the screen was opened.
    fn end(&self, course: &mut Course, well: bool) -> bool {
        course.end(well, &mut |event| match event {
            Event::Start { .. } => self.screen.send_at(self.since, event),
            event => self.screen.send(event),
        })
    }
}

impl Setup {
    fn given(&self) -> Option<Interrupter> {
        self.interrupter_is_given.then(|| self.interrupter.clone())
    }

    fn options(self, kill: &Arc<Kill>) -> ScreenOptions {
        let kill = Arc::clone(kill);
        ScreenOptions {
            interrupter: self.interrupter,
            directory: self.directory,
            checkpoints: self.monitor.map(source),
            on_kill: Some(Box::new(move || kill.ask())),
            persistent: self.persistent,
        }
    }
}

fn source(monitor: Arc<Monitor>) -> Box<dyn FnMut() -> Checkpoints + Send> {
    Box::new(move || monitor.look())
}

#[cfg(feature = "tui")]
fn terminal(options: ScreenOptions) -> std::io::Result<Screen> {
    Screen::terminal(options)
}

#[cfg(not(feature = "tui"))]
fn terminal(_options: ScreenOptions) -> std::io::Result<Screen> {
    let why = "this pitstop was built without the screen (feature `tui`)";
    Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why))
}

fn not_started() -> PyErr {
    PyRuntimeError::new_err("the renderer is not open: use it in `with`, or call start() first")
}

fn over() -> PyErr {
    let why = "the run is over: end() was called. Tell the renderer everything before that, and make another one for \
               another run";
    PyRuntimeError::new_err(why)
}

fn closed() -> PyErr {
    PyRuntimeError::new_err("the renderer is closed; each run needs one of its own")
}

/// As the interpreter ends: gives back the terminal that a script has left to the screen.
pub(in crate::python) fn close_all(py: Python<'_>) -> PyResult<()> {
    let open: Vec<Arc<Stage>> = lock(&OPEN).iter().filter_map(Weak::upgrade).collect();
    if open.is_empty() {
        return Ok(());
    }
    // What the interpreter has printed last, if that is what ends it.
    let last = py.import("sys")?.getattr_opt("last_value")?;
    let error = last
        .map(|error| super::describe(&error))
        .transpose()?
        .flatten();
    let closed = open.iter().map(|stage| stage.close(py, error.clone()));
    // Of a kill that comes now there is nobody to tell: all is over.
    closed
        .filter(|closed| !is_kill(py, closed))
        .fold(Ok(()), PyResult::and)
}

fn is_kill(py: Python<'_>, closed: &PyResult<()>) -> bool {
    closed
        .as_ref()
        .is_err_and(|error| killing::is_kill(py, error))
}
