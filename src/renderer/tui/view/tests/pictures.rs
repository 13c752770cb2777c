//! Every part, drawn and compared as text.

use ratatui::buffer::Cell;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};

use super::runs::{
    checkpoints, end, failing, named, numeric, of, register, saving, split_start, start, stopping,
    text, trained_by, training,
};
use super::{Sitting, text as text_of};
use crate::renderer::control::{KILLING, STOPPING};
use crate::renderer::event::{Event, Goal, Split};
use crate::renderer::figures::clean;
use crate::renderer::tui::theme::Theme;
use crate::renderer::tui::view::Role;

#[test]
fn a_run_that_has_not_begun_is_waited_for() {
    let mut sitting = Sitting::new(Role::Training);
    sitting.looks_like("empty", 80, 24);
    sitting.looks_like("empty", 20, 4);
    let mut watching = Sitting::new(Role::Watching);
    watching.run.notice = Some("waiting for a run in runs/exp1".to_owned());
    watching.looks_like("waiting", 80, 12);
    watching.looks_like("waiting", 24, 6);
}

#[test]
fn a_run_is_shown_in_terminals_of_every_size() {
    let mut sitting = training();
    sitting.happened(1.0, Event::Checkpoints(saving()));
    sitting.log.push(b"epoch 3: loss 0.45\nreading shard 7\n");
    for (width, height) in [
        (80, 24),
        (140, 40),
        (60, 30),
        (60, 14),
        (120, 8),
        (80, 4),
        (40, 10),
        (20, 6),
        (60, 1),
        (6, 2),
        (1, 1),
    ] {
        sitting.looks_like("running", width, height);
    }
}

#[test]
fn a_screen_that_is_resized_shows_what_fits() {
    let mut sitting = training();
    let wide = sitting.picture(120, 30);
    sitting.picture(20, 5);
    sitting.picture(1, 1);
    assert_eq!(sitting.picture(120, 30), wide);
}

#[test]
fn there_are_three_plots_of_a_metric() {
    let mut sitting = training();
    sitting.press(KeyCode::Char('2'));
    sitting.looks_like("recent", 80, 24);
    sitting.press(KeyCode::Char('3'));
    sitting.looks_like("summary", 80, 24);
    sitting.looks_like("summary", 120, 16);
    sitting.press(KeyCode::Right);
    sitting.looks_like("summary_of_accuracy", 80, 16);
    sitting.press(KeyCode::Char('1'));
    sitting.looks_like("accuracy", 80, 16);
}

#[test]
fn a_resumed_run_has_its_history_and_a_time_left_of_its_own() {
    let mut sitting = training();
    sitting.happened(90.0, start(Some(10), 3, 3_000));
    let resumed_inside = Event::SplitStart {
        split: Split::Train,
        done: 400,
        total: Some(1_000),
    };
    sitting.happened(60.0, resumed_inside);
    let progress = Event::Progress {
        done: 500,
        step: 3_100,
    };
    sitting.happened(0.0, progress);
    sitting.looks_like("resumed", 80, 24);
}

#[test]
fn a_run_without_totals_says_how_much_is_done() {
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(90.0, start(None, 0, 0));
    sitting.happened(60.0, split_start(Split::Test, None));
    let progress = Event::Progress {
        done: 450,
        step: 12_345,
    };
    sitting.happened(0.0, progress);
    sitting.looks_like("without_totals", 80, 12);
}

#[test]
fn a_run_of_steps_is_measured_by_them() {
    let mut sitting = Sitting::new(Role::Training);
    let start = Event::Start {
        epochs: None,
        steps: Some(1_000_000),
        epoch: 0,
        step: 0,
    };
    sitting.happened(3_600.0, start);
    sitting.happened(
        0.0,
        Event::Progress {
            done: 0,
            step: 250_000,
        },
    );
    sitting.looks_like("of_steps", 80, 12);
}

#[test]
fn checkpoints_are_shown_with_what_failed_and_what_is_kept() {
    let mut sitting = training();
    sitting.happened(1.0, Event::Checkpoints(checkpoints()));
    sitting.looks_like("checkpoints", 100, 30);
    sitting.happened(1.0, Event::Checkpoints(saving()));
    sitting.looks_like("saving", 100, 30);
    sitting.happened(1.0, Event::Checkpoints(failing()));
    sitting.looks_like("failing", 100, 30);
    sitting.looks_like("failing", 30, 5);
}

#[test]
fn more_checkpoints_than_fit_are_counted() {
    let mut many = checkpoints();
    let first = many.kept[0].clone();
    many.kept = (1..=40)
        .map(|step| {
            let mut kept = first.clone();
            kept.step = step * 1_000;
            kept
        })
        .collect();
    let mut sitting = training();
    sitting.happened(1.0, Event::Checkpoints(many));
    sitting.looks_like("many_checkpoints", 80, 24);
}

#[test]
fn a_save_whose_size_is_not_known_yet_has_no_gauge() {
    let mut sitting = training();
    let mut unknown = saving();
    if let Some(saving) = &mut unknown.in_flight {
        (saving.done, saving.total, saving.seconds) = (0, 0, 0.0);
    }
    unknown.last = None;
    unknown.kept.clear();
    unknown.saved = 0;
    sitting.happened(1.0, Event::Checkpoints(unknown));
    sitting.looks_like("first_save", 80, 24);
}

#[test]
fn the_question_whether_to_stop_is_drawn_over_the_rest() {
    let mut sitting = training();
    sitting.press(KeyCode::Char('q'));
    sitting.looks_like("quit", 80, 24);
    sitting.looks_like("quit", 40, 10);
    sitting.looks_like("quit", 30, 1);
    let mut watching = trained_by(Role::Watching, Theme::PLAIN);
    watching.press(KeyCode::Char('q'));
    watching.looks_like("quit_watching", 80, 24);
}

#[test]
fn a_run_that_stops_says_why() {
    let mut sitting = training();
    sitting.happened(1.0, stopping(STOPPING));
    sitting.looks_like("stopping", 80, 24);
    sitting.looks_like("stopping", 20, 6);
    let mut sitting = training();
    sitting.press(KeyCode::Char('q'));
    sitting.press(KeyCode::Char('k'));
    sitting.looks_like("killing", 80, 24);
    assert!(sitting.picture(80, 2).contains(KILLING));
}

#[test]
fn a_run_that_is_over_leaves_its_summary() {
    let mut sitting = training();
    sitting.happened(1.0, Event::Checkpoints(checkpoints()));
    sitting.press(KeyCode::Char('q'));
    sitting.happened(0.0, end(None));
    // The question is answered.
    sitting.looks_like("over", 100, 30);
    sitting.looks_like("over", 50, 20);
    sitting.looks_like("over", 20, 6);
}

#[test]
fn a_run_that_failed_says_so() {
    let mut sitting = training();
    let error = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB";
    sitting.happened(0.0, end(Some(error)));
    sitting.looks_like("failed", 80, 24);
    sitting.looks_like("failed", 30, 6);
}

#[test]
fn a_run_that_a_person_has_killed_did_not_fail() {
    let mut sitting = training();
    sitting.happened(0.0, end(Some(KILLING)));
    let picture = sitting.picture(100, 30);
    assert!(picture.contains("killed  epoch 3/10"), "{picture}");
}

#[test]
fn a_watcher_has_other_keys() {
    let mut sitting = trained_by(Role::Watching, Theme::PLAIN);
    sitting.run.notice = Some("no news since 14:03:22 UTC".to_owned());
    sitting.looks_like("watching", 80, 24);
    sitting.press(KeyCode::Char('?'));
    sitting.looks_like("help", 80, 24);
}

#[test]
fn values_of_any_kind_are_plotted() {
    of("nothing", &[f64::NAN, f64::INFINITY, f64::NAN]).looks_like("not_finite", 80, 14);
    of(
        "gap",
        &[1.0, 2.0, f64::NAN, 4.0, 5.0, f64::NEG_INFINITY, 6.0, 7.0],
    )
    .looks_like("whole_gap", 80, 14);
    let mut gap = of(
        "gap",
        &[1.0, 2.0, f64::NAN, 4.0, 5.0, f64::NEG_INFINITY, 6.0, 7.0],
    );
    gap.press(KeyCode::Char('2'));
    gap.looks_like("gap", 80, 14);
    of("one", &[0.5]).looks_like("one", 80, 14);
    of("constant", &[3e-4; 50]).looks_like("constant", 80, 14);
    of("zero", &[0.0; 50]).looks_like("zero", 80, 14);
    of("negative", &[-5.0, -3.0, -4.5, -1.0]).looks_like("negative", 80, 14);
    of("huge", &[-f64::MAX, f64::MAX, 0.0]).looks_like("huge", 80, 14);
    of("tiny", &[1e-320, 5e-324, 2e-310]).looks_like("tiny", 80, 14);
    let mut bars = of("negative", &[-5.0, -3.0, f64::NAN, 2.0]);
    bars.press(KeyCode::Char('3'));
    bars.looks_like("bars_around_zero", 80, 14);
}

#[test]
fn millions_of_steps_have_short_numbers() {
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(9e5, start(None, 0, 0));
    for thousand in 1..=3_000 {
        let value = 1e6 / f64::from(thousand);
        let step = u64::from(thousand as u32) * 1_000;
        sitting.happened(9.0, numeric(Split::Train, "perplexity", value, step));
    }
    sitting.looks_like("millions", 100, 20);
}

#[test]
fn three_splits_are_told_apart_without_colours() {
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(60.0, register("error", "", Some(Goal::Min)));
    sitting.happened(60.0, start(None, 0, 0));
    for (split, much) in [(Split::Train, 1.0), (Split::Valid, 2.0), (Split::Test, 3.0)] {
        for step in 1..=100 {
            let value = much + f64::from(step as u32) / 100.0;
            sitting.happened(9.0, numeric(split, "error", value, step));
        }
    }
    sitting.looks_like("three_splits", 80, 20);
    sitting.press(KeyCode::Char('3'));
    sitting.looks_like("three_splits_summary", 80, 20);
    sitting.looks_like("three_splits_summary", 80, 10);
}

#[test]
fn tabs_of_hundreds_of_metrics_scroll() {
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(60.0, start(None, 0, 0));
    for index in 0..300 {
        let name = format!("layer.{index}.norm");
        sitting.happened(9.0, numeric(Split::Train, &name, f64::from(index), 1));
        sitting.happened(9.0, numeric(Split::Train, &name, 5.0, 2));
    }
    sitting.looks_like("first_of_300", 100, 14);
    for _ in 0..150 {
        sitting.press(KeyCode::Right);
    }
    sitting.looks_like("middle_of_300", 100, 14);
    for _ in 0..151 {
        sitting.press(KeyCode::Left);
    }
    sitting.looks_like("last_of_300", 100, 14);
}

#[test]
fn long_and_wide_names_are_cut_between_characters() {
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(60.0, start(None, 0, 0));
    let long = "transformer.layers.17.attention.query.weight.gradient.norm";
    for name in ["損失", "検証データの正解率とその他の重要な指標", long] {
        sitting.happened(9.0, numeric(Split::Valid, name, 0.5, 1));
        sitting.happened(9.0, numeric(Split::Valid, name, 0.25, 9));
    }
    sitting.happened(
        9.0,
        text(
            Split::Valid,
            "訳文",
            "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
        ),
    );
    sitting.happened(
        9.0,
        named("警告", "勾配が発散しました、学習率を下げてください"),
    );
    sitting.log.push(
        "日本語のログ行はとても長いので画面の端で切り取られなければならない、一文字も壊さずに。\n"
            .as_bytes(),
    );
    sitting.looks_like("wide_characters", 80, 24);
    sitting.press(KeyCode::Char('q'));
    sitting.looks_like("wide_characters_below_quit", 80, 24);
    sitting.press(KeyCode::Esc);
    sitting.press(KeyCode::Left);
    sitting.looks_like("long_name", 80, 24);
    sitting.looks_like("long_name", 40, 14);
}

#[test]
fn values_are_seen_however_long_the_name_is() {
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(60.0, start(None, 0, 0));
    let long = "transformer.layers.17.attention.query.weight.gradient.norm";
    let values = [
        (Split::Train, 0.125),
        (Split::Valid, 0.25),
        (Split::Test, 0.375),
    ];
    for (split, value) in values {
        sitting.happened(9.0, numeric(split, long, value, 1));
    }
    let panels = [(80, 24), (140, 40)].map(|(width, height)| {
        let picture = sitting.picture(width, height);
        let (_, values) = picture.split_once("─ Values ─").unwrap();
        values.to_owned()
    });
    let essentials = sitting.picture(20, 12);
    for picture in panels.iter().chain([&essentials]) {
        for value in ["train 0.125", "valid 0.25", "test 0.375"] {
            assert!(picture.contains(value), "{value}:\n{picture}");
        }
        assert!(picture.contains("tran"), "{picture}");
    }
}

#[test]
fn what_was_printed_can_be_read_again() {
    let mut sitting = training();
    for line in 1..=100 {
        sitting.log.push(format!("line {line}\n").as_bytes());
    }
    sitting.looks_like("log", 80, 24);
    sitting.press(KeyCode::PageUp);
    sitting.looks_like("log_back", 80, 24);
    // What is being read stays where it is.
    sitting.log.push(b"line 101\n");
    let back = sitting.picture(80, 24);
    assert!(
        back.contains("line 97\n") && !back.contains("line 101"),
        "{back}"
    );
    sitting.press(KeyCode::Char('l'));
    sitting.looks_like("log_large", 80, 24);
    sitting.press(KeyCode::Home);
    let first = sitting.picture(80, 24);
    assert!(first.contains(" line 1\n"), "{first}");
    sitting.press(KeyCode::End);
    let last = sitting.picture(80, 24);
    assert!(last.contains("line 101\n"), "{last}");
}

#[test]
fn nothing_of_a_hostile_run_reaches_the_terminal_as_a_command() {
    let hostile = "a\u{1b}[2J\u{1b}]0;b\u{7}\r\n\t\u{9b}31m\u{202e}c\u{200b}\0\u{7f}";
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(60.0, register(hostile, hostile, Some(Goal::Max)));
    sitting.happened(60.0, start(Some(3), 0, 0));
    for step in 1..=3 {
        sitting.happened(9.0, numeric(Split::Valid, hostile, 0.5, step));
    }
    sitting.happened(9.0, text(Split::Valid, hostile, hostile));
    sitting.happened(9.0, named(hostile, hostile));
    sitting.happened(9.0, stopping(hostile));
    sitting.run.notice = Some(hostile.to_owned());
    let mut hostile_checkpoints = failing();
    hostile_checkpoints.failures[0] = hostile.to_owned();
    hostile_checkpoints.kept[0].why = hostile.to_owned();
    sitting.happened(9.0, Event::Checkpoints(hostile_checkpoints));
    sitting.log.push(hostile.as_bytes());
    sitting.looks_like("hostile", 100, 40);
    for key in ['1', '2', '3', 'l'] {
        sitting.press(KeyCode::Char(key));
        is_harmless(&mut sitting);
    }
    let ending = Event::End {
        summary: vec![(hostile.to_owned(), hostile.to_owned())],
        error: Some(hostile.to_owned()),
    };
    sitting.happened(0.0, ending);
    is_harmless(&mut sitting);
}

fn is_harmless(sitting: &mut Sitting) {
    for (width, height) in [(120, 50), (80, 24), (50, 30), (20, 6), (200, 1)] {
        let buffer = sitting.buffer(width, height);
        let mut symbols = buffer.content.iter().map(Cell::symbol);
        let bad = symbols.find(|symbol| clean(symbol) != *symbol);
        assert_eq!(bad, None, "{}", text_of(&buffer));
    }
}

#[test]
fn without_colours_there_are_none_and_with_them_they_mean_something() {
    let draw = |theme| {
        let mut sitting = trained_by(Role::Training, theme);
        sitting.happened(1.0, Event::Checkpoints(failing()));
        sitting.happened(1.0, stopping(STOPPING));
        sitting.buffer(100, 40)
    };
    let (plain, coloured) = (draw(Theme::PLAIN), draw(Theme::COLOURED));
    assert_eq!(text_of(&plain), text_of(&coloured));
    let has_colour = |cell: &&Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
    assert_eq!(plain.content.iter().find(has_colour), None);
    // Never a background: it is the terminal's own.
    assert!(coloured.content.iter().all(|cell| cell.bg == Color::Reset));

    let style_of = |word: &str| {
        let text = text_of(&coloured);
        let (y, line) = text
            .lines()
            .enumerate()
            .find(|(_, line)| line.contains(word))
            .unwrap();
        let x = line[..line.find(word).unwrap()].chars().count();
        let cell = &coloured[(x as u16, y as u16)];
        (cell.fg, cell.modifier)
    };
    assert_eq!(style_of("2 failed"), (Color::Red, Modifier::BOLD));
    assert_eq!(style_of("! Error when"), (Color::Red, Modifier::BOLD));
    assert_eq!(style_of("+ train"), (Color::Cyan, Modifier::empty()));
    assert_eq!(style_of("o valid"), (Color::Magenta, Modifier::empty()));
    let reversed = Modifier::BOLD | Modifier::REVERSED;
    assert_eq!(style_of("! Stopping training"), (Color::Yellow, reversed));
    assert_eq!(style_of("[loss]"), (Color::Reset, reversed));
}
