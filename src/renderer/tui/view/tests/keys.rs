//! What keys and the mouse do.

use ratatui::crossterm::event::{
    Event as TerminalEvent, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent,
    MouseEventKind,
};

use super::runs::{end, numeric, stopping, trained_by, training};
use super::{NOW, Sitting};
use crate::renderer::control::{Request, STOPPING};
use crate::renderer::event::{Event, Split};
use crate::renderer::tui::theme::Theme;
use crate::renderer::tui::view::Role;
use crate::renderer::tui::view::metrics::Plot;
use crate::renderer::tui::view::overlay::Overlay;

fn watching() -> Sitting {
    trained_by(Role::Watching, Theme::PLAIN)
}

#[test]
fn q_asks_and_s_stops() {
    for quit in ['q', 'Q'] {
        let mut sitting = training();
        assert_eq!(sitting.press(KeyCode::Char('s')), None);
        assert_eq!(sitting.press(KeyCode::Char(quit)), None);
        assert_eq!(sitting.view.overlay, Some(Overlay::Quit));
        assert_eq!(sitting.press(KeyCode::Char('s')), Some(Request::Stop));
        assert_eq!(sitting.view.overlay, None);
    }
}

#[test]
fn q_asks_and_k_kills_as_often_as_it_is_pressed() {
    let mut sitting = training();
    assert_eq!(sitting.press(KeyCode::Char('k')), None);
    for _ in 0..2 {
        assert_eq!(sitting.press(KeyCode::Char('q')), None);
        assert_eq!(sitting.press(KeyCode::Char('k')), Some(Request::Kill));
        assert_eq!(sitting.view.overlay, None);
    }
}

#[test]
fn c_and_escape_cancel_and_other_keys_do_nothing() {
    for cancel in [KeyCode::Char('c'), KeyCode::Esc] {
        let mut sitting = training();
        sitting.press(KeyCode::Char('q'));
        for other in [
            KeyCode::Char('x'),
            KeyCode::Char('q'),
            KeyCode::Char('l'),
            KeyCode::Enter,
            KeyCode::Right,
        ] {
            assert_eq!(sitting.press(other), None);
            assert_eq!(sitting.view.overlay, Some(Overlay::Quit));
        }
        assert_eq!(sitting.press(cancel), None);
        assert_eq!(sitting.view.overlay, None);
        assert_eq!(sitting.view.asked, None);
        assert_eq!(
            (sitting.view.choice.metric, sitting.view.log.is_large),
            (0, false)
        );
    }
}

#[test]
fn the_first_control_c_stops_and_the_second_kills() {
    let mut sitting = training();
    assert_eq!(sitting.control_c(), Some(Request::Stop));
    // However soon it comes.
    assert_eq!(sitting.control_c(), Some(Request::Kill));
    assert_eq!(sitting.control_c(), Some(Request::Kill));
}

#[test]
fn a_control_c_kills_what_is_stopping_already() {
    let mut sitting = training();
    sitting.happened(1.0, stopping(STOPPING));
    assert_eq!(sitting.control_c(), Some(Request::Kill));
    let mut sitting = training();
    sitting.press(KeyCode::Char('q'));
    sitting.press(KeyCode::Char('s'));
    assert_eq!(sitting.control_c(), Some(Request::Kill));
}

#[test]
fn a_control_c_is_heard_whatever_is_open() {
    for open in ['q', '?', 'l'] {
        let mut sitting = training();
        sitting.press(KeyCode::Char(open));
        assert_eq!(sitting.control_c(), Some(Request::Stop), "{open}");
        assert_eq!(sitting.view.overlay, None);
    }
}

#[test]
fn a_run_that_is_over_is_left() {
    for role in [Role::Training, Role::Watching] {
        for leave in ['q', 'x'] {
            let mut sitting = trained_by(role, Theme::PLAIN);
            sitting.happened(0.0, end(None));
            assert_eq!(sitting.press(KeyCode::Char(leave)), Some(Request::Leave));
            assert_eq!(sitting.control_c(), Some(Request::Leave));
        }
        // The question was open when it ended.
        let mut sitting = trained_by(role, Theme::PLAIN);
        sitting.press(KeyCode::Char('q'));
        sitting.happened(0.0, end(None));
        assert_eq!(sitting.press(KeyCode::Char('k')), None);
        assert_eq!(sitting.press(KeyCode::Char('q')), Some(Request::Leave));
    }
}

#[test]
fn a_training_is_not_left_while_it_goes_on() {
    assert_eq!(training().press(KeyCode::Char('x')), None);
}

#[test]
fn a_watcher_may_stop_and_leave_but_not_kill() {
    assert_eq!(watching().press(KeyCode::Char('x')), Some(Request::Leave));
    assert_eq!(watching().control_c(), Some(Request::Leave));
    for (key, request) in [
        ('s', Some(Request::Stop)),
        ('k', None),
        ('x', Some(Request::Leave)),
        ('q', Some(Request::Leave)),
        ('c', None),
    ] {
        let mut sitting = watching();
        assert_eq!(sitting.press(KeyCode::Char('q')), None);
        assert_eq!(sitting.press(KeyCode::Char(key)), request, "{key}");
    }
}

#[test]
fn arrows_and_tab_go_around_the_metrics() {
    let mut sitting = training();
    for (key, metric) in [
        (KeyCode::Right, 1),
        (KeyCode::Tab, 2),
        (KeyCode::Right, 0),
        (KeyCode::Left, 2),
        (KeyCode::BackTab, 1),
    ] {
        assert_eq!(sitting.press(key), None);
        assert_eq!(sitting.view.choice.metric, metric, "{key:?}");
    }
    let mut empty = Sitting::new(Role::Training);
    empty.press(KeyCode::Right);
    empty.press(KeyCode::Left);
    assert_eq!(empty.view.choice.metric, 0);
}

#[test]
fn arrows_and_digits_choose_the_plot() {
    let mut sitting = training();
    for (key, plot) in [
        (KeyCode::Down, Plot::Recent),
        (KeyCode::Down, Plot::Summary),
        (KeyCode::Down, Plot::Whole),
        (KeyCode::Up, Plot::Summary),
        (KeyCode::Char('1'), Plot::Whole),
        (KeyCode::Char('3'), Plot::Summary),
        (KeyCode::Char('2'), Plot::Recent),
    ] {
        assert_eq!(sitting.press(key), None);
        assert_eq!(sitting.view.choice.plot, plot, "{key:?}");
    }
}

#[test]
fn any_key_closes_the_help() {
    for open in ['?', 'h'] {
        let mut sitting = training();
        sitting.press(KeyCode::Char(open));
        assert_eq!(sitting.view.overlay, Some(Overlay::Help));
        assert_eq!(sitting.press(KeyCode::Char('k')), None);
        assert_eq!(sitting.view.overlay, None);
    }
}

/// The interrupter had been reset, and it killed.
#[test]
fn after_a_stop_that_was_taken_back_control_c_stops_again() {
    let mut sitting = training();
    assert_eq!(sitting.control_c(), Some(Request::Stop));
    sitting.happened(0.0, stopping(STOPPING));
    sitting.picture(80, 24);
    sitting.happened(0.0, Event::GoingOn);
    sitting.picture(80, 24);
    assert_eq!(sitting.control_c(), Some(Request::Stop));
    assert_eq!(sitting.control_c(), Some(Request::Kill));
}

#[test]
fn keys_that_are_held_with_others_and_released_ones_do_nothing() {
    let mut sitting = training();
    for held in [KeyModifiers::CONTROL, KeyModifiers::ALT] {
        assert_eq!(sitting.press_with(KeyCode::Char('q'), held), None);
    }
    assert_eq!(sitting.view.overlay, None);
    let released = KeyEvent::new_with_kind(
        KeyCode::Char('q'),
        KeyModifiers::NONE,
        KeyEventKind::Release,
    );
    let nothing = sitting
        .view
        .on_event(&TerminalEvent::Key(released), &sitting.run);
    assert_eq!((nothing, sitting.view.overlay), (None, None));
}

fn mouse(sitting: &mut Sitting, kind: MouseEventKind, (column, row): (u16, u16)) {
    let event = MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    };
    let request = sitting
        .view
        .on_event(&TerminalEvent::Mouse(event), &sitting.run);
    assert_eq!(request, None);
}

/// Where a text is in the picture.
fn place(picture: &str, text: &str) -> (u16, u16) {
    let (row, line) = picture
        .lines()
        .enumerate()
        .find(|(_, line)| line.contains(text))
        .unwrap();
    let column = line[..line.find(text).unwrap()].chars().count();
    (column as u16, row as u16)
}

const CLICK: MouseEventKind = MouseEventKind::Down(MouseButton::Left);

#[test]
fn tabs_and_plots_are_chosen_by_a_click() {
    let mut sitting = training();
    let picture = sitting.picture(120, 30);
    mouse(&mut sitting, CLICK, place(&picture, "accuracy"));
    assert_eq!(sitting.view.choice.metric, 1);
    mouse(&mut sitting, CLICK, place(&picture, "3 summary"));
    assert_eq!(sitting.view.choice.plot, Plot::Summary);
    // Where there is room for one kind of plot, it turns to the next.
    let narrow = sitting.picture(80, 24);
    mouse(&mut sitting, CLICK, place(&narrow, "3 summary"));
    assert_eq!(sitting.view.choice.plot, Plot::Whole);
    sitting.press(KeyCode::Char('3'));
    sitting.picture(120, 30);
    // Elsewhere it does nothing.
    mouse(&mut sitting, CLICK, (5, 10));
    mouse(&mut sitting, CLICK, (500, 500));
    assert_eq!(
        (sitting.view.choice.metric, sitting.view.choice.plot),
        (1, Plot::Summary)
    );
    // What was drawn before the terminal became small is not there any more.
    sitting.picture(20, 3);
    mouse(&mut sitting, CLICK, place(&picture, "[loss]"));
    assert_eq!(sitting.view.choice.metric, 1);
}

#[test]
fn hidden_tabs_are_reached_by_a_click_on_their_number() {
    let mut sitting = Sitting::new(Role::Training);
    for index in 0..50 {
        let name = format!("metric {index}");
        sitting.run.apply(NOW, numeric(Split::Train, &name, 1.0, 1));
    }
    let picture = sitting.picture(100, 20);
    let (column, row) = place(&picture, ">");
    mouse(&mut sitting, CLICK, (column, row));
    let forward = sitting.view.choice.metric;
    let tabs = picture.lines().next().unwrap_or_default();
    assert!(
        forward > 0 && !tabs.contains(&format!("metric {forward} ")),
        "{picture}"
    );
    let picture = sitting.picture(100, 20);
    assert!(
        picture.contains(&format!("[metric {forward}]")),
        "{picture}"
    );
    mouse(&mut sitting, CLICK, place(&picture, "<"));
    assert!(sitting.view.choice.metric < forward);
}

#[test]
fn the_wheel_turns_metrics_and_scrolls_what_was_printed() {
    let mut sitting = training();
    for line in 0..50 {
        sitting.log.push(format!("line {line}\n").as_bytes());
    }
    let picture = sitting.picture(120, 30);
    mouse(&mut sitting, MouseEventKind::ScrollDown, (10, 5));
    assert_eq!(sitting.view.choice.metric, 1);
    mouse(&mut sitting, MouseEventKind::ScrollUp, (10, 5));
    assert_eq!(sitting.view.choice.metric, 0);
    let log = place(&picture, "line 49");
    mouse(&mut sitting, MouseEventKind::ScrollUp, log);
    let back = sitting.picture(120, 30);
    assert!(
        back.contains("line 46") && !back.contains("line 47"),
        "{back}"
    );
    mouse(&mut sitting, MouseEventKind::ScrollDown, log);
    assert_eq!(sitting.picture(120, 30), picture);
    // Not while something else is asked.
    sitting.press(KeyCode::Char('q'));
    mouse(&mut sitting, MouseEventKind::ScrollDown, (10, 5));
    assert_eq!(sitting.view.choice.metric, 0);
}
