use super::*;
use crate::renderer::checkpoints::InFlight;
use crate::renderer::event::Goal;
use crate::renderer::history::{BUCKETS, RECENT};

fn run(events: impl IntoIterator<Item = (f64, Event)>) -> RunState {
    let mut run = RunState::default();
    for (at, event) in events {
        run.apply(at, event);
    }
    run
}

fn start(epochs: u64, epoch: u64, step: u64) -> Event {
    Event::Start {
        epochs: Some(epochs),
        steps: None,
        epoch,
        step,
    }
}

fn start_steps(steps: u64, step: u64) -> Event {
    Event::Start {
        epochs: None,
        steps: Some(steps),
        epoch: 0,
        step,
    }
}

fn train(done: u64, total: u64) -> Event {
    pass(Split::Train, done, Some(total))
}

fn pass(split: Split, done: u64, total: Option<u64>) -> Event {
    Event::SplitStart { split, done, total }
}

fn progress(done: u64, step: u64) -> Event {
    Event::Progress { done, step }
}

fn loss(value: f64, step: u64) -> Event {
    Event::Numeric {
        split: Split::Train,
        name: "loss".into(),
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

fn text(name: &str, text: &str) -> Event {
    Event::Text {
        split: Split::Valid,
        name: name.into(),
        text: text.into(),
    }
}

fn end() -> Event {
    Event::End {
        summary: Vec::new(),
        error: None,
    }
}

fn is(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 1e-9)
}

#[test]
fn the_time_left_goes_by_the_speed_so_far() {
    // Two epochs of ten; a second each.
    let mut run = run([(0.0, start(2, 0, 0)), (0.0, train(0, 10))]);
    assert_eq!(run.left(1.0), None);
    run.apply(5.0, progress(5, 5));
    assert!(is(run.fraction(), 0.25));
    assert!(is(run.left(5.0), 15.0));
    let pass = run.pass.as_ref().unwrap();
    assert!(is(pass.rate(5.0), 1.0) && is(pass.left(5.0), 5.0) && is(pass.fraction(), 0.5));
}

#[test]
fn what_an_earlier_process_did_says_nothing_of_the_speed_of_this_one() {
    // Goes on after epoch 5 and the middle of epoch 6; a tenth of an epoch takes a second.
    let run = run([
        (100.0, start(10, 5, 550)),
        (100.0, train(50, 100)),
        (101.0, progress(60, 560)),
    ]);
    assert!(is(run.fraction(), 0.56));
    assert!(is(run.left(101.0), 44.0));
    let pass = run.pass.as_ref().unwrap();
    assert!(is(pass.rate(101.0), 10.0) && is(pass.left(101.0), 4.0));
}

#[test]
fn a_pass_that_comes_before_training_leaves_open_where_training_goes_on() {
    let run = run([
        (0.0, start(10, 5, 0)),
        (0.0, pass(Split::Valid, 0, Some(7))),
        (0.0, Event::SplitEnd),
        (0.0, train(50, 100)),
        (1.0, progress(60, 1)),
    ]);
    assert!(is(run.left(1.0), 44.0));
}

#[test]
fn a_run_that_tells_of_epochs_only_has_a_time_left() {
    let run = run([(10.0, start(4, 1, 0)), (15.0, Event::Epoch { epoch: 2 })]);
    assert!(is(run.fraction(), 0.5));
    assert!(is(run.left(15.0), 10.0));
}

#[test]
fn a_run_that_counts_steps_has_a_time_left_resumed_or_not() {
    let run = run([(0.0, start_steps(1000, 600)), (8.0, progress(0, 700))]);
    assert!(is(run.fraction(), 0.7));
    assert!(is(run.left(8.0), 24.0));
}

#[test]
fn steps_are_the_measure_where_both_are_known() {
    let both = Event::Start {
        epochs: Some(2),
        steps: Some(100),
        epoch: 0,
        step: 0,
    };
    let run = run([(0.0, both), (0.0, train(0, 100)), (1.0, progress(50, 10))]);
    assert!(is(run.fraction(), 0.1));
}

#[test]
fn progress_does_not_fall_back_while_an_epoch_is_validated() {
    let mut run = run([(0.0, start(2, 0, 0)), (0.0, train(0, 10))]);
    let then = [
        (1.0, progress(10, 10), 0.5),
        (1.0, Event::SplitEnd, 0.5),
        (1.0, pass(Split::Valid, 0, Some(5)), 0.5),
        (2.0, progress(3, 10), 0.5),
        (2.0, Event::SplitEnd, 0.5),
        (2.0, Event::Epoch { epoch: 1 }, 0.5),
        (2.0, train(0, 10), 0.5),
        (3.0, progress(5, 15), 0.75),
    ];
    for (at, event, fraction) in then {
        run.apply(at, event.clone());
        assert!(
            is(run.fraction(), fraction),
            "{event:?}: {:?}",
            run.fraction()
        );
    }
}

#[test]
fn a_pass_of_unknown_length_counts_once_it_is_over() {
    let mut run = run([(0.0, start(4, 0, 0)), (0.0, pass(Split::Train, 0, None))]);
    run.apply(1.0, progress(5, 5));
    assert!(is(run.fraction(), 0.0));
    assert_eq!(run.pass.as_ref().and_then(Pass::fraction), None);
    run.apply(2.0, Event::SplitEnd);
    assert!(is(run.fraction(), 0.25));
}

#[test]
fn a_pass_that_the_end_of_the_run_cuts_short_is_not_counted_in_full() {
    let mut run = run([
        (0.0, start(2, 0, 0)),
        (0.0, train(0, 10)),
        (1.0, progress(5, 5)),
    ]);
    run.apply(1.0, end());
    assert!(is(run.fraction(), 0.25));
    assert_eq!(
        (run.left(1.0), run.pass.is_none(), run.passes),
        (None, true, 1)
    );
}

#[test]
fn nothing_is_known_of_the_whole_without_a_number_of_epochs_or_steps() {
    let unknown = Event::Start {
        epochs: None,
        steps: None,
        epoch: 0,
        step: 0,
    };
    let mut run = run([(0.0, unknown), (0.0, train(0, 10)), (1.0, progress(5, 5))]);
    assert_eq!((run.fraction(), run.left(1.0)), (None, None));
    run.apply(1.0, start(0, 0, 0));
    assert_eq!((run.fraction(), run.left(2.0)), (None, None));
}

#[test]
fn a_pass_that_begins_ends_the_one_before() {
    let run = run([
        (1.0, train(0, 10)),
        (2.0, progress(9, 9)),
        (3.0, pass(Split::Valid, 0, None)),
    ]);
    let ended = run.ended.as_ref().unwrap();
    assert_eq!(
        (ended.pass.split, ended.pass.done, run.passes),
        (Split::Train, 9, 1)
    );
    assert!(is(Some(ended.at - ended.pass.began), 2.0));
    assert_eq!(run.pass.as_ref().map(|pass| pass.split), Some(Split::Valid));
}

#[test]
fn values_beyond_the_step_that_a_run_resumes_from_are_forgotten() {
    let mut run = run([(0.0, start(9, 0, 0))]);
    for step in 1..=20 {
        run.apply(step as f64, loss(f64::from(step as u32), step));
    }
    run.apply(30.0, start(9, 1, 12));
    let history = &run.numeric[0].series[0].1;
    assert_eq!(history.last(), Some((12, 12.0)));
    assert_eq!(history.max(), Some((12, 12.0)));
}

#[test]
fn a_run_that_begins_anew_forgets_another_one_in_the_same_directory() {
    let metric = Metric {
        name: "loss".into(),
        unit: "nats".into(),
        goal: Some(Goal::Min),
    };
    let run = run([
        (0.0, Event::Register(metric.clone())),
        (1.0, loss(1.0, 0)),
        (1.0, text("sample", "once")),
        (1.0, named("skipped", "")),
        (2.0, start(9, 0, 0)),
    ]);
    assert!(run.texts.is_empty() && run.counters.is_empty() && run.events.is_empty());
    assert!(run.numeric[0].series.is_empty());
    assert_eq!(run.numeric[0].metric, metric);
}

#[test]
fn how_an_earlier_process_stood_is_not_how_this_one_stands() {
    let saving = InFlight {
        step: 3,
        done: 1,
        total: 2,
        seconds: 0.5,
    };
    let mut run = run([
        (0.0, start(9, 0, 0)),
        (0.0, train(0, 10)),
        (1.0, Event::Saving(saving)),
        (
            1.0,
            Event::Stopping {
                message: "the disk is full".into(),
            },
        ),
        (2.0, end()),
    ]);
    run.apply(3.0, start(9, 1, 10));
    assert_eq!(
        (run.stopping.as_ref(), run.end.as_ref(), run.pass.as_ref()),
        (None, None, None)
    );
    assert_eq!(
        (run.checkpoints.as_ref(), run.passes, run.resumed_after),
        (None, 0, (1, 10))
    );
    assert!(is(run.started, 3.0));
}

#[test]
fn series_are_in_the_order_of_their_splits_and_metrics_in_that_of_their_coming() {
    let of = |split, name: &str| Event::Numeric {
        split,
        name: name.into(),
        value: 1.0,
        step: 1,
    };
    let run = run([
        (0.0, of(Split::Test, "b")),
        (0.0, of(Split::Train, "a")),
        (0.0, of(Split::Train, "b")),
    ]);
    let names: Vec<&str> = run
        .numeric
        .iter()
        .map(|known| known.metric.name.as_str())
        .collect();
    let splits: Vec<Split> = run.numeric[0]
        .series
        .iter()
        .map(|(split, _)| *split)
        .collect();
    assert_eq!(
        (names, splits),
        (vec!["b", "a"], vec![Split::Train, Split::Test])
    );
}

#[test]
fn events_of_one_name_are_counted_and_the_last_ones_remembered() {
    let mut run = RunState::default();
    for at in 0..150 {
        run.apply(f64::from(at), named("skipped", &at.to_string()));
    }
    let (name, text) = ("skipped".into(), String::new());
    run.apply(
        150.0,
        Event::Named {
            name,
            text,
            count: 50,
        },
    );
    assert_eq!(run.counters, [("skipped".to_owned(), 200)]);
    assert_eq!(run.events.len(), EVENTS);
    assert_eq!(run.events[EVENTS - 2], (149.0, "skipped: 149".to_owned()));
    assert_eq!(run.events[EVENTS - 1], (150.0, "skipped".to_owned()));
}

#[test]
fn a_name_for_each_step_does_not_fill_the_memory() {
    let mut run = RunState::default();
    for step in 0..5000 {
        let name = format!("metric {step}");
        run.apply(0.0, Event::Register(Metric::new(&name)));
        run.apply(0.0, text(&name, "text"));
        run.apply(0.0, named(&name, "text"));
        let split = Split::Train;
        let value = 1.0;
        run.apply(
            0.0,
            Event::Numeric {
                split,
                name,
                value,
                step,
            },
        );
    }
    assert_eq!(
        (run.numeric.len(), run.texts.len(), run.counters.len()),
        (NAMES, NAMES, NAMES)
    );
    // Those that are known go on.
    run.apply(0.0, text("metric 7", "another"));
    assert_eq!(run.texts[7].text, "another");
}

#[test]
fn long_names_and_texts_are_shortened_and_found_again() {
    let long = "ä".repeat(10_000);
    let mut run = RunState::default();
    for _ in 0..2 {
        run.apply(0.0, text(&long, &long));
        run.apply(0.0, named(&long, &long));
        run.apply(0.0, Event::Register(Metric::new(&long)));
    }
    assert_eq!(
        (run.texts.len(), run.counters.len(), run.numeric.len()),
        (1, 1, 1)
    );
    let known = &run.texts[0];
    assert_eq!(known.name.chars().count(), NAME);
    assert!(known.text.len() <= TEXT && known.text.len() > TEXT - 6);
    assert!(known.name.contains('…') && known.text.ends_with('…'));
    assert_eq!(run.counters[0].1, 2);
    let most = NAME * 'ä'.len_utf8() + TEXT + 4;
    assert!(run.events.iter().all(|(_, line)| line.len() <= most));
}

/// They were taken for one metric.
#[test]
fn long_names_that_differ_in_the_end_are_two() {
    let mut run = RunState::default();
    let long = "a/very/long/path/".repeat(100);
    for (name, value) in [("loss", 1.0), ("accuracy", 2.0)] {
        let (split, name) = (Split::Train, format!("{long}{name}"));
        let step = 1;
        run.apply(
            0.0,
            Event::Numeric {
                split,
                name,
                value,
                step,
            },
        );
    }
    assert_eq!(run.numeric.len(), 2);
    assert!(run.numeric[0].metric.name.ends_with("/loss"));
}

#[test]
fn what_a_training_says_in_the_end_takes_no_more_room_than_anything_else() {
    let long = "a".repeat(2 * TEXT);
    let summary = vec![(long.clone(), long.clone()); 2 * NAMES];
    let error = Some(long);
    let run = run([(0.0, Event::End { summary, error })]);
    let end = run.end.unwrap();
    assert_eq!(end.summary.len(), NAMES);
    let bytes = |(name, value): &(String, String)| name.len().max(value.len());
    assert!(end.summary.iter().map(bytes).max() <= Some(TEXT));
    assert!(end.error.unwrap().len() <= TEXT);
}

/// The time of a pause counted: after a night with Ctrl-Z a run had weeks left.
#[test]
fn a_time_in_which_the_process_was_stopped_counts_for_no_speed() {
    let mut run = run([
        (0.0, start(2, 0, 0)),
        (0.0, train(0, 10)),
        (4.0, progress(4, 4)),
        (1004.0, Event::Paused { seconds: 1000.0 }),
    ]);
    run.apply(1005.0, progress(5, 5));
    let pass = run.pass.as_ref().unwrap();
    assert!(is(pass.rate(1005.0), 1.0) && is(pass.left(1005.0), 5.0));
    assert!(is(run.left(1005.0), 15.0));
    // It is over for a process that goes on with the run.
    run.apply(2000.0, start(2, 1, 10));
    run.apply(2000.0, train(0, 10));
    run.apply(2001.0, progress(5, 15));
    assert!(is(run.left(2001.0), 1.0));
}

#[test]
fn a_pause_that_cannot_be_leaves_the_rest_as_it_is() {
    for seconds in [-5.0, f64::NAN] {
        let run = run([
            (0.0, start_steps(10, 0)),
            (1.0, Event::Paused { seconds }),
            (2.0, progress(0, 5)),
        ]);
        assert!(is(run.left(2.0), 2.0), "{seconds}");
    }
}

#[test]
fn a_stop_that_was_taken_back_is_none() {
    let stopping = |message: &str| Event::Stopping {
        message: message.into(),
    };
    let mut run = run([(0.0, start(2, 0, 0)), (1.0, stopping("the disk is full"))]);
    run.apply(2.0, Event::GoingOn);
    assert_eq!(run.stopping, None);
    run.apply(3.0, stopping("time is up"));
    assert_eq!(run.stopping.as_deref(), Some("time is up"));
}

#[test]
fn a_run_was_killed_if_that_is_what_ended_it() {
    let stopped = |message: &str| Event::Stopping {
        message: message.into(),
    };
    let ended = |error: Option<&str>| Event::End {
        summary: Vec::new(),
        error: error.map(str::to_owned),
    };
    for (events, was_killed) in [
        (vec![stopped(KILLING)], false),
        (vec![ended(Some(KILLING))], true),
        (vec![stopped(KILLING), ended(None)], true),
        (vec![stopped(KILLING), ended(Some("OSError: 5"))], false),
        (vec![stopped("enough"), ended(None)], false),
        (vec![ended(None)], false),
    ] {
        let told = format!("{events:?}");
        let run = run(events.into_iter().map(|event| (0.0, event)));
        assert_eq!(run.was_killed(), was_killed, "{told}");
    }
}

#[test]
fn a_million_steps_are_remembered_in_bounded_memory() {
    let mut run = run([(0.0, start_steps(1_000_000, 0))]);
    for step in 1..=1_000_000 {
        run.apply(step as f64, loss(1.0, step));
        run.apply(step as f64, progress(step, step));
    }
    let history = &run.numeric[0].series[0].1;
    assert!(history.all().len() <= BUCKETS && history.recent().len() <= RECENT);
    assert_eq!(history.count(), (1_000_000, 0));
    assert!(is(run.fraction(), 1.0));
}

#[test]
fn the_save_in_flight_is_told_apart_from_all_else_about_checkpoints() {
    let checkpoints = Checkpoints {
        saved: 4,
        ..Checkpoints::default()
    };
    let saving = |done| InFlight {
        step: 5,
        done,
        total: 10,
        seconds: 1.0,
    };
    let run = run([
        (0.0, Event::Checkpoints(checkpoints)),
        (1.0, Event::Saving(saving(1))),
        (2.0, Event::Saving(saving(2))),
    ]);
    let known = run.checkpoints.as_ref().unwrap();
    assert_eq!(
        (known.saved, known.in_flight.as_ref()),
        (4, Some(&saving(2)))
    );
}
