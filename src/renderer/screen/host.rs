//! What the thread of a screen does.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use super::now;
use crate::checkpointer::panic::catch;
use crate::renderer::checkpoints::{Checkpoints, InFlight};
use crate::renderer::control::{Control, KILLING, Request};
use crate::renderer::display::Display;
use crate::renderer::event::Event;
use crate::renderer::journal::{self, EVENTS, Reader, Writer};
use crate::renderer::run_state::RunState;

/// How often it looks for something new. It never waits for a message, so that no sender pays for waking it.
const TICK: Duration = Duration::from_millis(25);
/// So many messages are taken at once, so that a flood of them leaves time to draw.
const BATCH: usize = 20_000;
/// How often it draws at most, and looks at the checkpoints.
const FRAME: Duration = Duration::from_millis(100);
/// How often it draws if nothing has happened: clocks go on.
const IDLE: Duration = Duration::from_secs(1);
/// How often it looks whether a watcher has asked the run to stop.
const ASKED: Duration = Duration::from_millis(500);
/// For so long the end of a run waits for its last save, which then is part of what is shown.
const LAST_SAVE: Duration = Duration::from_secs(1);
/// Seconds. What takes next to no time, and has taken so long, was not running: the process was stopped, or the machine
/// was asleep.
const PAUSE: f64 = 1.0;

/// What the training tells the thread.
pub(super) enum Message {
    Event(f64, Event),
    /// Show the end, and go; the error is what ended the run.
    Finish(Option<String>),
    /// Do not stay for the person.
    Leave,
}

/// All that the thread has.
pub(super) struct Host {
    receiver: Receiver<Message>,
    backlog: Arc<AtomicUsize>,
    control: Arc<Control>,
    run: RunState,
    /// Gone once it is closed, or has failed.
    display: Option<Box<dyn Display>>,
    directory: Option<PathBuf>,
    /// Gone once writing has failed.
    journal: Option<Writer>,
    checkpoints: Option<Box<dyn FnMut() -> Checkpoints + Send>>,
    /// The display is kept after a run that ended well.
    is_kept: bool,
    is_finishing: bool,
    /// Why the interrupter was stopped, as the run was told.
    heard: Option<String>,
    /// When the run was over.
    ended: Option<Instant>,
    /// Something is not drawn yet.
    has_news: bool,
    drawn: Pace,
    looked: Pace,
    asked: Pace,
}

/// Does something now and then.
#[derive(Debug, Default)]
struct Pace(Option<Instant>);

impl Pace {
    /// Whether `interval` has passed since this was true last.
    fn is_due(&mut self, interval: Duration) -> bool {
        let is_due = self.0.is_none_or(|last| last.elapsed() >= interval);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

impl Host {
    pub(super) fn new(
        receiver: Receiver<Message>,
        backlog: &Arc<AtomicUsize>,
        control: &Arc<Control>,
        display: Box<dyn Display>,
    ) -> Host {
        Host {
            receiver,
            backlog: Arc::clone(backlog),
            control: Arc::clone(control),
            run: RunState::default(),
            display: Some(display),
            directory: None,
            journal: None,
            checkpoints: None,
            is_kept: false,
            is_finishing: false,
            heard: None,
            ended: None,
            has_news: false,
            drawn: Pace::default(),
            looked: Pace::default(),
            asked: Pace::default(),
        }
    }

    pub(super) fn directory(self, directory: Option<PathBuf>) -> Host {
        Host { directory, ..self }
    }

    pub(super) fn checkpoints(
        self,
        checkpoints: Option<Box<dyn FnMut() -> Checkpoints + Send>>,
    ) -> Host {
        Host {
            checkpoints,
            ..self
        }
    }

    pub(super) fn persistent(self, persistent: bool) -> Host {
        Host {
            is_kept: persistent,
            ..self
        }
    }

    pub(super) fn run(mut self) {
        self.open_journal();
        while !self.turn() {
            let since = now();
            thread::park_timeout(TICK);
            self.notice_pause(since);
        }
        self.look_at_checkpoints_now();
        self.forget_the_save_in_flight();
        self.write_journal(Writer::flush);
    }

    /// Says whether it was the last one.
    fn turn(&mut self) -> bool {
        self.take_messages();
        self.answer_requests();
        self.look_for_stops();
        self.look_at_checkpoints();
        self.draw();
        self.write_journal(|journal| journal.tick(now()));
        if self.run.end.is_some() && !self.stays() {
            self.close_display();
        }
        self.is_finishing && self.display.is_none()
    }

    /// Something has come back that began at `since`, and takes next to no time. If it took long all the same, the run
    /// was paused, and is told so. What may wait for others, such as a pipe that nobody reads, says nothing of that.
    fn notice_pause(&mut self, since: f64) {
        let seconds = now() - since;
        let goes_on = self.run.started.is_some() && self.run.end.is_none();
        if seconds >= PAUSE && goes_on {
            self.take(now(), Event::Paused { seconds });
        }
    }

    /// What an earlier process has written is read first, so that its history is shown.
    fn open_journal(&mut self) {
        let Some(directory) = &self.directory else {
            return;
        };
        // One that nobody has taken was for an earlier process.
        journal::take_stop_request(directory);
        let run = &mut self.run;
        let opened = Writer::open(directory).and_then(|writer| {
            Reader::open(directory)?.read(|at, event| run.apply(at, event))?;
            Ok(writer)
        });
        self.run.set_aside_process();
        match opened {
            Ok(writer) => self.journal = Some(writer),
            Err(error) => {
                let path = directory.join(EVENTS);
                log::warn!("the run cannot be watched: {}: {error}", path.display());
            }
        }
    }

    fn take_messages(&mut self) {
        for _ in 0..BATCH {
            let message = match self.receiver.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    // Whoever would have finished it is gone.
                    self.is_finishing = true;
                    return;
                }
            };
            match message {
                Message::Event(at, event) => {
                    self.backlog.fetch_sub(1, Ordering::Relaxed);
                    self.take(at, event);
                }
                Message::Finish(error) => self.finish(error),
                Message::Leave => self.is_kept = false,
            }
        }
    }

    fn finish(&mut self, error: Option<String>) {
        self.is_finishing = true;
        self.is_kept &= error.is_none();
        if self.run.end.is_none() {
            let summary = Vec::new();
            self.take(now(), Event::End { summary, error });
        }
    }

    fn take(&mut self, at: f64, event: Event) {
        match event {
            Event::Start { .. } => self.ended = None,
            Event::End { .. } => {
                // It may have been asked to stop just now.
                self.look_for_stops();
                self.look_at_checkpoints_now();
                self.ended = Some(Instant::now());
            }
            _ => {}
        }
        if self.run.has_room_for(&event) {
            self.write_journal(|journal| journal.write(at, &event));
        }
        self.run.apply(at, event);
        self.has_news = true;
    }

    /// A disk that fails must not fail the run.
    fn write_journal(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(journal) = &mut self.journal else {
            return;
        };
        if let Err(error) = write(journal) {
            log::warn!("the run cannot be watched any more: {EVENTS}: {error}");
            self.journal = None;
        }
    }

    /// Whether the display is kept although the run is over.
    fn stays(&self) -> bool {
        if self.control.is_killed() {
            return false;
        }
        let ended_well = matches!(&self.run.end, Some(end) if end.error.is_none());
        (self.is_kept && ended_well) || self.waits_for_the_last_save()
    }

    fn waits_for_the_last_save(&self) -> bool {
        let ended_just_now = self.ended.is_some_and(|ended| ended.elapsed() < LAST_SAVE);
        ended_just_now && self.checkpoints.is_some() && self.in_flight().is_some()
    }

    fn in_flight(&self) -> Option<&InFlight> {
        self.run.checkpoints.as_ref()?.in_flight.as_ref()
    }

    /// Whoever reads the events of a run that is over would take it for under way for ever.
    fn forget_the_save_in_flight(&mut self) {
        if self.in_flight().is_some()
            && let Some(known) = &self.run.checkpoints
        {
            let mut checkpoints = known.clone();
            checkpoints.in_flight = None;
            self.take(now(), Event::Checkpoints(checkpoints));
        }
    }

    fn answer_requests(&mut self) {
        let since = now();
        let requests = self.with_display(|display, run| display.requests(run));
        if requests.is_some() {
            // Somebody may have pressed Ctrl-Z.
            self.notice_pause(since);
        }
        for request in requests.unwrap_or_default() {
            match request {
                _ if self.run.end.is_some() => self.is_kept = false,
                Request::Stop => self.control.stop(),
                Request::Kill => {
                    self.control.kill();
                    let message = KILLING.to_owned();
                    self.take(now(), Event::Stopping { message });
                }
                // A run that goes on stays in sight.
                Request::Leave => {}
            }
        }
    }

    /// From whomever they come.
    fn look_for_stops(&mut self) {
        if self.run.end.is_some() {
            return;
        }
        if let Some(directory) = &self.directory
            && self.asked.is_due(ASKED)
            && journal::take_stop_request(directory)
        {
            self.control.stop();
        }
        let is_stopped = self.control.interrupter.should_stop();
        if is_stopped && self.run.stopping.is_none() {
            let message = self.control.interrupter.get_message();
            let message = message.unwrap_or_else(|| "The training was asked to stop.".to_owned());
            self.heard = Some(message.clone());
            self.take(now(), Event::Stopping { message });
        }
        // It was reset. What the training itself has told is not taken back, and a kill cannot be.
        if !is_stopped && self.heard.take().is_some() && !self.control.is_killed() {
            self.take(now(), Event::GoingOn);
        }
    }

    fn look_at_checkpoints_now(&mut self) {
        self.looked = Pace::default();
        self.look_at_checkpoints();
    }

    fn look_at_checkpoints(&mut self) {
        let Some(source) = &mut self.checkpoints else {
            return;
        };
        if !self.looked.is_due(FRAME) {
            return;
        }
        match catch(source) {
            Ok(checkpoints) if self.run.checkpoints.as_ref() == Some(&checkpoints) => {}
            Ok(checkpoints) => self.take(now(), Event::Checkpoints(checkpoints)),
            Err(panic) => {
                log::error!("how checkpoints stand is not shown any more: {panic}");
                self.checkpoints = None;
            }
        }
    }

    fn draw(&mut self) {
        let interval = if self.has_news { FRAME } else { IDLE };
        if self.display.is_some() && self.drawn.is_due(interval) {
            self.has_news = false;
            self.with_display(|display, run| display.draw(run, now()));
        }
    }

    /// A display that fails, or panics, is closed, and the run goes on without.
    fn with_display<T>(
        &mut self,
        call: impl FnOnce(&mut dyn Display, &RunState) -> io::Result<T>,
    ) -> Option<T> {
        let display = self.display.as_deref_mut()?;
        let run = &self.run;
        match catch(|| call(display, run)) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => log::warn!("the run goes on without a display: {error}"),
            Err(panic) => log::error!("the run goes on without a display, which failed: {panic}"),
        }
        self.close_display();
        None
    }

    /// Its last call, and its end.
    fn close_display(&mut self) {
        let Some(mut display) = self.display.take() else {
            return;
        };
        let run = &self.run;
        match catch(|| display.close(run, now())) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::warn!("the display could not be closed: {error}"),
            Err(panic) => log::error!("the display could not be closed: {panic}"),
        }
        if let Err(panic) = catch(|| drop(display)) {
            log::error!("the display could not be dropped: {panic}");
        }
    }
}
