use std::time::SystemTime;

use tempfile::TempDir;

use super::*;
use crate::renderer::checkpoints::{Checkpoints, InFlight, Kept};
use crate::renderer::event::{Goal, Metric, Split};

fn loss(value: f64, step: u64) -> Event {
    Event::Numeric {
        split: Split::Train,
        name: "loss".into(),
        value,
        step,
    }
}

fn start(step: u64) -> Event {
    Event::Start {
        epochs: Some(3),
        steps: None,
        epoch: 0,
        step,
    }
}

fn end() -> Event {
    Event::End {
        summary: vec![("best".into(), "1.5".into())],
        error: Some("out of luck".into()),
    }
}

fn in_flight(done: u64) -> InFlight {
    InFlight {
        step: 10,
        done,
        total: 100,
        seconds: 0.5,
    }
}

fn named(name: &str, text: &str, count: u64) -> Event {
    Event::Named {
        name: name.into(),
        text: text.into(),
        count,
    }
}

/// One of each.
fn all_events() -> Vec<Event> {
    let split = Split::Valid;
    let checkpoints = Checkpoints {
        directory: "runs/a".into(),
        in_flight: Some(in_flight(1)),
        kept: vec![Kept {
            step: 3,
            bytes: 5,
            why: "KeepLast(3)".into(),
        }],
        ..Checkpoints::default()
    };
    let (name, text) = ("sample".to_owned(), "a\n\u{1b}[2Jb".to_owned());
    vec![
        start(7),
        Event::Register(Metric {
            name: "loss".into(),
            unit: "nats".into(),
            goal: Some(Goal::Min),
        }),
        loss(0.1 + 0.2, u64::MAX),
        Event::Text { split, name, text },
        Event::SplitStart {
            split,
            done: 3,
            total: None,
        },
        Event::Progress { done: 4, step: 8 },
        Event::SplitEnd,
        Event::Epoch { epoch: 1 },
        named("skipped", "", 1),
        named("skipped", "an overflow", 3),
        Event::Stopping {
            message: "enough".into(),
        },
        Event::Checkpoints(checkpoints),
        Event::Saving(in_flight(2)),
        end(),
    ]
}

/// Everything in the file.
fn read(directory: &TempDir) -> Vec<(f64, Event)> {
    let mut events = Vec::new();
    let mut reader = Reader::open(directory.path()).unwrap();
    reader.read(|at, event| events.push((at, event))).unwrap();
    events
}

fn text(directory: &TempDir) -> String {
    fs::read_to_string(directory.path().join(EVENTS)).unwrap()
}

fn write(directory: &TempDir, events: &[(f64, Event)]) -> Writer {
    let mut writer = Writer::open(directory.path()).unwrap();
    for (at, event) in events {
        writer.write(*at, event).unwrap();
    }
    writer
}

fn append(directory: &TempDir, bytes: &[u8]) {
    let path = directory.path().join(EVENTS);
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn every_event_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let events: Vec<(f64, Event)> = all_events()
        .into_iter()
        .map(|event| (12.25, event))
        .collect();
    let mut lines = Vec::new();
    for (at, event) in &events {
        Line { at: *at, event }.append_to(&mut lines);
    }
    append(&directory, &lines);
    assert_eq!(read(&directory), events);
}

#[test]
fn numbers_that_json_does_not_have_come_back_too() {
    let directory = tempfile::tempdir().unwrap();
    for (at, value) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY]
        .into_iter()
        .enumerate()
    {
        let mut line = Vec::new();
        Line {
            at: at as f64,
            event: &loss(value, 1),
        }
        .append_to(&mut line);
        append(&directory, &line);
        let Some((_, Event::Numeric { value: found, .. })) = read(&directory).pop() else {
            panic!("it is not there");
        };
        assert_eq!(found.to_bits() << 1, value.to_bits() << 1, "{value}");
        assert_eq!(found.is_sign_negative(), value.is_sign_negative());
    }
}

#[test]
fn a_line_says_what_it_is_and_when_it_was() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, &[(1.234_567, start(0))]);
    let line = r#"{"at":1.235,"event":"start","epochs":3,"epoch":0,"step":0}"#;
    assert_eq!(text(&directory), format!("{line}\n"));
}

#[test]
fn values_between_points_are_averaged() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = write(&directory, &[(0.0, start(0))]);
    for step in 1..=10 {
        writer
            .write(step as f64 / 100.0, &loss(step as f64, step))
            .unwrap();
    }
    assert_eq!(read(&directory).len(), 1);
    writer.write(0.25, &loss(11.0, 11)).unwrap();
    assert_eq!(read(&directory)[1..], [(0.25, loss(6.0, 11))]);
    writer.write(0.3, &loss(7.0, 12)).unwrap();
    writer.flush().unwrap();
    assert_eq!(read(&directory)[2..], [(0.3, loss(7.0, 12))]);
}

#[test]
fn a_value_that_is_not_finite_is_not_averaged_away() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = write(&directory, &[(0.0, start(0))]);
    for (step, value) in [(1, 1.0), (2, f64::INFINITY), (3, 3.0)] {
        writer.write(0.1, &loss(value, step)).unwrap();
    }
    writer.flush().unwrap();
    assert_eq!(
        read(&directory)[1..],
        [(0.1, loss(f64::INFINITY, 2)), (0.1, loss(2.0, 3))]
    );
}

#[test]
fn a_long_run_has_points_farther_apart_and_never_farther_than_ten_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = write(&directory, &[(0.0, start(0))]);
    // Two days, a step each second.
    for step in 1..=172_800 {
        writer.write(step as f64, &loss(1.0, step)).unwrap();
        writer
            .write(step as f64, &Event::Progress { done: step, step })
            .unwrap();
    }
    let events = read(&directory);
    let points: Vec<f64> = events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Numeric { .. }))
        .map(|(at, _)| *at)
        .collect();
    let gaps = points.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(gaps.clone().fold(0.0, f64::max) <= 11.0);
    assert!(gaps.fold(f64::MAX, f64::min) < 1.5);
    assert!((15_000..30_000).contains(&points.len()), "{}", points.len());
    assert!(text(&directory).len() < 6_000_000);
}

#[test]
fn a_run_that_tells_a_lot_does_not_fill_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = write(&directory, &[(0.0, start(0))]);
    // A minute of an epoch each millisecond, with all that comes with one.
    for epoch in 0..60_000 {
        let at = epoch as f64 / 1000.0;
        let checkpoints = Checkpoints {
            saved: epoch,
            ..Checkpoints::default()
        };
        for event in [
            Event::SplitStart {
                split: Split::Train,
                done: 0,
                total: Some(1),
            },
            Event::Progress {
                done: 1,
                step: epoch,
            },
            loss(1.0, epoch),
            Event::SplitEnd,
            named("skipped", "", 1),
            Event::Register(Metric {
                unit: epoch.to_string(),
                ..Metric::new("loss")
            }),
            Event::Checkpoints(checkpoints),
            Event::Epoch { epoch },
        ] {
            writer.write(at, &event).unwrap();
        }
    }
    writer.flush().unwrap();
    assert!(text(&directory).len() < 60 * 4 * 8 * 200);
    let events = read(&directory);
    let times = events.iter().map(|(_, event)| match event {
        Event::Named { count, .. } => *count,
        _ => 0,
    });
    assert_eq!(times.sum::<u64>(), 60_000);
    assert_eq!(events.last().unwrap().1, Event::Epoch { epoch: 59_999 });
}

#[test]
fn what_begins_and_ends_a_run_is_written_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let stopping = Event::Stopping {
        message: "enough".into(),
    };
    let events = [
        (0.0, start(0)),
        (0.01, loss(1.0, 1)),
        (0.02, stopping),
        (0.03, end()),
    ];
    let writer = write(&directory, &events);
    assert_eq!(read(&directory), events);
    drop(writer);
}

#[test]
fn what_a_person_waits_for_is_written_soon() {
    let directory = tempfile::tempdir().unwrap();
    // The run is a day old: points are ten seconds apart.
    let mut writer = write(&directory, &[(0.0, start(0)), (86_400.0, loss(1.0, 1))]);
    let before = read(&directory).len();
    writer.write(86_401.0, &loss(1.0, 2)).unwrap();
    writer.write(86_403.0, &loss(1.0, 3)).unwrap();
    assert_eq!(read(&directory).len(), before);
    writer.write(86_403.1, &Event::Epoch { epoch: 1 }).unwrap();
    assert_eq!(read(&directory).len(), before + 2);
    writer.write(86_403.2, &Event::Epoch { epoch: 2 }).unwrap();
    assert_eq!(read(&directory).len(), before + 2);
    writer.tick(86_405.7).unwrap();
    assert_eq!(
        read(&directory).last().unwrap().1,
        Event::Epoch { epoch: 2 }
    );
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = write(&directory, &[(1e9, start(0)), (1e9, loss(1.0, 1))]);
    writer.write(1e6, &loss(2.0, 2)).unwrap();
    writer.write(1e6 + 1.0, &loss(3.0, 3)).unwrap();
    assert_eq!(read(&directory).last(), Some(&(1e6 + 1.0, loss(3.0, 3))));
}

/// A run in a long step had nothing to write, and was taken for one that has died.
#[test]
fn a_file_that_nothing_is_added_to_is_touched_now_and_then() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(EVENTS);
    let mut writer = write(&directory, &[(100.0, start(0))]);
    let lines = text(&directory);
    let is_touched = |now| {
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        writer.tick(now).unwrap();
        file.metadata().unwrap().modified().unwrap() > SystemTime::UNIX_EPOCH
    };
    // In the end the clock is set back.
    let touched = [105.0, 110.0, 119.0, 120.0, 1.0].map(is_touched);
    assert_eq!(touched, [false, true, false, true, true]);
    assert_eq!(text(&directory), lines);
}

#[test]
fn a_metric_is_registered_once_and_before_its_values() {
    let directory = tempfile::tempdir().unwrap();
    let register = |unit: &str| {
        Event::Register(Metric {
            unit: unit.into(),
            ..Metric::new("loss")
        })
    };
    let mut writer = write(&directory, &[(0.0, start(0)), (0.1, loss(1.0, 1))]);
    for unit in ["bits", "nats", "nats"] {
        writer.write(0.1, &register(unit)).unwrap();
    }
    writer.flush().unwrap();
    writer.write(0.2, &register("nats")).unwrap();
    writer.flush().unwrap();
    assert_eq!(
        read(&directory)[1..],
        [(0.1, register("nats")), (0.1, loss(1.0, 1))]
    );
}

#[test]
fn while_a_save_is_under_way_only_that_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = write(&directory, &[(0.0, start(0))]);
    let mut checkpoints = Checkpoints {
        kept: vec![Kept {
            step: 5,
            bytes: 1,
            why: "KeepAll()".into(),
        }],
        saved: 1,
        ..Checkpoints::default()
    };
    let mut tell = |at, checkpoints: &Checkpoints| {
        writer
            .write(at, &Event::Checkpoints(checkpoints.clone()))
            .unwrap();
        writer.flush().unwrap();
    };
    tell(1.0, &checkpoints);
    let mut expected = vec![Event::Checkpoints(checkpoints.clone())];
    for done in [1, 2] {
        checkpoints.in_flight = Some(in_flight(done));
        tell(2.0, &checkpoints);
        expected.push(Event::Saving(in_flight(done)));
    }
    // Nothing is new.
    tell(3.0, &checkpoints);
    checkpoints.in_flight = None;
    checkpoints.saved = 2;
    tell(4.0, &checkpoints);
    expected.push(Event::Checkpoints(checkpoints));
    let told: Vec<Event> = read(&directory)
        .into_iter()
        .skip(1)
        .map(|(_, event)| event)
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn a_torn_line_of_a_run_that_died_costs_no_other_line() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, &[(0.0, start(0))]);
    append(&directory, br#"{"at":1.0,"event":"epo"#);
    write(&directory, &[(2.0, start(5))]);
    assert_eq!(read(&directory), [(0.0, start(0)), (2.0, start(5))]);
    // Nothing is torn any more.
    write(&directory, &[(3.0, end())]);
    assert!(!text(&directory).contains("\n\n"));
}

#[test]
fn the_directory_is_made_if_need_be() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("a/b");
    Writer::open(&deep).unwrap().write(0.0, &start(0)).unwrap();
    assert!(deep.join(EVENTS).is_file());
}

#[test]
fn several_writers_do_not_mix_their_lines() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut writer = Writer::open(directory.path()).unwrap();
                for step in 0..500 {
                    writer.write(step as f64, &loss(1.0, step)).unwrap();
                }
                writer.flush().unwrap();
            });
        }
    });
    assert_eq!(read(&directory).len(), 2000);
    assert_eq!(text(&directory).lines().count(), 2000);
}

#[test]
fn a_reader_follows_a_file_that_grows() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader::open(directory.path()).unwrap();
    let mut events = Vec::new();
    let mut read = || {
        let mut new = Vec::new();
        let any = reader.read(|at, event| new.push((at, event))).unwrap();
        assert_eq!(any, !new.is_empty());
        events.append(&mut new);
        events.len()
    };
    assert_eq!(read(), 0); // it is not there yet
    write(&directory, &[(0.0, start(0))]);
    assert_eq!(read(), 1);
    assert_eq!(read(), 1);
    append(&directory, br#"{"at":1.0,"event":"#);
    assert_eq!(read(), 1);
    append(&directory, b"\"epoch\",\"epoch\":1}\n{\"at");
    assert_eq!(read(), 2);
    append(&directory, b"\":2.0,\"event\":\"split_end\"}\n");
    assert_eq!(read(), 3);
    assert_eq!(
        events[1..],
        [(1.0, Event::Epoch { epoch: 1 }), (2.0, Event::SplitEnd)]
    );
}

#[test]
fn what_is_not_understood_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, &[(0.0, start(0))]);
    append(
        &directory,
        b"\n\xff\xfe\0\n[]\nnull\n{\"at\":1.0}\n{\"event\":\"split_end\"}\n",
    );
    append(
        &directory,
        b"{\"at\":1.0,\"event\":\"of a newer version\",\"x\":[{}]}\n",
    );
    append(
        &directory,
        b"{\"at\":1.0,\"event\":\"epoch\",\"epoch\":-1}\n",
    );
    append(&directory, "[".repeat(100_000).as_bytes());
    append(
        &directory,
        b"\n{\"at\":1.0,\"event\":\"epoch\",\"epoch\":2,\"more\":true}\n",
    );
    assert_eq!(
        read(&directory),
        [(0.0, start(0)), (1.0, Event::Epoch { epoch: 2 })]
    );
}

#[test]
fn a_line_without_an_end_does_not_fill_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (mut reader, mut events) = (Reader::open(directory.path()).unwrap(), Vec::new());
    let named = format!(
        "{{\"at\":1.0,\"event\":\"named\",\"name\":\"{}\"}}\n",
        "x".repeat(3 << 20)
    );
    append(&directory, named.as_bytes());
    append(&directory, b"{\"at\":2.0,\"event\":\"split_end\"}\n");
    append(&directory, "x".repeat(3 << 20).as_bytes());
    reader.read(|at, event| events.push((at, event))).unwrap();
    append(&directory, b"\n{\"at\":3.0,\"event\":\"split_end\"}\n");
    reader.read(|at, event| events.push((at, event))).unwrap();
    assert_eq!(events, [(2.0, Event::SplitEnd), (3.0, Event::SplitEnd)]);
}

#[test]
fn a_file_that_was_cut_or_replaced_is_read_from_its_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(EVENTS);
    write(&directory, &[(0.0, start(0)), (1.0, end())]);
    let mut reader = Reader::open(directory.path()).unwrap();
    let mut read = || {
        let mut count = 0;
        let any = reader.read(|_, _| count += 1).unwrap();
        (any, count, reader.restarted())
    };
    assert_eq!(read(), (true, 2, false));
    fs::write(&path, "").unwrap();
    assert_eq!(read(), (true, 0, true));
    assert_eq!(read(), (false, 0, false));
    write(&directory, &[(2.0, start(0))]);
    assert_eq!(read(), (true, 1, false));
    // While the old file is open, another one cannot have its number.
    fs::remove_file(&path).unwrap();
    assert_eq!(read(), (false, 0, false));
    write(&directory, &[(3.0, start(0)), (4.0, end())]);
    if cfg!(unix) {
        assert_eq!(read(), (true, 0, true));
        assert_eq!(read(), (true, 2, false));
    }
}

#[test]
fn a_reader_knows_when_the_file_was_written_to_last() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = Reader::open(directory.path()).unwrap();
    let mut modified = || {
        reader.read(|_, _| ()).unwrap();
        reader.modified()
    };
    assert_eq!(modified(), None);
    drop(write(&directory, &[(0.0, start(0))]));
    let path = directory.path().join(EVENTS);
    let expected = fs::metadata(&path).unwrap().modified().unwrap();
    assert_eq!(modified(), Some(expected));
    fs::remove_file(&path).unwrap();
    assert_eq!(modified(), None);
}

#[test]
fn there_is_nothing_to_follow_where_there_is_no_directory() {
    let directory = tempfile::tempdir().unwrap();
    let missing = Reader::open(&directory.path().join("missing")).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let no_directory = Reader::open(&file).unwrap_err();
    assert_eq!(no_directory.kind(), io::ErrorKind::NotADirectory);
}

/// Whatever has the name of the file and is none; nobody is at the other end of the pipe.
#[cfg(target_os = "linux")]
#[test]
fn something_else_in_the_place_of_the_file_is_refused_without_waiting() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let make: [fn(&Path); 3] = [
        |path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
        |path| std::os::unix::fs::symlink("/dev/null", path).unwrap(),
        |path| fs::create_dir(path).unwrap(),
    ];
    for make in make {
        let directory = tempfile::tempdir().unwrap();
        make(&directory.path().join(EVENTS));
        assert!(Writer::open(directory.path()).is_err());
        let mut reader = Reader::open(directory.path()).unwrap();
        assert!(reader.read(|_, _| ()).is_err());
        // It is a file later.
        let path = directory.path().join(EVENTS);
        fs::remove_file(&path)
            .or_else(|_| fs::remove_dir(&path))
            .unwrap();
        write(&directory, &[(0.0, start(0))]);
        assert!(reader.read(|_, _| ()).unwrap());
        assert!(!reader.restarted());
    }
}

#[test]
fn a_run_is_asked_to_stop_once_by_however_many() {
    let directory = tempfile::tempdir().unwrap();
    assert!(!take_stop_request(directory.path()));
    assert!(!is_asked_to_stop(directory.path()).unwrap());
    ask_to_stop(directory.path()).unwrap();
    ask_to_stop(directory.path()).unwrap();
    assert!(is_asked_to_stop(directory.path()).unwrap());
    let asked = fs::read_to_string(directory.path().join(STOP)).unwrap();
    assert_eq!(asked, STOPPING);
    assert!(take_stop_request(directory.path()));
    assert!(!take_stop_request(directory.path()));
    assert!(!is_asked_to_stop(directory.path()).unwrap());
}

#[test]
fn a_run_that_is_not_there_cannot_be_asked() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(ask_to_stop(&missing).is_err());
    assert!(is_asked_to_stop(&missing).is_err());
}

fn pass(split: Split, items: u64) -> Vec<Event> {
    let total = Some(items);
    let mut events = vec![Event::SplitStart {
        split,
        done: 0,
        total,
    }];
    events.extend((1..=items).map(|done| Event::Progress { done, step: done }));
    events.push(Event::SplitEnd);
    events
}

/// Progress of a short pass was written as that of the one before, and the pass itself was lost.
#[test]
fn passes_between_two_points_are_kept_apart() {
    let directory = tempfile::tempdir().unwrap();
    let train = pass(Split::Train, 9);
    let (begun, rest) = train.split_at(3);
    let mut writer = Writer::open(directory.path()).unwrap();
    writer.write(0.0, &start(0)).unwrap();
    for event in begun {
        writer.write(1.0, event).unwrap();
    }
    writer.flush().unwrap();
    for event in rest.iter().chain(&pass(Split::Valid, 4)) {
        writer.write(1.0, event).unwrap();
    }
    writer.flush().unwrap();
    let events: Vec<Event> = read(&directory)
        .into_iter()
        .map(|(_, event)| event)
        .collect();
    let valid = pass(Split::Valid, 4);
    let expected = [
        &[start(0), train[0].clone(), train[2].clone()],
        &train[9..],
        &valid[..1],
        &valid[4..],
    ]
    .concat();
    assert_eq!(events, expected);
}

#[test]
fn of_very_many_passes_the_first_are_left_out_each_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(directory.path()).unwrap();
    let outer = pass(Split::Train, 2);
    let inner = pass(Split::Valid, 3);
    let mut all = outer[..2].to_vec();
    for _ in 0..1000 {
        all.extend(inner.iter().cloned());
    }
    all.push(Event::Epoch { epoch: 7 });
    all.extend(outer[2..].iter().cloned());
    writer.write(0.0, &start(0)).unwrap();
    writer.flush().unwrap();
    for event in &all {
        writer.write(0.0, event).unwrap();
    }
    writer.flush().unwrap();
    let events: Vec<Event> = read(&directory)
        .into_iter()
        .map(|(_, event)| event)
        .collect();
    let inner = [inner[0].clone(), inner[3].clone(), inner[4].clone()];
    let last = all[all.len() - 3..].to_vec();
    let expected = [&[start(0)], &outer[..2], &inner, &inner, &inner, &last].concat();
    assert_eq!(events, expected);
}
