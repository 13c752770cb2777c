//! Where everything is printed: text for people, or one JSON document.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::escape::{escape, escape_json};
use super::failure::Failure;
use super::progress::Progress;
use super::table::Table;
use crate::snapshot::Watch;

/// How often a question looks whether it still matters.
const MOMENT: Duration = Duration::from_millis(50);

/// What a text means, told by its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Heading,
    Good,
    Bad,
    Faint,
}

impl Style {
    /// Number of the colour or weight, as terminals know it.
    fn code(self) -> Option<u8> {
        match self {
            Style::Plain => None,
            Style::Heading => Some(1),
            Style::Good => Some(32),
            Style::Bad => Some(31),
            Style::Faint => Some(2),
        }
    }
}

/// Standard output and standard error. No text reaches them unescaped.
pub(super) struct Screen<'a> {
    out: BufWriter<Stdout>,
    json: bool,
    colours: bool,
    /// Characters in a line of the terminal; `None` if standard output is none.
    width: Option<usize>,
    stop: &'a AtomicBool,
}

impl<'a> Screen<'a> {
    pub(super) fn new(json: bool, stop: &'a AtomicBool) -> Screen<'a> {
        let terminal = io::stdout().is_terminal();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        Screen {
            out: BufWriter::new(io::stdout()),
            json,
            colours: terminal && !is_set("NO_COLOR") && !is_dumb(),
            width: width().filter(|_| terminal),
            stop,
        }
    }

    /// Prints for programs, not for people.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// A line for people.
    pub(super) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.styled(Style::Plain, text)
    }

    /// A line for people, in a colour.
    pub(super) fn styled(&mut self, style: Style, text: &str) -> Result<(), Failure> {
        let painted = self.paint(style, &escape(text));
        self.write(&painted)
    }

    /// A table for people.
    pub(super) fn table(&mut self, table: &Table) -> Result<(), Failure> {
        // Its cells are escaped already.
        let lines = table.lines(self.width, |style, text| self.paint(style, text));
        lines.iter().try_for_each(|line| self.write(line))
    }

    /// The document for programs.
    pub(super) fn document(&mut self, document: &Value) -> Result<(), Failure> {
        self.write(&escape_json(&format!("{document:#}")))
    }

    fn paint(&self, style: Style, text: &str) -> String {
        match style.code().filter(|_| self.colours) {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.to_owned(),
        }
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.out, "{line}").map_err(|error| Failure::of_output(&error))
    }

    /// Lets people see what was printed so far, and says whether they still look.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::of_output(&error))
    }

    /// A remark beside the output.
    pub(super) fn note(&mut self, text: &str) {
        // What was printed before comes before. That nobody hears a remark is no reason to stop.
        let _ = self.out.flush();
        let _ = writeln!(io::stderr(), "pitstop: {}", escape(text));
    }

    /// The last word, if there is one to say.
    pub(super) fn report(&mut self, failure: &Failure) {
        if let Some(message) = failure.message() {
            self.note(message);
        }
    }

    /// Does long work, of which people see how far it has come; `total` is in bytes.
    pub(super) fn watched<T>(
        &mut self,
        what: &str,
        total: Option<u64>,
        work: impl FnOnce(Watch<'_>) -> T,
    ) -> T {
        let _ = self.out.flush();
        let progress = Progress::new(&escape(what), total, !is_dumb());
        work(Watch {
            progress: &|bytes| progress.add(bytes),
            stop: self.stop,
        })
    }

    /// Set once it is to end.
    pub(super) fn stop(&self) -> &'a AtomicBool {
        self.stop
    }

    /// Whether it is to go on, with what takes no time to speak of.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        Ok(())
    }

    /// Asks a question that yes answers.
    pub(super) fn confirm(&mut self, question: &str) -> Result<(), Failure> {
        self.finish()?;
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            let message = format!("{question} There is no terminal to ask in: pass --yes");
            return Err(Failure::Usage(message));
        }
        let _ = write!(io::stderr(), "{} [y/N] ", escape(question));
        match self.answer()?.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(Failure::Failed("nothing was done".into())),
        }
    }

    /// A line from standard input, unless it is told to stop meanwhile.
    fn answer(&self) -> Result<String, Failure> {
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line).map(|_| line);
            // Whoever asked may have gone.
            let _ = sender.send(read);
        });
        loop {
            match receiver.recv_timeout(MOMENT) {
                Ok(line) => return Ok(line?),
                Err(_) if self.stop.load(Ordering::Relaxed) => return Err(Failure::Interrupted),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(String::new()),
            }
        }
    }
}

/// Characters in a line of the terminal, which need not know how many lines it has.
#[cfg(unix)]
fn width() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col;
    (columns > 0).then_some(usize::from(columns))
}

/// Characters in a line of the terminal.
#[cfg(not(unix))]
fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(usize::from(width.0))
}

/// A terminal that shows plain lines only.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}
