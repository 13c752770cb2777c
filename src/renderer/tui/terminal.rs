//! The terminal: taken when a screen opens, given back when it closes, and drawn on and read from in between.

use std::env;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use rustix::process::{Signal, kill_current_process_group};

use super::hold::{self, ENTER, Hold, IN_THE_END};
use super::input::Input;
use super::log_tail::LogTail;
use super::output::{Canvas, Output, area};
use super::panic::Hook;
use super::{signals, stdio};

/// How often it is looked whether signals are still taken.
const SIGNALS: Duration = Duration::from_secs(1);
/// So many bytes of what was printed are read at a time.
const PIECE: usize = 64 << 10;
/// What is further back than this is not read at all: the log shows the last lines.
const BEHIND: u64 = 256 << 10;

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
}

/// Whether a screen could be opened now: standard output is the terminal of this process, and knows how to move the
/// cursor; and keys go to this process.
fn is_possible() -> bool {
    let known = env::var_os("TERM").is_some_and(|name| !name.is_empty() && name != "dumb");
    known && hold::is_in_foreground(rustix::stdio::stdout()).unwrap_or(false)
}

impl Terminal {
    /// Takes the terminal; with `capture` also what is printed on it.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if there is none that can do it,
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if there is a screen in this process already, what the system
    /// says otherwise. Nothing is taken then.
    pub(super) fn open(capture: bool) -> io::Result<Terminal> {
        // The hook of panics cannot be changed from a thread that panics.
        if !is_possible() || thread::panicking() {
            let why = "standard output is no terminal that can show the screen";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
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
        self.hold.take_screen()?;
        self.output.clear();
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
        if self.looked.elapsed() >= SIGNALS {
            self.looked = Instant::now();
            signals::take();
        }
        if !self.hold.is_in_foreground()? {
            return Ok(false);
        }
        if self.hold.take_continued() {
            self.take_screen()?;
        }
        Ok(self.hold.is_ours())
    }

    /// What a person did since the last call. Keys by which a terminal suspends or ends what runs on it do so.
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
        if end - self.read.min(end) > BEHIND {
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
        let text: String = lines
            .iter()
            .flat_map(|line| [line.as_str(), "\n"])
            .collect();
        let write = || self.hold.write(text.as_bytes(), IN_THE_END);
        Ok(signals::without_job_control(write)?)
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
    let Event::Key(KeyEvent {
        code: KeyCode::Char(character),
        modifiers: KeyModifiers::CONTROL,
        ..
    }) = event
    else {
        return None;
    };
    match character {
        'z' => Some(Signal::TSTP),
        // Ctrl-\, as crossterm calls it.
        '4' => Some(Signal::QUIT),
        _ => None,
    }
}
