//! The screen in a terminal.
//!
//! Two halves: [`view`] draws a run and understands keys, and knows no terminal; the files beside this one take the
//! terminal, keep what is printed from tearing it, and give it back, however the process ends.

#[cfg(unix)]
mod capture;
#[cfg(unix)]
mod hold;
#[cfg(unix)]
mod input;
#[cfg_attr(not(unix), allow(dead_code, reason = "there is nothing to follow"))]
mod log_tail;
#[cfg(unix)]
mod output;
#[cfg(unix)]
mod panic;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod stdio;
#[cfg_attr(not(unix), path = "no_terminal.rs")]
mod terminal;
mod theme;
mod view;

use std::io;
use std::time::{Duration, Instant};

use super::control::Request;
use super::display::Display;
use super::plain::summary_lines;
use super::run_state::RunState;
use super::screen::now;
use log_tail::LogTail;
use terminal::Terminal;
use theme::Theme;
use view::View;

pub(crate) use view::Role;

/// What is printed is shown at most so often; what a person does, at once.
const REDRAW: Duration = Duration::from_millis(100);

/// Shows a run on the whole terminal.
pub(crate) struct Tui {
    terminal: Terminal,
    view: View,
    log: LogTail,
    /// Something is not on the screen yet of which whoever calls [`draw`](Display::draw) does not know.
    is_stale: bool,
    drawn: Instant,
}

impl Tui {
    /// Takes the terminal. With `capture`, what the process prints on it goes to the log of the screen, and is
    /// written to the terminal in the end.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if standard output is no terminal that can do it, or one in whose
    /// background the process is; [`ResourceBusy`](io::ErrorKind::ResourceBusy) if another one has it; and what the
    /// system says. Nothing is taken then.
    pub(crate) fn open(role: Role, capture: bool) -> io::Result<Tui> {
        Ok(Tui {
            terminal: Terminal::open(capture)?,
            view: View::new(Theme::from_environment(), role),
            log: LogTail::new(),
            is_stale: true,
            drawn: Instant::now(),
        })
    }
}

impl Display for Tui {
    fn requests(&mut self, run: &RunState) -> io::Result<Vec<Request>> {
        self.is_stale |= self.terminal.follow(&mut self.log)?;
        if !self.terminal.is_ready()? {
            return Ok(Vec::new());
        }
        let events = self.terminal.events()?;
        let asked = |event| self.view.on_event(event, run);
        let requests = events.iter().filter_map(asked).collect();
        self.is_stale |= !events.is_empty();
        if self.is_stale && (!events.is_empty() || self.drawn.elapsed() >= REDRAW) {
            self.draw(run, now())?;
        } else {
            self.terminal.send()?;
        }
        Ok(requests)
    }

    fn draw(&mut self, run: &RunState, now: f64) -> io::Result<()> {
        if !self.terminal.is_ready()? {
            return Ok(());
        }
        let (view, log) = (&mut self.view, &self.log);
        if self
            .terminal
            .draw(|frame| view.draw(frame, run, log, now))?
        {
            self.is_stale = false;
            self.drawn = Instant::now();
        }
        Ok(())
    }

    fn close(&mut self, run: &RunState, _now: f64) -> io::Result<()> {
        let lines = summary_lines(run, self.terminal.columns());
        self.terminal.close(&lines)
    }
}
