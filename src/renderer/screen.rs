//! The renderer that shows a run, on a thread of its own.

mod host;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use host::{Host, Message};

use super::Renderer;
use super::checkpoints::Checkpoints;
use super::control::{Control, KILLING};
use super::display::Display;
use super::event::Event;
use super::plain::Plain;
#[cfg(feature = "tui")]
use super::tui::{Role, Tui};
use crate::checkpointer::Interrupter;

/// So many events wait for a display or a disk that hangs. Of more, only those that matter for long are kept.
const BACKLOG: usize = 100_000;
/// How often somebody who waits for the end looks.
const MOMENT: Duration = Duration::from_millis(2);

/// What a [`Screen`] is given.
#[derive(Default)]
pub struct ScreenOptions {
    /// Stopped when a person asks the run to stop; shown when anybody else stops it. It is never reset.
    pub interrupter: Interrupter,
    /// Where `events.jsonl` is kept: the directory of the run, which is created if need be. `None`: nowhere, and then
    /// nobody can watch the run from elsewhere.
    pub directory: Option<PathBuf>,
    /// Says how checkpoints stand, such as [`Monitor::look`](super::Monitor::look). It is asked about ten times a
    /// second, on the thread of the screen.
    pub checkpoints: Option<Box<dyn FnMut() -> Checkpoints + Send>>,
    /// Reaches a training that makes no call for long. Called each time a person kills it, on the thread of the screen.
    pub on_kill: Option<Box<dyn Fn() + Send + Sync>>,
    /// Keep the screen after a run that ended well, until the person leaves it.
    pub persistent: bool,
}

/// Shows a run, on a thread of its own. Telling it something takes less than a microsecond, and waits for neither
/// the terminal nor the disk.
///
/// A kill by the person in front of it is a panic with [`KILLING`] in the next [`event`](Renderer::event). That
/// concerns this screen only. Dropping it closes it, and never panics. In a forked child it does nothing.
///
/// # Example
///
/// ```
/// use pitstop::Interrupter;
/// use pitstop::renderer::{Renderer, ScreenOptions, Split, default_renderer};
///
/// # let directory = tempfile::tempdir()?;
/// let interrupter = Interrupter::new();
/// let mut screen = default_renderer(ScreenOptions {
///     interrupter: interrupter.clone(),
///     directory: Some(directory.path().join("exp1")),
///     ..ScreenOptions::default()
/// });
/// screen.start_steps(Some(100), 0);
/// for step in 1..=100 {
///     screen.numeric(Split::Train, "loss", 1.0 / step as f64, step);
///     screen.progress(step, step);
///     if interrupter.should_stop() {
///         break;
///     }
/// }
/// screen.end(vec![("device".into(), "cpu".into())]);
/// screen.close();
/// assert!(directory.path().join("exp1/events.jsonl").exists());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Screen {
    /// `None` only while it is dropped.
    hosted: Option<Hosted>,
    /// The process that has its thread.
    pid: u32,
}

/// The thread, and what it is reached by.
struct Hosted {
    sender: Sender<Message>,
    control: Arc<Control>,
    /// Messages that the thread has not taken yet.
    backlog: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

/// The screen in the terminal, if this program was built with it (feature `tui`) and standard output is a terminal that
/// can do it; else plain lines on standard output.
pub fn default_renderer(options: ScreenOptions) -> Screen {
    match whole_terminal(false) {
        Some(display) => Screen::with_display(options, display),
        None => Screen::plain(options),
    }
}

/// What a watcher of a run in another process is shown.
pub(super) fn watching(plain: bool) -> Box<dyn Display> {
    let screen = if plain { None } else { whole_terminal(true) };
    screen.unwrap_or_else(|| Box::new(Plain::on_stdout()))
}

#[cfg(feature = "tui")]
fn whole_terminal(watching: bool) -> Option<Box<dyn Display>> {
    let role = if watching {
        Role::Watching
    } else {
        Role::Training
    };
    // A watcher prints nothing that could tear the screen.
    match Tui::open(role, !watching) {
        Ok(tui) => Some(Box::new(tui)),
        Err(error) => {
            if error.kind() != io::ErrorKind::Unsupported {
                log::warn!("plain lines instead of the screen: {error}");
            }
            None
        }
    }
}

#[cfg(not(feature = "tui"))]
fn whole_terminal(_: bool) -> Option<Box<dyn Display>> {
    None
}

/// Seconds since 1970 (UTC).
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}

impl Screen {
    /// Shows the run as lines on standard output, one now and then: for pipes, logs and CI.
    pub fn plain(options: ScreenOptions) -> Screen {
        Screen::with_display(options, Box::new(Plain::on_stdout()))
    }

    /// As [`plain`](Self::plain), to anywhere.
    pub fn plain_to(options: ScreenOptions, out: impl io::Write + Send + 'static) -> Screen {
        Screen::with_display(options, Box::new(Plain::new(out)))
    }

    /// Shows the run in the whole terminal.
    ///
    /// # Errors
    ///
    /// `Unsupported` if standard output is no terminal that can do it; `ResourceBusy` if another screen has it; else
    /// whatever the system reports.
    #[cfg(feature = "tui")]
    pub fn terminal(options: ScreenOptions) -> io::Result<Screen> {
        let tui = Tui::open(Role::Training, true)?;
        Ok(Screen::with_display(options, Box::new(tui)))
    }

    pub(crate) fn with_display(options: ScreenOptions, display: Box<dyn Display>) -> Screen {
        let control = Arc::new(Control::new(options.interrupter, options.on_kill));
        let backlog = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = mpsc::channel();
        let host = Host::new(receiver, &backlog, &control, display)
            .directory(options.directory)
            .checkpoints(options.checkpoints)
            .persistent(options.persistent);
        let thread = thread::Builder::new().name("pitstop-screen".to_owned());
        let thread = thread.spawn(move || host.run());
        let hosted = thread.map(|thread| Hosted {
            sender,
            control,
            backlog,
            thread,
        });
        let hosted = hosted.inspect_err(|error| log::error!("the run is not shown: {error}"));
        Screen {
            hosted: hosted.ok(),
            pid: std::process::id(),
        }
    }

    /// `None` in a forked child, where the thread does not exist.
    fn here(&self) -> Option<&Hosted> {
        let hosted = self.hosted.as_ref();
        hosted.filter(|_| self.pid == std::process::id())
    }

    /// Whether a person has killed the training. [`event`](Renderer::event) panics then; a caller that must not
    /// panic uses [`send`](Self::send), and looks here.
    pub fn is_killed(&self) -> bool {
        self.here().is_some_and(|hosted| hosted.control.is_killed())
    }

    /// As [`event`](Renderer::event), but never panics.
    pub fn send(&self, event: Event) {
        self.send_at(now(), event);
    }

    /// As [`send`](Self::send), of something that happened at `at`, in seconds since 1970 (UTC).
    pub(crate) fn send_at(&self, at: f64, event: Event) {
        let Some(hosted) = self.here() else { return };
        if hosted.backlog.fetch_add(1, Ordering::Relaxed) >= BACKLOG && is_passing(&event) {
            hosted.backlog.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        hosted.send(Message::Event(at, event));
    }

    /// Begins to close it, and does not wait for that. A run that has not said that it is over ends by this; `error` is
    /// what ended it, unless it ended well.
    pub fn finish(&self, error: Option<String>) {
        if let Some(hosted) = self.here() {
            hosted.send(Message::Finish(error));
            hosted.thread.thread().unpark();
        }
    }

    /// A screen that is kept after the run goes away, as if the person had left it.
    pub fn leave(&self) {
        if let Some(hosted) = self.here() {
            hosted.send(Message::Leave);
            hosted.thread.thread().unpark();
        }
    }

    /// Waits until it is closed and the terminal is given back; false if `timeout` ran out first. It closes only after
    /// [`finish`](Self::finish), and if it is persistent, only when the person leaves it.
    pub fn wait(&self, timeout: Duration) -> bool {
        let Some(hosted) = self.here() else {
            return true;
        };
        let deadline = Instant::now().checked_add(timeout);
        while !hosted.thread.is_finished() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            thread::sleep(MOMENT);
        }
        true
    }

    /// Closes it, and returns once the terminal is given back. A persistent one is closed by the person who leaves it.
    /// Closing again does nothing.
    pub fn close(&self) {
        self.finish(None);
        self.wait(Duration::MAX);
    }
}

impl Hosted {
    /// A thread that is gone needs to know nothing.
    fn send(&self, message: Message) {
        let _ = self.sender.send(message);
    }
}

/// Whether another event of its kind soon says the same anew.
fn is_passing(event: &Event) -> bool {
    matches!(
        event,
        Event::Numeric { .. }
            | Event::Text { .. }
            | Event::Progress { .. }
            | Event::Named { .. }
            | Event::Saving(_)
    )
}

impl Renderer for Screen {
    #[track_caller]
    fn event(&mut self, event: Event) {
        // A second panic would abort the process.
        if self.is_killed() && !thread::panicking() {
            std::panic::panic_any(KILLING);
        }
        self.send(event);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.here().is_none() {
            // In a forked child there is no thread to wait for, and what is shared with it may be locked for ever.
            std::mem::forget(self.hosted.take());
            return;
        }
        let error = if self.is_killed() {
            Some(KILLING.to_owned())
        } else {
            thread::panicking().then(|| "The training has panicked.".to_owned())
        };
        self.finish(error);
        self.wait(Duration::MAX);
    }
}

#[cfg(test)]
mod tests;
