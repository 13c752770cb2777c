use std::any::Any;
use std::collections::VecDeque;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::*;
use crate::renderer::checkpoints::InFlight;
use crate::renderer::control::{Request, STOPPING};
use crate::renderer::event::Split;
use crate::renderer::journal::{self, EVENTS, Reader};
use crate::renderer::run_state::RunState;

/// Whoever waits longer than this waits in vain.
const LIMIT: Duration = Duration::from_secs(60);

/// What a scripted display was called for, and what it is to do.
#[derive(Default)]
struct Script {
    requests: VecDeque<Request>,
    drawing: Drawing,
    draws: u64,
    /// Draws of a run that was over.
    last_draws: u64,
    closed: u64,
    dropped: bool,
    /// The process is stopped for longer than a moment when it is asked for requests.
    pauses: bool,
    /// As it was drawn last.
    steps: u64,
    started: Option<f64>,
    stopping: Option<String>,
    values: u64,
    committed: u64,
    error: Option<String>,
}

/// What drawing does.
#[derive(Clone, Copy, Default, PartialEq)]
enum Drawing {
    #[default]
    Works,
    Fails,
    Panics,
    Waits,
}

/// The test's side of a display.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<Script>>);

struct Scripted(Stage);

impl Stage {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(&self, request: Request) {
        self.script().requests.push_back(request);
    }

    /// Waits until the display has come so far.
    fn until(&self, what: impl Fn(&Script) -> bool) {
        until(|| what(&self.script()));
    }

    fn screen(&self, options: ScreenOptions) -> Screen {
        Screen::with_display(options, Box::new(Scripted(self.clone())))
    }
}

fn until(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < LIMIT, "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

impl Display for Scripted {
    fn requests(&mut self, _: &RunState) -> io::Result<Vec<Request>> {
        if std::mem::take(&mut self.0.script().pauses) {
            thread::sleep(Duration::from_millis(1100));
        }
        Ok(self.0.script().requests.drain(..).collect())
    }

    fn draw(&mut self, run: &RunState, _: f64) -> io::Result<()> {
        self.0.until(|script| script.drawing != Drawing::Waits);
        let mut script = self.0.script();
        script.draws += 1;
        script.last_draws += u64::from(run.end.is_some());
        script.see(run);
        assert!(script.drawing != Drawing::Panics, "a bug in drawing");
        if script.drawing == Drawing::Fails {
            return Err(io::Error::other("the terminal is gone"));
        }
        Ok(())
    }

    fn close(&mut self, run: &RunState, _: f64) -> io::Result<()> {
        let mut script = self.0.script();
        script.closed += 1;
        script.see(run);
        Ok(())
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.0.script().dropped = true;
    }
}

impl Script {
    fn see(&mut self, run: &RunState) {
        self.steps = run.step;
        self.started = run.started;
        self.stopping.clone_from(&run.stopping);
        let series = run.numeric.iter().flat_map(|metric| &metric.series);
        self.values = series.map(|(_, history)| history.count().0).sum();
        self.committed = run.checkpoints.as_ref().map_or(0, |known| known.saved);
        self.error = run.end.as_ref().and_then(|end| end.error.clone());
    }
}

fn plainly() -> ScreenOptions {
    ScreenOptions::default()
}

fn interrupted_by(interrupter: &Interrupter) -> ScreenOptions {
    ScreenOptions {
        interrupter: interrupter.clone(),
        ..ScreenOptions::default()
    }
}

fn into(directory: &TempDir) -> ScreenOptions {
    ScreenOptions {
        directory: Some(directory.path().to_owned()),
        ..ScreenOptions::default()
    }
}

fn persistent() -> ScreenOptions {
    ScreenOptions {
        persistent: true,
        ..ScreenOptions::default()
    }
}

fn start(step: u64) -> Event {
    Event::Start {
        epochs: None,
        steps: Some(1000),
        epoch: 0,
        step,
    }
}

fn loss(step: u64) -> Event {
    Event::Numeric {
        split: Split::Train,
        name: "loss".into(),
        value: 1.0,
        step,
    }
}

fn progress(step: u64) -> Event {
    Event::Progress { done: step, step }
}

fn end() -> Event {
    Event::End {
        summary: Vec::new(),
        error: None,
    }
}

/// All that was written there.
fn events(directory: &Path) -> Vec<Event> {
    let mut events = Vec::new();
    let mut reader = Reader::open(directory).unwrap();
    reader.read(|_, event| events.push(event)).unwrap();
    events
}

/// The text of a panic.
fn panic_of(work: impl FnOnce()) -> Option<&'static str> {
    let payload: Box<dyn Any + Send> = catch_unwind(AssertUnwindSafe(work)).err()?;
    payload.downcast_ref::<&'static str>().copied()
}

#[test]
fn a_screen_may_be_shared_by_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Screen>();
}

#[test]
fn what_is_told_is_shown_and_the_last_of_it_in_the_end() {
    let stage = Stage::default();
    let mut screen = stage.screen(plainly());
    screen.start_steps(Some(10), 0);
    screen.progress(3, 3);
    stage.until(|script| script.steps == 3);
    screen.progress(10, 10);
    screen.close();
    let script = stage.script();
    assert_eq!((script.steps, script.closed, script.dropped), (10, 1, true));
}

#[test]
fn a_stop_reaches_the_interrupter_and_comes_back_to_the_display() {
    let (stage, interrupter) = (Stage::default(), Interrupter::new());
    let mut screen = stage.screen(interrupted_by(&interrupter));
    stage.request(Request::Stop);
    until(|| interrupter.should_stop());
    assert_eq!(interrupter.get_message().as_deref(), Some(STOPPING));
    stage.until(|script| script.stopping.as_deref() == Some(STOPPING));
    screen.event(end()); // no panic
    screen.close();
    assert!(interrupter.should_stop());
}

#[test]
fn a_stop_from_elsewhere_is_shown_with_its_reason() {
    let (stage, interrupter) = (Stage::default(), Interrupter::new());
    let screen = stage.screen(interrupted_by(&interrupter));
    interrupter.stop(Some("the disk is full"));
    stage.until(|script| script.stopping.as_deref() == Some("the disk is full"));
    // A person who asks too does not hide the reason.
    stage.request(Request::Stop);
    stage.until(|script| script.requests.is_empty());
    screen.close();
    assert_eq!(stage.script().stopping.as_deref(), Some("the disk is full"));
    assert_eq!(
        interrupter.get_message().as_deref(),
        Some("the disk is full")
    );
}

/// It was shown for ever, and the next Ctrl-C was taken for the second one.
#[test]
fn a_stop_that_is_taken_back_is_shown_no_longer() {
    let (stage, interrupter) = (Stage::default(), Interrupter::new());
    let screen = stage.screen(interrupted_by(&interrupter));
    for _ in 0..2 {
        stage.request(Request::Stop);
        stage.until(|script| script.stopping.as_deref() == Some(STOPPING));
        interrupter.reset();
        stage.until(|script| script.stopping.is_none());
    }
    // What the training itself tells stays.
    let message = "the loss is NaN".to_owned();
    screen.send(Event::Stopping { message });
    screen.send(progress(7));
    stage.until(|script| script.steps == 7);
    screen.close();
    assert_eq!(stage.script().stopping.as_deref(), Some("the loss is NaN"));
}

#[test]
fn a_time_in_which_the_process_was_stopped_is_told() {
    let (stage, directory) = (Stage::default(), tempfile::tempdir().unwrap());
    let screen = stage.screen(into(&directory));
    screen.send(start(0));
    screen.send(progress(1));
    stage.until(|script| script.steps == 1);
    stage.script().pauses = true;
    until(|| !stage.script().pauses);
    screen.close();
    let events = events(directory.path()).into_iter();
    let paused = events.filter_map(|event| match event {
        Event::Paused { seconds } => Some(seconds),
        _ => None,
    });
    assert!(paused.sum::<f64>() >= 1.0);
}

/// It had no time, since its start was told when it was over.
#[test]
fn something_may_be_told_that_happened_before() {
    let stage = Stage::default();
    let screen = stage.screen(plainly());
    screen.send_at(1000.0, start(0));
    screen.close();
    let started = stage.script().started;
    assert!(started.is_some_and(|at| (at - 1000.0).abs() < 1e-9));
}

#[test]
fn a_kill_panics_in_the_next_event_and_not_in_the_next_screen() {
    let (stage, interrupter) = (Stage::default(), Interrupter::new());
    let mut screen = stage.screen(interrupted_by(&interrupter));
    assert!(!screen.is_killed());
    stage.request(Request::Kill);
    until(|| screen.is_killed());
    for _ in 0..2 {
        assert_eq!(panic_of(|| screen.progress(1, 1)), Some(KILLING));
    }
    screen.send(progress(2)); // no panic
    assert_eq!(interrupter.get_message().as_deref(), Some(KILLING));
    stage.until(|script| script.stopping.as_deref() == Some(KILLING));
    drop(screen);
    assert_eq!(stage.script().error.as_deref(), Some(KILLING));

    interrupter.reset();
    let stage = Stage::default();
    let mut next = stage.screen(interrupted_by(&interrupter));
    next.progress(1, 1);
    next.close();
    assert!(!next.is_killed() && !interrupter.should_stop());
    assert_eq!(stage.script().error, None);
}

#[test]
fn a_kill_that_unwinds_through_the_screen_ends_it() {
    let stage = Stage::default();
    let mut screen = stage.screen(persistent());
    stage.request(Request::Kill);
    until(|| screen.is_killed());
    let killed = panic_of(move || {
        loop {
            screen.progress(1, 1);
        }
    });
    assert_eq!(killed, Some(KILLING));
    let script = stage.script();
    assert_eq!((script.closed, script.dropped), (1, true));
}

#[test]
fn each_kill_reaches_a_training_that_makes_no_call() {
    let (stage, times) = (Stage::default(), Arc::new(AtomicUsize::new(0)));
    let reached = Arc::clone(&times);
    let screen = stage.screen(ScreenOptions {
        on_kill: Some(Box::new(move || {
            reached.fetch_add(1, Ordering::SeqCst);
        })),
        ..ScreenOptions::default()
    });
    for kill in 1..=2 {
        stage.request(Request::Kill);
        until(|| times.load(Ordering::SeqCst) == kill);
    }
    screen.close();
}

#[test]
fn a_watcher_stops_the_run_and_the_request_is_taken_away() {
    let (stage, directory) = (Stage::default(), tempfile::tempdir().unwrap());
    // One that was left from before is not for this run.
    journal::ask_to_stop(directory.path()).unwrap();
    let interrupter = Interrupter::new();
    let screen = stage.screen(ScreenOptions {
        interrupter: interrupter.clone(),
        ..into(&directory)
    });
    screen.send(start(0));
    screen.send(progress(1));
    stage.until(|script| script.steps == 1);
    assert!(!interrupter.should_stop());
    journal::ask_to_stop(directory.path()).unwrap();
    until(|| interrupter.should_stop());
    assert_eq!(interrupter.get_message().as_deref(), Some(STOPPING));
    assert!(!directory.path().join(journal::STOP).exists());
    screen.close();
    let message = STOPPING.to_owned();
    assert!(events(directory.path()).contains(&Event::Stopping { message }));
}

#[test]
fn a_display_that_fails_is_closed_and_the_run_goes_on() {
    for drawing in [Drawing::Fails, Drawing::Panics] {
        let (stage, directory) = (Stage::default(), tempfile::tempdir().unwrap());
        stage.script().drawing = drawing;
        let mut screen = stage.screen(into(&directory));
        screen.start_steps(Some(10), 0);
        stage.until(|script| script.dropped);
        assert_eq!(stage.script().closed, 1);
        screen.progress(10, 10);
        screen.close();
        let script = stage.script();
        assert_eq!((script.draws, script.closed), (1, 1));
        drop(script);
        assert!(events(directory.path()).contains(&progress(10)));
    }
}

#[test]
fn a_run_that_is_over_is_shown_no_longer() {
    let stage = Stage::default();
    let screen = stage.screen(plainly());
    screen.send(start(0));
    screen.send(end());
    stage.until(|script| script.dropped);
    // The training may go on telling.
    screen.send(progress(7));
    assert!(!screen.wait(Duration::ZERO));
    screen.close();
    assert!(screen.wait(Duration::ZERO));
    screen.close();
    let script = stage.script();
    assert_eq!((script.closed, script.error.as_ref()), (1, None));
}

#[test]
fn a_persistent_screen_stays_until_the_person_leaves() {
    for leaving in [Request::Leave, Request::Stop, Request::Kill] {
        let stage = Stage::default();
        let screen = stage.screen(persistent());
        screen.send(start(0));
        // Nobody leaves a run that goes on.
        stage.request(Request::Leave);
        stage.until(|script| script.requests.is_empty());
        screen.send(end());
        screen.finish(None);
        stage.until(|script| script.last_draws > 1);
        assert!(!screen.wait(Duration::ZERO) && stage.script().closed == 0);
        stage.request(leaving);
        screen.close();
        assert_eq!((stage.script().closed, screen.is_killed()), (1, false));
    }
}

#[test]
fn a_persistent_screen_goes_when_it_is_told_to() {
    let stage = Stage::default();
    let screen = stage.screen(persistent());
    screen.send(start(0));
    screen.finish(None);
    stage.until(|script| script.last_draws > 1);
    screen.leave();
    assert!(screen.wait(LIMIT));
}

#[test]
fn a_persistent_screen_does_not_stay_after_an_error() {
    let stage = Stage::default();
    let screen = stage.screen(persistent());
    screen.send(start(0));
    screen.finish(Some("ValueError: 3".to_owned()));
    assert!(screen.wait(LIMIT));
    assert_eq!(stage.script().error.as_deref(), Some("ValueError: 3"));
    // Nor if the error comes after the end.
    let stage = Stage::default();
    let screen = stage.screen(persistent());
    screen.send(end());
    screen.finish(Some("ValueError: 3".to_owned()));
    assert!(screen.wait(LIMIT));
}

#[test]
fn a_persistent_screen_whose_display_fails_does_not_stay() {
    let stage = Stage::default();
    stage.script().drawing = Drawing::Fails;
    let screen = stage.screen(persistent());
    screen.send(start(0));
    screen.finish(None);
    assert!(screen.wait(LIMIT));
}

#[test]
fn a_panic_of_the_training_closes_the_screen_and_goes_on_as_it_was() {
    let stage = Stage::default();
    let mut screen = stage.screen(persistent());
    let panic = panic_of(move || {
        screen.start_steps(None, 0);
        std::panic::panic_any("a bug in the training");
    });
    assert_eq!(panic, Some("a bug in the training"));
    let script = stage.script();
    assert_eq!(script.error.as_deref(), Some("The training has panicked."));
    assert_eq!((script.closed, script.dropped), (1, true));
}

#[test]
fn the_history_of_a_run_survives_its_being_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let screen = Stage::default().screen(into(&directory));
    screen.send(start(0));
    // Important events between them keep them apart.
    for step in 1..=20 {
        screen.send(loss(step));
        screen.send(progress(step));
        screen.send(Event::Stopping {
            message: "a line of its own".into(),
        });
    }
    drop(screen);
    let stage = Stage::default();
    let screen = stage.screen(into(&directory));
    stage.until(|script| script.values == 20);
    // It was saved at step 12.
    screen.send(start(12));
    stage.until(|script| script.values == 12);
    screen.send(loss(13));
    stage.until(|script| script.values == 13);
    assert_eq!(stage.script().stopping, None);
    screen.close();
    assert_eq!(stage.script().error, None);
}

#[test]
fn how_checkpoints_stand_is_shown_and_written_also_after_the_end() {
    let (stage, directory) = (Stage::default(), tempfile::tempdir().unwrap());
    let saved = Arc::new(AtomicUsize::new(1));
    let now_saved = Arc::clone(&saved);
    let screen = stage.screen(ScreenOptions {
        checkpoints: Some(Box::new(move || Checkpoints {
            saved: now_saved.load(Ordering::SeqCst) as u64,
            ..Checkpoints::default()
        })),
        ..into(&directory)
    });
    screen.send(start(0));
    stage.until(|script| script.committed == 1);
    saved.store(2, Ordering::SeqCst);
    stage.until(|script| script.committed == 2);
    screen.send(end());
    stage.until(|script| script.dropped);
    // The last save is committed while nobody looks any more.
    saved.store(3, Ordering::SeqCst);
    screen.close();
    let last = events(directory.path())
        .into_iter()
        .rev()
        .find_map(|event| match event {
            Event::Checkpoints(checkpoints) => Some(checkpoints.saved),
            _ => None,
        });
    assert_eq!(last, Some(3));
}

/// Whoever closes the screen before the checkpointer, as nested `with` blocks do, has the last save in flight.
#[test]
fn the_end_waits_for_the_last_save_though_not_for_ever() {
    for lands in [true, false] {
        let (stage, directory) = (Stage::default(), tempfile::tempdir().unwrap());
        let shown = stage.clone();
        let mut looks = 0;
        let screen = stage.screen(ScreenOptions {
            checkpoints: Some(Box::new(move || {
                // Under way until some looks after the run was over.
                looks += u64::from(shown.script().last_draws > 0);
                let has_landed = lands && looks > 1;
                let in_flight = InFlight {
                    step: 600,
                    done: 1,
                    total: 2,
                    seconds: 0.5,
                };
                Checkpoints {
                    saved: u64::from(has_landed),
                    in_flight: (!has_landed).then_some(in_flight),
                    ..Checkpoints::default()
                }
            })),
            ..into(&directory)
        });
        screen.send(start(0));
        screen.close();
        assert_eq!(stage.script().committed, u64::from(lands));
        let last = events(directory.path()).into_iter().rev();
        let mut told = last.filter_map(|event| match event {
            Event::Checkpoints(checkpoints) => Some(checkpoints),
            _ => None,
        });
        assert_eq!(
            told.next().map(|told| (told.saved, told.in_flight)),
            Some((u64::from(lands), None))
        );
    }
}

#[test]
fn a_source_of_checkpoints_that_panics_costs_nothing_else() {
    let stage = Stage::default();
    let screen = stage.screen(ScreenOptions {
        checkpoints: Some(Box::new(|| panic!("a bug in somebody's source"))),
        ..ScreenOptions::default()
    });
    screen.send(start(0));
    screen.send(progress(5));
    stage.until(|script| script.steps == 5);
    screen.close();
}

#[test]
fn a_directory_that_cannot_be_written_costs_only_the_watchers() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join(EVENTS)).unwrap();
    let stage = Stage::default();
    let screen = stage.screen(into(&directory));
    screen.send(start(0));
    screen.send(progress(5));
    stage.until(|script| script.steps == 5);
    screen.close();
}

#[test]
fn a_display_that_hangs_does_not_fill_the_memory() {
    let stage = Stage::default();
    stage.script().drawing = Drawing::Waits;
    let screen = stage.screen(plainly());
    screen.send(start(0));
    for step in 0..(BACKLOG + BACKLOG / 2) as u64 {
        screen.send(loss(step));
    }
    let waiting = screen.here().unwrap().backlog.load(Ordering::Relaxed);
    assert!(waiting <= BACKLOG, "{waiting}");
    // What matters for long is kept all the same.
    screen.send(Event::Epoch { epoch: 1 });
    screen.send(end());
    stage.script().drawing = Drawing::Works;
    stage.until(|script| script.dropped);
    screen.close();
    assert_eq!(screen.here().unwrap().backlog.load(Ordering::Relaxed), 0);
}

#[test]
fn in_a_forked_child_it_does_nothing() {
    let stage = Stage::default();
    let mut screen = stage.screen(plainly());
    screen.send(start(0));
    screen.send(progress(1));
    stage.until(|script| script.steps == 1);
    // As a child sees it; the thread of the test's process goes on until that ends.
    screen.pid = 0;
    screen.event(progress(2));
    screen.send(end());
    screen.finish(None);
    screen.leave();
    screen.close();
    assert!(screen.wait(LIMIT) && !screen.is_killed());
    drop(screen);
    let drawn = stage.script().draws;
    stage.until(|script| script.draws > drawn);
    let script = stage.script();
    assert_eq!((script.steps, script.closed), (1, 0));
}

#[test]
fn without_a_terminal_a_run_is_lines_of_text() {
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let paper = Paper::default();
    // Nobody is there to leave it.
    let mut screen = Screen::plain_to(persistent(), paper.clone());
    screen.start_steps(Some(10), 0);
    screen.progress(5, 5);
    screen.end(vec![("device".into(), "cpu".into())]);
    screen.close();
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    assert!(text.starts_with("a run of 10 steps begins\n"), "{text}");
    assert!(text.ends_with("\n  device: cpu\n"), "{text}");
}
