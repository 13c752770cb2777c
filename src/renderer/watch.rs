//! Shows a run of another process from its `events.jsonl`, while it goes on and when it is over.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::control::Request;
use super::display::Display;
use super::journal::{self, EVENTS, Reader};
use super::run_state::RunState;
use super::screen::{self, now};

/// How often the person in front of the display is listened to.
const PAUSE: Duration = Duration::from_millis(25);
/// How often the file is looked at, and the display drawn: more often than either changes.
const LOOK: Duration = Duration::from_millis(100);
/// Clocks on the display go on when nothing happens.
const IDLE: Duration = Duration::from_secs(1);
/// A run that goes on writes something every ten seconds, unless a step of it takes longer; seconds.
const SILENCE: f64 = 60.0;

/// Shows the run in `directory`, which goes on in another process, is over, or is yet to begin. Only reads there;
/// but the person in front of it may ask the run to stop, as [`ask_to_stop`] does.
///
/// As a screen it stays until the person leaves it; as plain lines, which it is where [`default_renderer`] takes
/// those, and always with `plain`, until the run is over. Blocks until then, or until `stop` is set.
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
/// `Interrupted` if `stop` was set; else if the events cannot be read, or the display is gone: `BrokenPipe` if
/// nobody reads the lines any more.
pub fn watch(directory: impl AsRef<Path>, plain: bool, stop: &AtomicBool) -> io::Result<()> {
    let mut watcher = Watcher::new(directory.as_ref())?;
    watcher.read()?;
    let mut display = screen::watching(plain);
    let shown = watcher.show(&mut *display, stop);
    // Also after an error: what the display has taken is given back.
    let closed = display.close(&watcher.run, now());
    shown.and(closed)
}

/// Asks the run in `directory`, in whatever process it goes on, to stop soon, as a person at its own screen would.
/// The run hears it within a second or so, and stops its interrupter with [`STOPPING`](super::STOPPING).
///
/// # Errors
///
/// `InvalidInput` if the run is over already, as far as its events tell; else whatever the disk reports.
pub fn ask_to_stop(directory: impl AsRef<Path>) -> io::Result<()> {
    let mut watcher = Watcher::new(directory.as_ref())?;
    watcher.read()?;
    watcher.ask_to_stop()
}

/// What is known of a run from its events, and what it was asked for.
struct Watcher {
    directory: PathBuf,
    reader: Reader,
    run: RunState,
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
            answer: None,
            unreadable: None,
        })
    }

    /// Takes in what has happened since the last time; says whether anything has.
    fn read(&mut self) -> io::Result<bool> {
        let mut is_new = self.read_on()?;
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
            changed |= self.take_notice(now());
            if is_due(drawn, changed) {
                display.draw(&self.run, self.time(now()))?;
                (drawn, changed) = (Some(Instant::now()), false);
            }
            thread::sleep(PAUSE);
        }
    }

    /// A file system that fails for a while, as those of other machines do, is no reason to stop looking.
    fn look(&mut self) -> bool {
        let read = self.read();
        self.unreadable = read.as_ref().err().map(ToString::to_string);
        read.unwrap_or(false)
    }

    /// Does what the person has asked for; says whether that is to leave.
    fn answer_requests(&mut self, display: &mut dyn Display) -> io::Result<bool> {
        for request in display.requests(&self.run)? {
            match request {
                Request::Stop => self.answer = Some(self.answer_to_stop()),
                Request::Leave => return Ok(true),
                // The process of another is not a watcher's to kill; its display does not offer it.
                Request::Kill => {}
            }
        }
        Ok(false)
    }

    fn answer_to_stop(&self) -> String {
        match self.ask_to_stop() {
            Ok(()) => "asked the run to stop".into(),
            Err(error) => format!("cannot ask the run to stop: {error}"),
        }
    }

    fn ask_to_stop(&self) -> io::Result<()> {
        if self.run.end.is_some() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is over"));
        }
        journal::ask_to_stop(&self.directory)
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
        self.run.end.is_none() && now - self.run.latest > SILENCE
    }

    /// What to say of a run that says nothing itself.
    fn silence(&self, now: f64) -> Option<String> {
        let latest = self.run.latest;
        if latest == 0.0 {
            let directory = self.directory.display();
            return Some(format!("waiting for a run in {directory}"));
        }
        self.is_silent(now)
            .then(|| format!("no news since {}", time(latest)))
    }
}

/// Not more often than [`LOOK`], and not more seldom than [`IDLE`].
fn is_due(drawn: Option<Instant>, changed: bool) -> bool {
    drawn.is_none_or(|drawn| drawn.elapsed() >= if changed { LOOK } else { IDLE })
}

fn unreadable(directory: &Path, error: &io::Error) -> io::Error {
    let path = directory.join(EVENTS);
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A time of day, with the date: it may be long ago.
fn time(at: f64) -> String {
    let since = Duration::try_from_secs_f64(at).unwrap_or_default();
    let time = UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    format!("{} UTC", text.trim_end_matches('Z').replace('T', " "))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs;

    use super::super::event::Event;
    use super::*;

    /// Asks for what it is told to, one request after the other once there is one, and remembers what it was shown.
    #[derive(Default)]
    struct Scripted {
        requests: VecDeque<Request>,
        notices: Vec<Option<String>>,
        fails: bool,
    }

    impl Display for Scripted {
        fn requests(&mut self, _: &RunState) -> io::Result<Vec<Request>> {
            Ok(self.requests.pop_front().into_iter().collect())
        }

        fn draw(&mut self, run: &RunState, _: f64) -> io::Result<()> {
            self.notices.push(run.notice.clone());
            if self.fails {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(())
        }

        fn close(&mut self, _: &RunState, _: f64) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(at: f64, event: &Event) -> String {
        let mut value = serde_json::to_value(event).unwrap();
        value["at"] = at.into();
        format!("{value}\n")
    }

    fn start() -> Event {
        Event::Start {
            epochs: Some(1),
            steps: None,
            epoch: 0,
            step: 0,
        }
    }

    fn end() -> Event {
        Event::End {
            summary: Vec::new(),
            error: None,
        }
    }

    /// The directory of a run that these events happened to.
    fn run(events: &[(f64, Event)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let lines: String = events.iter().map(|(at, event)| line(*at, event)).collect();
        fs::write(directory.path().join(EVENTS), lines).unwrap();
        directory
    }

    fn watcher(directory: &tempfile::TempDir) -> Watcher {
        let mut watcher = Watcher::new(directory.path()).unwrap();
        watcher.read().unwrap();
        watcher
    }

    fn go_on() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn a_run_is_watched_until_the_display_asks_to_leave() {
        let over = run(&[(1.0, start()), (2.0, end())]);
        let mut display = Scripted {
            requests: [Request::Kill, Request::Leave].into(),
            ..Scripted::default()
        };
        watcher(&over).show(&mut display, &go_on()).unwrap();
        assert!(display.requests.is_empty());
        assert_eq!(display.notices, [None]);
    }

    #[test]
    fn lines_end_with_the_run() {
        let over = run(&[(1.0, start()), (2.0, end())]);
        let mut lines = super::super::plain::Plain::new(io::sink());
        watcher(&over).show(&mut lines, &go_on()).unwrap();
    }

    #[test]
    fn a_watcher_that_is_told_to_end_says_so() {
        let over = run(&[(1.0, start()), (2.0, end())]);
        let told = AtomicBool::new(true);
        let shown = watcher(&over).show(&mut Scripted::default(), &told);
        assert_eq!(shown.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn what_another_file_of_events_has_told_is_forgotten() {
        let directory = run(&[(1.0, start()), (2.0, end())]);
        let mut watching = watcher(&directory);
        assert!(watching.run.end.is_some());
        let path = directory.path().join(EVENTS);
        fs::remove_file(&path).unwrap();
        fs::write(&path, line(3.0, &start())).unwrap();
        assert!(watching.read().unwrap());
        assert!(watching.run.end.is_none());
        assert!(watching.run.latest > 2.5);
    }

    #[test]
    fn a_display_that_is_gone_ends_the_watching() {
        let goes_on = run(&[(now(), start())]);
        let mut display = Scripted {
            fails: true,
            ..Scripted::default()
        };
        let shown = watcher(&goes_on).show(&mut display, &go_on());
        assert_eq!(shown.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_run_that_says_nothing_is_told_apart_from_one_that_is_over() {
        let empty = tempfile::tempdir().unwrap();
        let mut waiting = watcher(&empty);
        assert!(waiting.take_notice(1000.0));
        let path = empty.path().display();
        assert_eq!(
            waiting.run.notice,
            Some(format!("waiting for a run in {path}"))
        );
        assert!(!waiting.take_notice(2000.0));

        let silent = run(&[(0.5, start())]);
        let mut silent = watcher(&silent);
        assert!(!silent.take_notice(60.0));
        assert!(silent.take_notice(61.0));
        let notice = silent.run.notice.as_deref();
        assert_eq!(notice, Some("no news since 1970-01-01 00:00:00 UTC"));

        let mut over = watcher(&run(&[(0.5, start()), (1.0, end())]));
        assert!(!over.take_notice(1000.0));
    }

    #[test]
    fn a_request_to_stop_is_left_for_the_run_and_its_answer_shown_until_the_run_answers() {
        let goes_on = run(&[(now(), start())]);
        let mut watching = watcher(&goes_on);
        let mut display = Scripted {
            requests: [Request::Stop].into(),
            ..Scripted::default()
        };
        assert!(!watching.answer_requests(&mut display).unwrap());
        assert!(goes_on.path().join(journal::STOP).exists());
        watching.take_notice(now());
        let notice = watching.run.notice.as_deref();
        assert_eq!(notice, Some("asked the run to stop"));

        let message = super::super::STOPPING.to_owned();
        watching.run.apply(now(), Event::Stopping { message });
        watching.take_notice(now());
        assert_eq!(watching.run.notice, None);
    }

    #[test]
    fn a_run_that_is_over_is_not_asked_to_stop() {
        let over = run(&[(1.0, start()), (2.0, end())]);
        let refused = ask_to_stop(over.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(!over.path().join(journal::STOP).exists());
        let answer = watcher(&over).answer_to_stop();
        assert_eq!(answer, "cannot ask the run to stop: it is over");
    }
}
