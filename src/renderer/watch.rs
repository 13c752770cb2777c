//! Shows a run of another process from its `events.jsonl`, while it goes on and when it is over.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::control::Request;
use super::display::Display;
use super::figures::time;
use super::journal::{self, EVENTS, Reader};
use super::run_state::RunState;
use super::screen::{self, now};

/// How often the person in front of the display is listened to.
const PAUSE: Duration = Duration::from_millis(25);
/// How often the file is looked at, and the display drawn: more often than either changes.
const LOOK: Duration = Duration::from_millis(100);
/// Clocks on the display go on when nothing happens.
const IDLE: Duration = Duration::from_secs(1);
/// A run that goes on touches its events every ten seconds, however long its steps take. After so long a silence, in
/// seconds, a person is told, and nobody is taken to hear a request.
const SILENCE: f64 = 60.0;
/// After so long a silence nobody waits for news any more who is not there to see that none come; seconds. Until then
/// the run may be resumed.
const GRACE: f64 = 300.0;
/// A run that ends while it saves tells a moment later what became of that; seconds, since its last sign of life.
const LAST_WORD: f64 = 30.0;
/// A pause that takes so much longer than it should is none of the run; seconds.
const ASLEEP: f64 = 1.0;
/// So long a request may take to be heard: a machine on NFS relies for up to a minute on what it knows of a directory.
const HEARD: Duration = Duration::from_secs(90);

/// Shows the run in `directory`, which goes on in another process, is over, or is yet to begin. Only reads there;
/// but the person in front of it may ask the run to stop, as [`ask_to_stop`] does.
///
/// As a screen it stays until the person leaves it; as plain lines, which it is where [`default_renderer`] takes
/// those, and always with `plain`, until the run is over, or has shown no sign of life for five minutes. Blocks until
/// then, or until `stop` is set.
///
/// ```
/// use pitstop::renderer::{Renderer, Screen, ScreenOptions, watch};
/// use std::sync::atomic::AtomicBool;
///
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let options = || ScreenOptions { directory: Some(directory.to_owned()), ..ScreenOptions::default() };
/// let mut screen = Screen::plain(options());
/// screen.start(Some(1), 0, 0);
/// screen.end(Vec::new());
/// screen.close();
/// // In another process, or later.
/// watch(directory, true, &AtomicBool::new(false))?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// [`default_renderer`]: super::default_renderer
///
/// # Errors
///
/// `Interrupted` if `stop` was set; `TimedOut` if the run shows no sign of life, and has not said that it is over;
/// else if the events cannot be read, or the display is gone: `BrokenPipe` if nobody reads the lines any more.
pub fn watch(directory: impl AsRef<Path>, plain: bool, stop: &AtomicBool) -> io::Result<()> {
    let mut watcher = Watcher::new(directory.as_ref())?;
    watcher.read(now())?;
    let mut display = screen::watching(plain);
    let shown = watcher.show(&mut *display, stop);
    // Also after an error: what the display has taken is given back.
    let closed = display.close(&watcher.run, now());
    shown.and(closed)
}

/// Asks the run in `directory`, in whatever process it goes on, to stop soon, as a person at its own screen would, and
/// blocks until it has heard that: for a second or so, on file systems of other machines for up to a minute, or until
/// `stop` is set. The run stops its interrupter with [`STOPPING`](super::STOPPING).
///
/// # Errors
///
/// `InvalidInput` if nobody would hear it, as far as the events of the run tell: it is over, has shown no sign of life
/// for a minute, or has not begun; `TimedOut` if it has not heard it after 90 seconds; `Interrupted` if `stop` was
/// set; else whatever the disk reports. The run is not asked any more then.
pub fn ask_to_stop(directory: impl AsRef<Path>, stop: &AtomicBool) -> io::Result<()> {
    let mut watcher = Watcher::new(directory.as_ref())?;
    watcher.read(now())?;
    watcher.ask_to_stop(now())?;
    watcher.wait_until_heard(HEARD, stop)
}

/// What is known of a run from its events, and what it was asked for.
struct Watcher {
    directory: PathBuf,
    reader: Reader,
    run: RunState,
    /// When the events were written to or touched last, by the clock of whatever machine has them.
    modified: Option<SystemTime>,
    /// When the run showed a sign of life last, by the clock of this machine.
    alive: f64,
    /// What became of the last request to stop.
    answer: Option<String>,
    /// Why the events cannot be read just now.
    unreadable: Option<String>,
}

impl Watcher {
    fn new(directory: &Path) -> io::Result<Watcher> {
        Ok(Watcher {
            directory: directory.to_owned(),
            reader: Reader::open(directory).map_err(|error| unreadable(directory, &error))?,
            run: RunState::default(),
            modified: None,
            alive: 0.0,
            answer: None,
            unreadable: None,
        })
    }

    /// Takes in what has happened since the last time; says whether anything has.
    fn read(&mut self, now: f64) -> io::Result<bool> {
        let read = self.read_on();
        // Whether it can be read or not.
        self.note_signs_of_life(now);
        let mut is_new = read?;
        if self.reader.restarted() {
            // What another file has told does not count any more.
            self.run = RunState::default();
            is_new |= self.read_on()?;
        }
        Ok(is_new)
    }

    fn read_on(&mut self) -> io::Result<bool> {
        let Watcher { reader, run, .. } = self;
        let read = reader.read(|at, event| run.apply(at, event));
        read.map_err(|error| unreadable(&self.directory, &error))
    }

    fn note_signs_of_life(&mut self, now: f64) {
        let Some(modified) = self.reader.modified() else {
            return;
        };
        match self.modified.replace(modified) {
            Some(known) if known == modified => {}
            // Clocks of two machines differ; but what changes while it is looked at has changed just now.
            Some(_) => self.alive = now,
            None => {
                let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
                self.alive = since.as_secs_f64().min(now);
            }
        }
    }

    /// Until the display asks to leave: because a person does or, as lines, because the run is over.
    fn show(&mut self, display: &mut dyn Display, stop: &AtomicBool) -> io::Result<()> {
        let mut drawn = None;
        let mut changed = true;
        let mut looked = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if looked.elapsed() >= LOOK {
                changed |= self.look();
                looked = Instant::now();
            }
            if self.answer_requests(display)? {
                return Ok(());
            }
            if !display.is_attended() && self.has_died(now()) {
                return Err(self.death());
            }
            changed |= self.take_notice(now());
            if is_due(drawn, changed) {
                display.draw(&self.run, self.time(now()))?;
                (drawn, changed) = (Some(Instant::now()), false);
            }
            self.rest(PAUSE);
        }
    }

    /// Waits for so long. If it was much longer, the machine was asleep, or its clock was set: that is no silence.
    fn rest(&mut self, time: Duration) {
        let since = now();
        thread::sleep(time);
        self.forgive(now() - since);
    }

    fn forgive(&mut self, seconds: f64) {
        if seconds >= ASLEEP {
            self.alive += seconds;
        }
    }

    /// A file system that fails for a while, as those of other machines do, is no reason to stop looking.
    fn look(&mut self) -> bool {
        let read = self.read(now());
        self.unreadable = read.as_ref().err().map(ToString::to_string);
        read.unwrap_or(false)
    }

    /// Does what the person has asked for; says whether that is to leave.
    fn answer_requests(&mut self, display: &mut dyn Display) -> io::Result<bool> {
        for request in display.requests(&self.run)? {
            match request {
                Request::Stop => self.answer = Some(self.answer_to_stop()),
                Request::Leave => {
                    return Ok(display.is_attended() || !self.awaits_the_last_save(now()));
                }
                // The process of another is not a watcher's to kill; its display does not offer it.
                Request::Kill => {}
            }
        }
        Ok(false)
    }

    fn answer_to_stop(&self) -> String {
        match self.ask_to_stop(now()) {
            Ok(()) => "asked the run to stop".into(),
            Err(error) => format!("cannot ask the run to stop: {error}"),
        }
    }

    fn ask_to_stop(&self, now: f64) -> io::Result<()> {
        match self.deafness(now) {
            Some(why) => Err(why),
            None => journal::ask_to_stop(&self.directory),
        }
    }

    /// Why nobody would hear a request to stop, if that is known.
    fn deafness(&self, now: f64) -> Option<io::Error> {
        let why = if self.run.end.is_some() {
            "it is over".to_owned()
        } else if self.reader.modified().is_none() {
            format!("there is no {EVENTS} of a run that would hear it")
        } else if self.is_silent(now) {
            self.last_sign()
        } else {
            return None;
        };
        Some(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    /// Waits until the run has heard the request; one that it does not hear is taken back.
    fn wait_until_heard(&mut self, limit: Duration, stop: &AtomicBool) -> io::Result<()> {
        let asked = Instant::now();
        loop {
            let why = match self.has_heard() {
                Ok(true) => return Ok(()),
                Err(error) => Some(error),
                Ok(false) if stop.load(Ordering::Relaxed) => {
                    Some(io::ErrorKind::Interrupted.into())
                }
                Ok(false) if asked.elapsed() >= limit => Some(unheard(limit)),
                Ok(false) => self.deafness(now()),
            };
            if let Some(why) = why {
                let is_taken = !journal::take_stop_request(&self.directory);
                // It may have been heard just now.
                let is_heard = is_taken && self.has_heard().unwrap_or(false);
                return if is_heard { Ok(()) } else { Err(why) };
            }
            self.rest(LOOK);
        }
    }

    /// Whether the run has taken the request and says so. A run that was started meanwhile takes it too, but as one
    /// that was meant for an earlier process.
    fn has_heard(&mut self) -> io::Result<bool> {
        self.look();
        // In this order: a run that is over has taken the request, or never will.
        let is_taken = !journal::is_asked_to_stop(&self.directory)?;
        Ok(is_taken && (self.run.stopping.is_some() || self.run.end.is_some()))
    }

    /// Brings the notice up to date; says whether it has changed.
    fn take_notice(&mut self, now: f64) -> bool {
        let answer = self.answer.as_deref();
        let parts = [
            self.unreadable.clone(),
            self.silence(now),
            // Once the run has heard it, it says so itself.
            answer
                .filter(|_| self.run.stopping.is_none())
                .map(Into::into),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let notice = (!parts.is_empty()).then(|| parts.join("; "));
        let changed = notice != self.run.notice;
        self.run.notice = notice;
        changed
    }

    /// For a run that says nothing any more, time does not go on.
    fn time(&self, now: f64) -> f64 {
        if self.is_silent(now) {
            self.run.latest
        } else {
            now
        }
    }

    fn is_silent(&self, now: f64) -> bool {
        self.run.end.is_none() && now - self.alive > SILENCE
    }

    /// Whether the run has begun, and neither goes on nor will soon, as far as can be told.
    fn has_died(&self, now: f64) -> bool {
        self.has_begun() && self.run.end.is_none() && now - self.alive > GRACE
    }

    fn death(&self) -> io::Error {
        let (directory, silence) = (self.directory.display(), self.last_sign());
        let why = match &self.unreadable {
            Some(why) => format!("{why}; {silence}"),
            None => format!("{directory}: the run has died, or hangs: {silence}"),
        };
        io::Error::new(io::ErrorKind::TimedOut, why)
    }

    fn has_begun(&self) -> bool {
        self.run.latest != 0.0
    }

    fn awaits_the_last_save(&self, now: f64) -> bool {
        let checkpoints = self.run.checkpoints.as_ref();
        let is_saving = checkpoints.is_some_and(|known| known.in_flight.is_some());
        is_saving && now - self.alive < LAST_WORD
    }

    /// What to say of a run that says nothing itself.
    fn silence(&self, now: f64) -> Option<String> {
        let is_there = self.reader.modified().is_some();
        if !self.has_begun() {
            return Some(self.waiting(is_there));
        }
        if !is_there && self.run.end.is_none() {
            return Some(format!("{} is gone", self.directory.join(EVENTS).display()));
        }
        self.is_silent(now).then(|| self.last_sign())
    }

    fn waiting(&self, is_there: bool) -> String {
        let waiting = format!("waiting for a run in {}", self.directory.display());
        if is_there {
            return waiting;
        }
        format!("{waiting}: no {EVENTS} yet; pitstop.Renderer(checkpointer=...) writes it")
    }

    fn last_sign(&self) -> String {
        let since = Duration::try_from_secs_f64(self.alive).unwrap_or_default();
        format!("no sign of life since {} UTC", time(UNIX_EPOCH + since))
    }
}

fn unheard(limit: Duration) -> io::Error {
    let why = format!("it has not heard that within {} seconds", limit.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Not more often than [`LOOK`], and not more seldom than [`IDLE`].
fn is_due(drawn: Option<Instant>, changed: bool) -> bool {
    drawn.is_none_or(|drawn| drawn.elapsed() >= if changed { LOOK } else { IDLE })
}

fn unreadable(directory: &Path, error: &io::Error) -> io::Error {
    let path = directory.join(EVENTS);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
