//! What shows a run: lines of text, or a screen.

use std::io;

use super::control::Request;
use super::run_state::RunState;

/// Shows a run. It lives on the thread of its [`Screen`](super::Screen), which calls it again and again.
pub(crate) trait Display: Send {
    /// Whether a person is in front of it, who leaves it; else it ends with the run.
    fn is_attended(&self) -> bool {
        true
    }

    /// What the person in front of it has asked for since the last call. Never waits.
    ///
    /// # Errors
    ///
    /// If the terminal is gone; the run goes on without a display.
    fn requests(&mut self, run: &RunState) -> io::Result<Vec<Request>>;

    /// Shows the run as it stands at `now`, in seconds since 1970 (UTC). Called at most every 100 ms. A terminal that
    /// takes nothing just now is left alone until the next call.
    ///
    /// # Errors
    ///
    /// As [`requests`](Self::requests).
    fn draw(&mut self, run: &RunState, now: f64) -> io::Result<()>;

    /// Shows the run for the last time, and gives back whatever it has taken. Called once, also after an error.
    ///
    /// # Errors
    ///
    /// As [`requests`](Self::requests); everything that can be given back is.
    fn close(&mut self, run: &RunState, now: f64) -> io::Result<()>;
}
