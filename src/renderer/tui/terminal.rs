//! The terminal: taken when a screen opens, given back when it closes, and drawn on and read from in between.

use std::env;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use rustix::process::{Signal, kill_current_process_group};

use super::hold::{self, ENTER, Hold, IN_THE_END, LEAVE};
use super::input::Input;
use super::log_tail::LogTail;
use super::output::{Canvas, Output, area};
use super::panic::Hook;
use super::{signals, stdio};

/// How often it is looked whether signals and modes are still as they were set.
const LOOK: Duration = Duration::from_secs(1);
/// So many bytes of what was printed are read at a time.
const PIECE: usize = 64 << 10;
/// What is further back than this is not read at all: the log shows the last lines.
const BEHIND: u64 = 256 << 10;
/// Of more bytes than this, which lie in memory, one need not wait for the end to see them. Where memory cannot be given
/// back, that would be of no use.
const ENOUGH: u64 = if cfg!(target_os = "linux") {
    16 << 20
} else {
    u64::MAX
};

/// The terminal, while a screen is up.
pub(super) struct Terminal {
    hold: Arc<Hold>,
    hook: Option<Hook>,
    input: Input,
    output: Output,
    canvas: Canvas,
    /// How much of what was printed has been read.
    read: u64,
    piece: Vec<u8>,
    looked: Instant,
    /// What was printed is being written out, on the person's screen.
    is_spilling: bool,
}

/// Whether a screen could be opened now: standard output is the terminal of this process, and knows how to move the
/// cursor; and keys go to this process.
fn is_possible() -> bool {
    let known = env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
    known && hold::is_in_foreground(rustix::stdio::stdout()).unwrap_or(false)
}

/// Whether this process is the first of those that train together on a machine, as `torchrun` and others number them;
/// or nobody has numbered it. They share a terminal, and it has room for one screen.
fn is_first_rank() -> bool {
    let rank = env::var("LOCAL_RANK").or_else(|_| env::var("RANK"));
    let rank: Option<u64> = rank.ok().and_then(|rank| rank.parse().ok());
    rank.is_none_or(|rank| rank == 0)
}

impl Terminal {
    /// Takes the terminal; with `capture` also what is printed on it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if there is none that can do it, or it is for another rank,
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if there is a screen in this process already, what the system
    /// says otherwise. Nothing is taken then.
    pub(super) fn open(capture: bool) -> io::Result<Terminal> {
        let unsupported = |why: &str| Err(io::Error::new(io::ErrorKind::Unsupported, why));
        // The hook of panics cannot be changed from a thread that panics.
        if !is_possible() || thread::panicking() {
            return unsupported("standard output is no terminal that can show the screen");
        }
        if capture && !is_first_rank() {
            return unsupported("the screen belongs to rank 0: see LOCAL_RANK or RANK");
        }
        let hold = Arc::new(Hold::new(capture)?);
        let canvas = Canvas::new(area(hold.size()?))?;
        hold::publish(&hold)?;
        // From here on, dropping it gives everything back.
        let mut terminal = Terminal {
            hook: Some(Hook::install()),
            hold,
            input: Input::default(),
            output: Output::default(),
            canvas,
            read: 0,
            piece: vec![0; PIECE],
            looked: Instant::now(),
            is_spilling: false,
        };
        signals::take();
        if let Some(capture) = terminal.hold.capture() {
            stdio::decide();
            capture.start()?;
        }
        terminal.take_screen()?;
        Ok(terminal)
    }

    fn take_screen(&mut self) -> io::Result<()> {
        self.output.clear();
        if self.hold.is_ours() {
            // Else a terminal takes the place of the cursor here for the one where the person has left it.
            self.output.push(LEAVE);
        }
        self.hold.take_screen()?;
        self.output.push(ENTER);
        self.canvas.forget();
        self.send().map(drop)
    }

    /// Whether it can be drawn on and read from just now; not in the background, nor when the process is about to be
    /// stopped. To be asked again and again: it takes the screen again when the process goes on.
    ///
    /// # Errors
    ///
    /// If the terminal is gone, or was given back since a thread panicked.
    pub(super) fn is_ready(&mut self) -> io::Result<bool> {
        if !self.hold.is_held() {
            // After a kill it stays as it is until the training has gone down, and closes it.
            return match &self.hook {
                Some(hook) if hook.has_killed() => Ok(false),
                _ => Err(io::Error::other("a panic has ended the screen")),
            };
        }
        let is_time = self.looked.elapsed() >= LOOK;
        if is_time {
            self.looked = Instant::now();
            signals::take();
        }
        if self.spill()? || !self.hold.is_in_foreground()? {
            return Ok(false);
        }
        // In this order: whoever leaves the screen says so before he changes the modes.
        if is_time && !self.hold.is_raw()? && self.hold.is_ours() {
            self.hold.want_anew();
        }
        if self.hold.take_wanted_anew() {
            self.take_screen()?;
        }
        Ok(self.hold.is_ours())
    }

    /// Leaves the screen for as long as it takes to write out what was printed, if that is much. Returns whether that
    /// goes on.
    fn spill(&mut self) -> io::Result<bool> {
        if !self.is_spilling {
            if self.hold.pending() <= ENOUGH {
                return Ok(false);
            }
            if self.hold.is_ours() {
                // While the terminal takes nothing it stays as it is.
                if !self.send()? {
                    return Ok(false);
                }
                self.output.push(LEAVE);
            }
            self.is_spilling = true;
        }
        if self.hold.is_ours() && !self.send()? {
            return Ok(true);
        }
        self.is_spilling = !self.hold.spill(self.read)?;
        if !self.is_spilling {
            self.hold.want_anew();
        }
        Ok(self.is_spilling)
    }

    /// What a person did since the last call. Keys by which a terminal suspends or ends what runs on it do so, and
    /// Ctrl-L has the screen taken anew.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub(super) fn events(&mut self) -> io::Result<Vec<Event>> {
        let read = || self.input.read(self.hold.terminal());
        let mut events = match signals::without_job_control(read) {
            // Just now it was.
            Err(_) if !self.hold.is_in_foreground()? => return Ok(Vec::new()),
            events => events?,
        };
        events.retain(|event| match signal_of(event) {
            None => true,
            Some(signal) => kill_current_process_group(signal).is_err(),
        });
        if events.iter().any(|event| control_of(event) == Some('l')) {
            self.hold.want_anew();
        }
        let area = area(self.hold.size()?);
        if area != self.canvas.area() {
            self.canvas = Canvas::new(area)?;
            events.push(Event::Resize(area.width, area.height));
        }
        Ok(events)
    }

    /// Adds to `log` what was printed since the last call, and returns whether there was anything.
    pub(super) fn follow(&mut self, log: &mut LogTail) -> io::Result<bool> {
        let Some(capture) = self.hold.capture() else {
            return Ok(false);
        };
        stdio::flush();
        let end = capture.len();
        if end < self.read {
            // Somebody has emptied it, such as a shell with `> /dev/stderr`.
            self.read = 0;
            self.hold.copy_anew();
        }
        if end - self.read > BEHIND {
            self.read = end - BEHIND;
            log.push(b"\n");
        }
        let count = capture.read_at(&mut self.piece, self.read)?;
        log.push(&self.piece[..count]);
        self.read += count as u64;
        Ok(count > 0)
    }

    /// Writes what the terminal did not take so far; returns whether that was all.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub(super) fn send(&mut self) -> io::Result<bool> {
        // A handler that brings the terminal back waits for one frame, not for the next.
        if self.hold.is_ours() {
            self.output.send(self.hold.terminal())
        } else {
            Ok(false)
        }
    }

    /// Shows a frame; leaves it out, and returns false, while the terminal takes nothing.
    ///
    /// # Errors
    ///
    /// If the terminal is gone.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<bool> {
        if !self.send()? {
            return Ok(false);
        }
        let frame = self.canvas.paint(draw)?;
        self.output.push(&frame);
        self.send()?;
        Ok(true)
    }

    /// Gives everything back, and prints `lines` last. What was taken is given back also after an error.
    ///
    /// # Errors
    ///
    /// If the terminal is gone, or has taken nothing for a minute.
    pub(super) fn close(&mut self, lines: &[String]) -> io::Result<()> {
        let Some(hook) = self.hook.take() else {
            return Ok(());
        };
        stdio::flush();
        self.hold.give_back(IN_THE_END);
        signals::leave();
        hook.remove();
        hold::withdraw(&self.hold);
        let glued = !lines.is_empty() && self.is_within_a_line();
        let lines = lines.iter().flat_map(|line| [line.as_str(), "\n"]);
        let text: String = glued.then_some("\n").into_iter().chain(lines).collect();
        let write = || self.hold.write(text.as_bytes(), IN_THE_END);
        Ok(signals::without_job_control(write)?)
    }

    /// How many columns it has, if it is still there.
    pub(super) fn columns(&self) -> Option<usize> {
        let size = self.hold.size().ok()?;
        Some(area(size).width.into())
    }

    /// Whether what was printed last is a line without its end: whatever comes next would stand behind it.
    fn is_within_a_line(&self) -> bool {
        let Some(capture) = self.hold.capture() else {
            return false;
        };
        let mut last = [0];
        let end = capture.len().saturating_sub(1);
        // Where there is nothing, or nothing any more, there are zeroes.
        capture.read_at(&mut last, end).is_ok() && !matches!(last, [b'\n' | 0])
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Whoever wants to know closes it.
        let _ = self.close(&[]);
    }
}

/// The signal that a terminal would make of a key, if it were not left to the screen; Ctrl-C is the screen's.
fn signal_of(event: &Event) -> Option<Signal> {
    match control_of(event)? {
        'z' => Some(Signal::TSTP),
        // Ctrl-\, as crossterm calls it.
        '4' => Some(Signal::QUIT),
        _ => None,
    }
}

/// The key that was pressed together with Ctrl.
fn control_of(event: &Event) -> Option<char> {
    match event {
        Event::Key(KeyEvent {
            code: KeyCode::Char(character),
            modifiers: KeyModifiers::CONTROL,
            ..
        }) => Some(*character),
        _ => None,
    }
}
