use std::sync::{Arc, Mutex};

use super::*;
use crate::renderer::checkpoints::InFlight;
use crate::renderer::control::KILLING;
use crate::renderer::event::{Event, Goal, Metric};

/// What was written, to look at.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A run and its lines; the clock is the test's.
struct Scene {
    run: RunState,
    plain: Plain,
    paper: Paper,
}

impl Scene {
    fn new() -> Scene {
        let paper = Paper::default();
        Scene {
            run: RunState::default(),
            plain: Plain::new(paper.clone()),
            paper,
        }
    }

    /// These events happen, and a line is due.
    fn at(&mut self, now: f64, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.run.apply(now, event);
        }
        self.plain.draw(&self.run, now).unwrap();
    }

    fn close(mut self, now: f64) -> String {
        self.plain.close(&self.run, now).unwrap();
        self.paper.text()
    }
}

fn start(epochs: u64, epoch: u64, step: u64) -> Event {
    Event::Start {
        epochs: Some(epochs),
        steps: None,
        epoch,
        step,
    }
}

fn start_steps(steps: Option<u64>) -> Event {
    Event::Start {
        epochs: None,
        steps,
        epoch: 0,
        step: 0,
    }
}

fn pass(split: Split, total: u64) -> Event {
    Event::SplitStart {
        split,
        done: 0,
        total: Some(total),
    }
}

fn progress(done: u64, step: u64) -> Event {
    Event::Progress { done, step }
}

fn value(split: Split, name: &str, value: f64, step: u64) -> Event {
    Event::Numeric {
        split,
        name: name.into(),
        value,
        step,
    }
}

fn named(name: &str, text: &str) -> Event {
    Event::Named {
        name: name.into(),
        text: text.into(),
        count: 1,
    }
}

fn end(summary: &[(&str, &str)], error: Option<&str>) -> Event {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Event::End {
        summary: summary.iter().map(own).collect(),
        error: error.map(str::to_owned),
    }
}

fn assert_lines(text: &str, expected: &[&str]) {
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_run_is_told_from_its_beginning_to_its_end() {
    use Split::{Train, Valid};
    let mut scene = Scene::new();
    scene.at(0.0, []);
    let accuracy = Metric {
        name: "accuracy".into(),
        unit: "%".into(),
        goal: Some(Goal::Max),
    };
    scene.at(
        100.0,
        [start(2, 0, 0), Event::Register(accuracy), pass(Train, 200)],
    );
    scene.at(101.0, [progress(10, 10), value(Train, "loss", 2.5, 10)]);
    scene.at(109.0, [progress(90, 90), value(Train, "loss", 1.5, 90)]);
    scene.at(110.0, [progress(100, 100)]);
    scene.at(
        120.0,
        [
            progress(200, 200),
            value(Train, "loss", 0.75, 200),
            Event::SplitEnd,
        ],
    );
    scene.at(
        121.0,
        [
            pass(Valid, 50),
            progress(50, 200),
            value(Valid, "accuracy", 91.5, 200),
        ],
    );
    scene.at(122.0, [Event::SplitEnd, Event::Epoch { epoch: 1 }]);
    scene.at(123.0, [end(&[("device", "cpu")], None)]);
    assert_lines(
        &scene.close(124.0),
        &[
            "a run of 2 epochs begins",
            "epoch 1/2 | train 0/200 (0%)",
            "epoch 1/2 | train 100/200 (50%) | step 100 | loss 1.5 | 10/s | 30s left",
            "train: 200 in 20s | loss 0.75",
            "epoch 1/2 | valid 50/50 (100%) | step 200 | accuracy 91.5 % | 21s left",
            "valid: 50 in 1s | accuracy 91.5 %",
            "epoch 1/2 done | 22s left",
            "the run is over after 23s, at step 200",
            "  metric    split    last  lowest  at step  highest  at step",
            "  accuracy  valid  91.5 %                    91.5 %      200",
            "  loss      train    0.75    0.75      200      2.5       10",
            "  device: cpu",
        ],
    );
}

#[test]
fn a_run_of_steps_needs_no_epochs() {
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(Some(2000))]);
    scene.at(
        10.0,
        [progress(0, 500), value(Split::Train, "loss", 0.5, 500)],
    );
    assert_lines(
        &scene.close(11.0),
        &[
            "a run of 2,000 steps begins",
            "step 500/2,000 (25%) | loss 0.5 | 30s left",
        ],
    );
}

#[test]
fn how_far_it_is_is_said_now_and_then_and_only_if_it_is_farther() {
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(None)]);
    for tenth in 1..=600u32 {
        scene.at(f64::from(tenth) / 10.0, [progress(0, tenth.into())]);
    }
    for second in 61..200 {
        scene.at(f64::from(second), []);
    }
    assert_lines(
        &scene.close(200.0),
        &[
            "a run begins",
            "step 1",
            "step 101",
            "step 201",
            "step 301",
            "step 401",
            "step 501",
            "step 600",
        ],
    );
}

#[test]
fn a_run_that_is_resumed_says_where() {
    let mut scene = Scene::new();
    scene.at(0.0, [start(10, 3, 1500)]);
    assert_lines(
        &scene.close(1.0),
        &[
            "a run of 10 epochs goes on after epoch 3, step 1,500",
            "step 1,500",
        ],
    );
}

/// It went on after an epoch 0.
#[test]
fn a_run_of_steps_is_resumed_without_a_word_of_epochs() {
    let mut scene = Scene::new();
    let start = Event::Start {
        epochs: None,
        steps: Some(1),
        epoch: 0,
        step: 1,
    };
    scene.at(0.0, [start]);
    let text = scene.close(1.0);
    assert!(
        text.starts_with("a run of 1 step goes on after step 1\n"),
        "{text}"
    );
}

#[test]
fn checkpoints_that_are_committed_or_fail_are_told_each_time() {
    let committed = |step, durable| Committed {
        step,
        at: 5.0,
        bytes: 12_345_678,
        stall: Some(0.003),
        durable,
    };
    let mut checkpoints = Checkpoints {
        last: Some(committed(100, None)),
        ..Checkpoints::default()
    };
    let mut scene = Scene::new();
    scene.at(
        0.0,
        [start_steps(None), Event::Checkpoints(checkpoints.clone())],
    );
    checkpoints.last = Some(committed(500, Some(1.25)));
    scene.at(0.1, [Event::Checkpoints(checkpoints.clone())]);
    for times in 1..=2 {
        checkpoints.failed = times;
        checkpoints
            .failures
            .push(format!("step {times}: the disk is full"));
        scene.at(0.2, [Event::Checkpoints(checkpoints.clone())]);
    }
    scene.at(0.3, [Event::Checkpoints(checkpoints)]);
    assert_lines(
        &scene.close(1.0),
        &[
            "a run begins",
            "checkpoint: step 500, 12.3 MB in 1.2s, of which training stood still for 3.0ms",
            "checkpoint failed: step 1: the disk is full",
            "checkpoint failed: step 2: the disk is full",
        ],
    );
}

#[test]
fn named_events_are_told_now_and_then_and_counted() {
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(None)]);
    for second in 0..25 {
        scene.at(
            f64::from(second),
            [named("skipped", &format!("at {second}"))],
        );
    }
    scene.at(25.0, [end(&[], None)]);
    assert_lines(
        &scene.close(26.0),
        &[
            "a run begins",
            "skipped: at 0",
            "skipped: at 10 (and 9 more before)",
            "skipped: at 20 (and 9 more before)",
            "the run is over after 25s, at step 0",
            "  skipped: 25 times",
        ],
    );
}

#[test]
fn a_stop_is_told_and_so_is_what_ended_the_run() {
    let stopping = Event::Stopping {
        message: "the disk is full".into(),
    };
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(None)]);
    scene.at(1.0, [stopping.clone()]);
    scene.at(2.0, [stopping.clone()]);
    scene.at(60.0, [end(&[], None)]);
    assert_lines(
        &scene.close(60.0),
        &[
            "a run begins",
            "stopping: the disk is full",
            "the run was stopped after 1m 00s, at step 0: the disk is full",
        ],
    );
    let mut scene = Scene::new();
    scene.at(
        0.0,
        [
            start_steps(None),
            progress(0, 7),
            stopping,
            end(&[], Some("ValueError: 3")),
        ],
    );
    assert_lines(
        &scene.close(5.0),
        &[
            "a run begins",
            "stopping: the disk is full",
            "the run failed after 0s, at step 7: ValueError: 3",
        ],
    );
}

/// It was said to have failed.
#[test]
fn a_run_that_a_person_has_killed_is_said_to_be_killed() {
    let stopping = |message: &str| Event::Stopping {
        message: message.into(),
    };
    for (stopped, error) in [("enough", Some(KILLING)), (KILLING, None)] {
        let mut scene = Scene::new();
        scene.at(0.0, [start(1, 0, 0), stopping(stopped)]);
        scene.at(5.0, [progress(0, 7), end(&[], error)]);
        let text = scene.close(5.0);
        let last = text.lines().next_back();
        let expected = format!("the run was killed after 5s, at step 7: {KILLING}");
        assert_eq!(last, Some(expected.as_str()));
    }
}

#[test]
fn a_stop_that_was_taken_back_is_told_too() {
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(None)]);
    let message = "the disk is full".into();
    scene.at(1.0, [Event::Stopping { message }]);
    scene.at(2.0, [Event::GoingOn]);
    scene.at(3.0, [end(&[], None)]);
    assert_lines(
        &scene.close(3.0),
        &[
            "a run begins",
            "stopping: the disk is full",
            "not stopping any more",
            "the run is over after 3s, at step 0",
        ],
    );
}

#[test]
fn the_time_of_a_pause_counts_for_no_speed() {
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(Some(100)), pass(Split::Train, 100)]);
    scene.at(1000.0, [Event::Paused { seconds: 990.0 }]);
    scene.at(1010.0, [progress(20, 20)]);
    let text = scene.close(1010.0);
    assert!(text.ends_with(" | 1/s | 1m 20s left\n"), "{text}");
}

#[test]
fn a_notice_is_told_before_there_is_a_run_and_when_it_changes() {
    let mut scene = Scene::new();
    for (at, notice) in [
        (0.0, Some("waiting")),
        (1.0, Some("waiting")),
        (2.0, None),
        (3.0, Some("asked")),
    ] {
        scene.run.notice = notice.map(str::to_owned);
        scene.at(at, []);
    }
    assert_lines(&scene.close(4.0), &["waiting", "asked"]);
}

#[test]
fn nothing_of_a_name_or_a_text_reaches_the_terminal_as_a_command() {
    let hostile = "a\u{1b}[2Jb\nc\u{202e}";
    let mut scene = Scene::new();
    scene.at(
        0.0,
        [
            start_steps(None),
            named(hostile, hostile),
            value(Split::Test, hostile, 1.0, 1),
        ],
    );
    scene.at(
        1.0,
        [Event::Stopping {
            message: hostile.into(),
        }],
    );
    scene.at(2.0, [end(&[(hostile, hostile)], Some(hostile))]);
    let text = scene.close(3.0);
    assert!(
        text.chars()
            .all(|c| c == '\n' || (!c.is_control() && c != '\u{202e}')),
        "{text:?}"
    );
    assert_eq!(text.lines().count(), 8, "{text}");
}

#[test]
fn more_metrics_than_have_room_are_counted() {
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(None)]);
    let values = (0..60).map(|n| value(Split::Train, &format!("m{n}"), 1.0, 1));
    scene.at(1.0, values);
    scene.at(2.0, [end(&[], None)]);
    let text = scene.close(2.0);
    assert!(text.contains("m6 1, m7 1, and 52 more\n"), "{text}");
    assert!(text.ends_with("  and 20 more\n"), "{text}");
}

/// A run whose metric has a goal, or none, and a name; it is over.
fn of_one_metric(name: &str, goal: Option<Goal>) -> RunState {
    let mut run = RunState::default();
    let metric = Metric {
        goal,
        ..Metric::new(name)
    };
    for event in [
        start_steps(None),
        Event::Register(metric),
        value(Split::Train, name, 2.5, 10),
        value(Split::Train, name, 0.5, 1200),
        value(Split::Train, name, 1.5, 2000),
        end(&[], None),
    ] {
        run.apply(0.0, event);
    }
    run
}

/// There was a column `best`, with a range in it that did not say of what.
#[test]
fn the_summary_says_of_each_value_whether_it_is_the_lowest_or_the_highest() {
    for (goal, titles, values) in [
        (
            Some(Goal::Min),
            "  metric  split  last  lowest  at step",
            "  loss    train   1.5     0.5    1,200",
        ),
        (
            Some(Goal::Max),
            "  metric  split  last  highest  at step",
            "  loss    train   1.5      2.5       10",
        ),
        (
            None,
            "  metric  split  last  lowest  at step  highest  at step",
            "  loss    train   1.5     0.5    1,200      2.5       10",
        ),
    ] {
        let run = of_one_metric("loss", goal);
        assert_eq!(summary_lines(&run, None)[1..], [titles, values]);
    }
}

#[test]
fn a_metric_without_a_finite_value_has_no_lowest_and_no_highest_one() {
    let mut run = RunState::default();
    for event in [
        start_steps(None),
        value(Split::Train, "loss", f64::NAN, 1),
        end(&[], None),
    ] {
        run.apply(0.0, event);
    }
    let lines = ["  metric  split  last", "  loss    train   NaN"];
    assert_eq!(summary_lines(&run, None)[1..], lines);
}

#[test]
fn the_summary_fits_into_a_narrow_terminal() {
    let name = "encoder/layers/11/attention/loss";
    let run = of_one_metric(name, None);
    let all = summary_lines(&run, Some(82));
    assert!(all[2].starts_with(&format!("  {name}  train")), "{all:?}");
    for columns in [81, 70, 62] {
        let lines = summary_lines(&run, Some(columns));
        let width = lines[1].chars().count();
        assert_eq!((lines.len(), width), (3, columns), "{lines:?}");
        assert!(
            lines[2].starts_with("  encode") && lines[2].contains("loss  train"),
            "{lines:?}"
        );
    }
    assert_eq!(
        summary_lines(&run, Some(40))[1..],
        [
            "  encoder/layers…ttention/loss train 1.5",
            "    lowest 0.5 at step 1,200",
            "    highest 2.5 at step 10",
        ]
    );
    // However narrow it is, some of everything is there.
    let narrow = summary_lines(&run, Some(1));
    assert_eq!(narrow[1], "  encode…/loss train 1.5");
}

#[test]
fn a_name_of_a_megabyte_takes_no_more_room_than_a_long_one() {
    let name = format!("{}/loss", "a".repeat(1 << 20));
    let run = of_one_metric(&name, None);
    let lines = summary_lines(&run, None);
    assert!(lines.iter().all(|line| line.len() < 120), "{lines:?}");
    assert!(lines[2].contains('…') && lines[2].contains("aaa/loss  train"));

    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(None)]);
    scene.at(1.0, [value(Split::Train, &name, 1.0, 1)]);
    let text = scene.close(1.0);
    assert!(text.lines().all(|line| line.len() < 120), "{text}");
}

#[test]
fn once_is_no_plural() {
    let mut scene = Scene::new();
    scene.at(0.0, [start(1, 0, 0), named("skipped", "")]);
    scene.at(1.0, [end(&[], None)]);
    let text = scene.close(1.0);
    assert!(text.starts_with("a run of 1 epoch begins\n"), "{text}");
    assert!(text.ends_with("  skipped: 1 time\n"), "{text}");
}

#[test]
fn there_is_nothing_to_sum_up_while_the_run_goes_on() {
    let mut scene = Scene::new();
    scene.at(0.0, [start_steps(None)]);
    assert!(summary_lines(&scene.run, None).is_empty());
    assert!(scene.plain.requests(&scene.run).unwrap().is_empty());
    scene.at(1.0, [end(&[], None)]);
    assert_eq!(scene.plain.requests(&scene.run).unwrap(), [Request::Leave]);
}

#[test]
fn the_summary_knows_how_checkpoints_ended() {
    let checkpoints = Checkpoints {
        saved: 1200,
        failed: 2,
        last: Some(Committed {
            step: 12_000,
            at: 0.0,
            bytes: 1,
            stall: None,
            durable: None,
        }),
        ..Checkpoints::default()
    };
    let mut run = RunState::default();
    for event in [
        start_steps(None),
        Event::Checkpoints(checkpoints),
        end(&[], None),
    ] {
        run.apply(0.0, event);
    }
    let line = "  checkpoints: 1,200 saved, 2 failed; the last is step 12,000";
    assert_eq!(summary_lines(&run, None)[1..], [line]);

    run.apply(
        0.0,
        Event::Saving(InFlight {
            step: 12_500,
            done: 1,
            total: 2,
            seconds: 0.5,
        }),
    );
    let line = format!("{line}; step 12,500 is being saved");
    assert_eq!(summary_lines(&run, None)[1..], [line]);
}

#[test]
fn a_reader_that_is_gone_is_an_error_that_says_so() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut run = RunState::default();
    run.apply(0.0, start_steps(None));
    let error = Plain::new(Closed).draw(&run, 0.0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}
