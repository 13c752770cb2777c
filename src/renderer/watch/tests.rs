use std::collections::VecDeque;
use std::fs::{self, File};

use super::*;
use crate::renderer::checkpoints::{Checkpoints, InFlight};
use crate::renderer::event::Event;
use crate::renderer::plain::Plain;
use crate::renderer::{KILLING, STOPPING};

/// Asks for what it is told to, one request after the other once there is one, and remembers what it was shown.
#[derive(Default)]
struct Scripted {
    requests: VecDeque<Request>,
    notices: Vec<Option<String>>,
    fails: bool,
    is_unattended: bool,
}

impl Display for Scripted {
    fn is_attended(&self) -> bool {
        !self.is_unattended
    }

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

fn append(directory: &tempfile::TempDir, event: &Event) {
    let path = directory.path().join(EVENTS);
    let lines = fs::read_to_string(&path).unwrap();
    fs::write(&path, lines + &line(now(), event)).unwrap();
}

/// The last sign of life of the run in the directory.
fn touch(directory: &tempfile::TempDir, at: f64) {
    let path = directory.path().join(EVENTS);
    let file = File::options().append(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs_f64(at))
        .unwrap();
}

fn watcher(directory: &tempfile::TempDir) -> Watcher {
    let mut watcher = Watcher::new(directory.path()).unwrap();
    watcher.read(now()).unwrap();
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
    let mut lines = Plain::new(io::sink());
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
    assert!(watching.read(now()).unwrap());
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
    let notice = waiting.run.notice.clone().unwrap();
    assert!(
        notice.starts_with(&format!("waiting for a run in {path}: no events.jsonl yet")),
        "{notice}"
    );
    assert!(!waiting.take_notice(2000.0));
    // A renderer that has nothing to tell yet.
    fs::write(empty.path().join(EVENTS), "").unwrap();
    waiting.read(now()).unwrap();
    assert!(waiting.take_notice(3000.0));
    assert_eq!(
        waiting.run.notice,
        Some(format!("waiting for a run in {path}"))
    );

    let silent = run(&[(0.5, start())]);
    touch(&silent, 0.5);
    let mut silent = watcher(&silent);
    assert!(!silent.take_notice(60.0));
    assert!(silent.take_notice(61.0));
    let notice = silent.run.notice.as_deref();
    assert_eq!(
        notice,
        Some("no sign of life since 1970-01-01 00:00:00 UTC")
    );

    let over = run(&[(0.5, start()), (1.0, end())]);
    touch(&over, 1.0);
    assert!(!watcher(&over).take_notice(1000.0));
}

/// A run in a long step, such as one that compiles, was taken for a dead one.
#[test]
fn a_run_that_touches_its_events_goes_on_though_it_has_nothing_to_tell() {
    let directory = run(&[(0.5, start())]);
    touch(&directory, 0.5);
    let mut watching = watcher(&directory);
    assert!(watching.take_notice(400.0));
    assert!(watching.has_died(400.0));
    // By the clock of another machine.
    touch(&directory, 20.0);
    assert!(!watching.read(500.0).unwrap());
    assert!(watching.take_notice(510.0));
    assert_eq!(watching.run.notice, None);
    assert!(!watching.has_died(510.0));
    // Looking again is no sign of life.
    watching.read(600.0).unwrap();
    assert!(watching.take_notice(600.0));
}

#[test]
fn lines_do_not_wait_for_ever_for_a_run_that_has_died() {
    let died = run(&[(0.5, start())]);
    touch(&died, 0.5);
    let mut lines = Scripted {
        is_unattended: true,
        ..Scripted::default()
    };
    let shown = watcher(&died).show(&mut lines, &go_on()).unwrap_err();
    assert_eq!(shown.kind(), io::ErrorKind::TimedOut);
    let expected = "the run has died, or hangs: no sign of life since 1970-01-01 00:00:00 UTC";
    assert!(shown.to_string().ends_with(expected), "{shown}");
    // A person may look at it for as long as they like.
    let mut screen = Scripted {
        requests: [Request::Kill, Request::Leave].into(),
        ..Scripted::default()
    };
    watcher(&died).show(&mut screen, &go_on()).unwrap();
    assert_eq!(screen.notices.len(), 1);
}

#[test]
fn a_machine_that_was_asleep_has_not_killed_the_run() {
    let directory = run(&[(0.5, start())]);
    touch(&directory, 1000.0);
    let mut watching = watcher(&directory);
    // What a loaded machine takes longer is none of that.
    for _ in 0..1000 {
        watching.forgive(0.9);
    }
    assert!(watching.has_died(1301.0));
    watching.forgive(3600.0);
    assert!(!watching.has_died(4900.0) && !watching.is_silent(4660.0));
    assert!(watching.has_died(4901.0));
}

#[test]
fn a_run_whose_events_cannot_be_read_is_not_called_dead_while_it_touches_them() {
    let directory = run(&[(0.5, start())]);
    touch(&directory, 1.0);
    let mut watching = watcher(&directory);
    let events = directory.path().join(EVENTS);
    fs::remove_file(&events).unwrap();
    fs::create_dir(&events).unwrap();
    watching.look();
    assert!(!watching.has_died(now()));
    let why = watching.death().to_string();
    assert!(
        why.contains("events.jsonl: ") && !why.contains("has died"),
        "{why}"
    );
}

#[test]
fn a_run_that_may_be_resumed_soon_has_not_died() {
    let directory = run(&[(0.5, start())]);
    touch(&directory, 0.5);
    let watching = watcher(&directory);
    assert!(!watching.has_died(300.0));
    assert!(watching.has_died(301.0));
    let young = tempfile::tempdir().unwrap();
    assert!(!watcher(&young).has_died(1e6));
    let over = run(&[(0.5, start()), (1.0, end())]);
    touch(&over, 1.0);
    assert!(!watcher(&over).has_died(1e6));
}

/// Lines ended with the run, and what it told of the save that was in flight then was missed.
#[test]
fn lines_wait_for_the_last_save_of_a_run_that_is_over() {
    let in_flight = InFlight {
        step: 600,
        done: 1,
        total: 2,
        seconds: 0.5,
    };
    let saving = Event::Checkpoints(Checkpoints {
        in_flight: Some(in_flight),
        ..Checkpoints::default()
    });
    let directory = run(&[(now(), start()), (now(), saving.clone()), (now(), end())]);
    let leaves = |watching: &mut Watcher, is_unattended| {
        let mut display = Scripted {
            requests: [Request::Leave].into(),
            is_unattended,
            ..Scripted::default()
        };
        watching.answer_requests(&mut display).unwrap()
    };
    let mut watching = watcher(&directory);
    assert!(!leaves(&mut watching, true));
    assert!(leaves(&mut watching, false));
    append(&directory, &Event::Checkpoints(Checkpoints::default()));
    watching.read(now()).unwrap();
    assert!(leaves(&mut watching, true));

    // It died before it could tell.
    let directory = run(&[(1.0, start()), (2.0, end())]);
    append(&directory, &saving);
    touch(&directory, 3.0);
    assert!(leaves(&mut watcher(&directory), true));
}

#[test]
fn events_that_are_gone_are_missed_until_they_come_back() {
    let directory = run(&[(now(), start())]);
    let path = directory.path().join(EVENTS);
    let mut watching = watcher(&directory);
    fs::remove_file(&path).unwrap();
    watching.look();
    watching.take_notice(now());
    let gone = format!("{} is gone", path.display());
    assert_eq!(watching.run.notice, Some(gone));
    fs::write(&path, line(now(), &start())).unwrap();
    watching.look();
    watching.take_notice(now());
    assert_eq!(watching.run.notice, None);
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

    let message = STOPPING.to_owned();
    watching.run.apply(now(), Event::Stopping { message });
    watching.take_notice(now());
    assert_eq!(watching.run.notice, None);
}

#[test]
fn a_run_that_is_over_is_not_asked_to_stop() {
    let over = run(&[(1.0, start()), (2.0, end())]);
    let refused = ask_to_stop(over.path(), &go_on()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    assert!(!over.path().join(journal::STOP).exists());
    let answer = watcher(&over).answer_to_stop();
    assert_eq!(answer, "cannot ask the run to stop: it is over");
}

#[test]
fn nobody_is_asked_where_nobody_would_hear() {
    let nothing = tempfile::tempdir().unwrap();
    let died = run(&[(1.0, start())]);
    touch(&died, 1.0);
    for (directory, why) in [
        (&nothing, "there is no events.jsonl"),
        (&died, "no sign of life since 1970-01-01 00:00:01 UTC"),
    ] {
        let refused = ask_to_stop(directory.path(), &go_on()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert!(refused.to_string().contains(why), "{refused}");
        assert!(!directory.path().join(journal::STOP).exists());
    }
}

/// A directory of that name cannot be taken by the run; it was asked all the same, as it seemed.
#[test]
fn a_request_that_cannot_be_made_is_an_error() {
    let directory = run(&[(now(), start())]);
    fs::create_dir(directory.path().join(journal::STOP)).unwrap();
    let refused = ask_to_stop(directory.path(), &go_on()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::IsADirectory);
    let answer = watcher(&directory).answer_to_stop();
    assert!(answer.ends_with(".stop is a directory"), "{answer}");
}

/// A run that was asked, and has yet to hear it.
fn asked() -> (tempfile::TempDir, Watcher) {
    let directory = run(&[(now(), start())]);
    let watching = watcher(&directory);
    watching.ask_to_stop(now()).unwrap();
    (directory, watching)
}

fn stopping(message: &str) -> Event {
    Event::Stopping {
        message: message.to_owned(),
    }
}

#[test]
fn a_request_is_heard_once_the_run_has_taken_it_and_says_so() {
    let (directory, mut watching) = asked();
    assert!(!watching.has_heard().unwrap());
    assert!(journal::take_stop_request(directory.path()));
    // Another process that begins just now takes it too, and does not stop.
    assert!(!watching.has_heard().unwrap());
    append(&directory, &stopping(KILLING));
    watching.wait_until_heard(HEARD, &go_on()).unwrap();
}

#[test]
fn a_request_that_nobody_hears_is_taken_back() {
    let refusal = |asked: (tempfile::TempDir, Watcher), limit, stop: &AtomicBool| {
        let (directory, mut watching) = asked;
        let error = watching.wait_until_heard(limit, stop).unwrap_err();
        assert!(!directory.path().join(journal::STOP).exists());
        error.kind()
    };
    let late = refusal(asked(), Duration::ZERO, &go_on());
    assert_eq!(late, io::ErrorKind::TimedOut);
    let told_to_end = refusal(asked(), HEARD, &AtomicBool::new(true));
    assert_eq!(told_to_end, io::ErrorKind::Interrupted);
    // It ends without having looked once more.
    let (directory, watching) = asked();
    append(&directory, &end());
    let over = refusal((directory, watching), HEARD, &go_on());
    assert_eq!(over, io::ErrorKind::InvalidInput);
}

#[test]
fn a_run_whose_directory_is_gone_has_not_heard_anything() {
    let (directory, mut watching) = asked();
    directory.close().unwrap();
    let error = watching.wait_until_heard(HEARD, &go_on()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}
