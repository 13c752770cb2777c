//! The renderer that shows a run, on a thread of its own.
// SIGNATURES for everybody; the owner of this file fills them in.

use std::path::PathBuf;

use super::checkpoints::Checkpoints;
use super::event::Event;
use crate::checkpointer::Interrupter;

/// What a [`Screen`] is given.
#[derive(Default)]
pub struct ScreenOptions {
    /// Stopped when a person asks the run to stop.
    pub interrupter: Interrupter,
    /// Where `events.jsonl` is kept: the directory of the run. `None`: nowhere.
    pub directory: Option<PathBuf>,
    /// Says how checkpoints stand; asked about ten times a second, on the thread of the screen.
    pub checkpoints: Option<Box<dyn FnMut() -> Checkpoints + Send>>,
    /// Reaches a training that makes no call for long; called once, from the thread of the screen, when it is killed.
    pub on_kill: Option<Box<dyn Fn() + Send + Sync>>,
    /// Keep the screen after the run is over, until a person leaves it.
    pub persistent: bool,
}

/// Shows a run.
pub struct Screen { /* sender: mpsc::Sender<(f64, Event)>, control: Arc<Control>, thread: Option<JoinHandle<()>>, pid */ }

impl Screen {
    /// One line at a time, to standard error(?) / stdout.
    pub fn plain(options: ScreenOptions) -> Screen;
    /// The whole terminal.
    #[cfg(feature = "tui")]
    pub fn terminal(options: ScreenOptions) -> std::io::Result<Screen>;
    /// Any display, events from the channel (crate: used by the two above, by tests, and by `watch`)
    pub(crate) fn with_display(options: ScreenOptions, display: Box<dyn Display>) -> Screen;
    /// Whether a person asked to kill the training; `event` panics then, callers from other languages use `send`.
    pub fn is_killed(&self) -> bool;
    /// As `event`, but never panics.
    pub fn send(&self, event: Event);
    /// Ends it: shows the last of it, keeps it if persistent until a person leaves, gives the terminal back. Idempotent; Drop does it too.
    pub fn close(&mut self);
}
