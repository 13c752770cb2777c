//! Shows a run while it trains: metrics, progress, checkpoints; and lets a person stop or kill it.
//!
//! A training loop tells a [`Renderer`] what happens, one [`Event`] at a time. [`Screen`] is the one that shows it, on
//! a thread of its own, as plain lines or (feature `tui`) as a screen in the terminal; [`default_renderer`] chooses.
//! The same events are appended to `events.jsonl` in the directory of the run, from which `pitstop watch` shows the run
//! in another process, and from which the history comes back when the run is resumed.
//!
//! `docs/screen.md` in the repository shows what is to be seen, and which keys there are.

mod checkpoints;
mod control;
#[cfg(any(feature = "python", test))]
mod course;
mod display;
mod event;
pub(crate) mod figures;
mod history;
mod journal;
mod monitor;
mod plain;
mod run_state;
mod screen;
#[cfg(feature = "tui")]
mod tui;
mod watch;

pub use checkpoints::{Checkpoints, Committed, InFlight, Kept};
pub use control::{KILLING, STOPPING};
#[cfg(feature = "python")]
pub(crate) use course::Course;
pub use event::{Event, Goal, Metric, Split};
pub use journal::EVENTS;
pub use monitor::{Monitor, Monitored};
#[cfg(feature = "python")]
pub(crate) use screen::now;
pub use screen::{Screen, ScreenOptions, default_renderer};
pub use watch::{ask_to_stop, watch};

/// Is told what happens in a run. [`event`](Self::event) is all there is to implement; the others are the events by
/// name.
///
/// ```
/// use pitstop::renderer::{Event, Renderer, Split};
///
/// /// Keeps what it is told.
/// #[derive(Default)]
/// struct Recorder(Vec<Event>);
///
/// impl Renderer for Recorder {
///     fn event(&mut self, event: Event) {
///         self.0.push(event);
///     }
/// }
///
/// let mut recorder = Recorder::default();
/// recorder.start(Some(3), 0, 0);
/// recorder.split_start(Split::Train, Some(100));
/// recorder.numeric(Split::Train, "loss", 0.7, 1);
/// recorder.progress(1, 1);
/// assert_eq!(recorder.0.len(), 4);
/// ```
pub trait Renderer: Send {
    /// Something happened.
    ///
    /// # Panics
    ///
    /// [`Screen`] panics with [`KILLING`] once a person has asked for it.
    fn event(&mut self, event: Event);

    /// The run begins, or goes on after `epoch` of `epochs` epochs, and `step` steps.
    fn start(&mut self, epochs: Option<u64>, epoch: u64, step: u64) {
        self.event(Event::Start {
            epochs,
            steps: None,
            epoch,
            step,
        });
    }

    /// A run without epochs begins, or goes on after `step` of `steps` steps.
    fn start_steps(&mut self, steps: Option<u64>, step: u64) {
        self.event(Event::Start {
            epochs: None,
            steps,
            epoch: 0,
            step,
        });
    }

    /// Says more of a metric than its name.
    fn register(&mut self, metric: Metric) {
        self.event(Event::Register(metric));
    }

    /// A value that can be plotted, measured after `step` steps.
    fn numeric(&mut self, split: Split, name: &str, value: f64, step: u64) {
        self.event(Event::Numeric {
            split,
            name: name.to_owned(),
            value,
            step,
        });
    }

    /// A value that is a text.
    fn text(&mut self, split: Split, name: &str, text: &str) {
        self.event(Event::Text {
            split,
            name: name.to_owned(),
            text: text.to_owned(),
        });
    }

    /// A pass over some of the data begins; `total` is its items, such as batches.
    fn split_start(&mut self, split: Split, total: Option<u64>) {
        self.event(Event::SplitStart {
            split,
            done: 0,
            total,
        });
    }

    /// `done` items of the pass are done, and `step` steps of the run.
    fn progress(&mut self, done: u64, step: u64) {
        self.event(Event::Progress { done, step });
    }

    /// The pass over the data is over.
    fn split_end(&mut self) {
        self.event(Event::SplitEnd);
    }

    /// `epoch` epochs are done.
    fn epoch(&mut self, epoch: u64) {
        self.event(Event::Epoch { epoch });
    }

    /// Something that has a name happened; `text` says more, or is empty.
    fn named(&mut self, name: &str, text: &str) {
        self.event(Event::Named {
            name: name.to_owned(),
            text: text.to_owned(),
            count: 1,
        });
    }

    /// The run was asked to stop. [`Screen`] finds out by itself, from its interrupter.
    fn stopping(&mut self, message: &str) {
        self.event(Event::Stopping {
            message: message.to_owned(),
        });
    }

    /// How checkpoints stand. [`Screen`] finds out by itself, if it was given a source.
    fn checkpoints(&mut self, checkpoints: Checkpoints) {
        self.event(Event::Checkpoints(checkpoints));
    }

    /// The run is over; `summary` is lines to read in the end, name and value. What is told afterwards may not be seen
    /// any more.
    fn end(&mut self, summary: Vec<(String, String)>) {
        self.event(Event::End {
            summary,
            error: None,
        });
    }
}
