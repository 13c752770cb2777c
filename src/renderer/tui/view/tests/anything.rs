//! Whatever a run sends and a person does, in a terminal of whatever size: it is drawn.

use proptest::collection::vec;
use proptest::prelude::*;
use ratatui::crossterm::event::{
    Event as TerminalEvent, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent,
    MouseEventKind,
};

use super::{NOW, Sitting};
use crate::renderer::checkpoints::{Checkpoints, Committed, InFlight, Kept};
use crate::renderer::event::{Event, Goal, Metric, Split};
use crate::renderer::tui::view::Role;

#[derive(Debug, Clone)]
enum Act {
    Event(f64, Event),
    Terminal(TerminalEvent),
    Print(String),
    Draw(u16, u16),
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("loss".to_owned()),
        Just("損失の推移".to_owned()),
        vec(any::<char>(), 0..40).prop_map(String::from_iter),
    ]
}

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        -10.0..10.0,
        proptest::num::f64::ANY,
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(0.0),
    ]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_u64, any::<u64>()]
}

fn split() -> impl Strategy<Value = Split> {
    prop_oneof![Just(Split::Train), Just(Split::Valid), Just(Split::Test)]
}

fn checkpoints() -> impl Strategy<Value = Checkpoints> {
    let in_flight =
        (count(), count(), count(), value()).prop_map(|(step, done, total, seconds)| InFlight {
            step,
            done,
            total,
            seconds,
        });
    let last =
        (count(), value(), count(), value()).prop_map(|(step, at, bytes, stall)| Committed {
            step,
            at,
            bytes,
            stall: Some(stall),
            durable: Some(stall),
        });
    let kept = (count(), count(), text()).prop_map(|(step, bytes, why)| Kept { step, bytes, why });
    let parts = (
        proptest::option::of(in_flight),
        proptest::option::of(last),
        (count(), count(), count()),
        vec(text(), 0..8),
        vec(kept, 0..64),
    );
    parts.prop_map(
        |(in_flight, last, (saved, failed, skipped), failures, kept)| Checkpoints {
            directory: String::new(),
            in_flight,
            last,
            saved,
            failed,
            skipped,
            failures,
            kept,
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let optional = || proptest::option::of(count());
    let goal = prop_oneof![Just(None), Just(Some(Goal::Min)), Just(Some(Goal::Max))];
    let numeric = (split(), text(), value(), count());
    prop_oneof![
        8 => numeric.prop_map(|(split, name, value, step)| Event::Numeric { split, name, value, step }),
        1 => (optional(), optional(), count(), count()).prop_map(|(epochs, steps, epoch, step)| {
            Event::Start { epochs, steps, epoch, step }
        }),
        1 => (text(), text(), goal).prop_map(|(name, unit, goal)| Event::Register(Metric { name, unit, goal })),
        1 => (split(), text(), text()).prop_map(|(split, name, text)| Event::Text { split, name, text }),
        2 => (split(), count(), optional()).prop_map(|(split, done, total)| {
            Event::SplitStart { split, done, total }
        }),
        2 => (count(), count()).prop_map(|(done, step)| Event::Progress { done, step }),
        1 => Just(Event::SplitEnd),
        1 => count().prop_map(|epoch| Event::Epoch { epoch }),
        1 => (text(), text(), count()).prop_map(|(name, text, count)| Event::Named { name, text, count }),
        1 => text().prop_map(|message| Event::Stopping { message }),
        2 => checkpoints().prop_map(Event::Checkpoints),
        1 => (vec((text(), text()), 0..4), proptest::option::of(text()))
            .prop_map(|(summary, error)| Event::End { summary, error }),
    ]
}

fn terminal_event() -> impl Strategy<Value = TerminalEvent> {
    let code = prop_oneof![
        "[qskcxlh?123 ]".prop_map(|key| KeyCode::Char(key.chars().next().unwrap_or('q'))),
        Just(KeyCode::Left),
        Just(KeyCode::Right),
        Just(KeyCode::Up),
        Just(KeyCode::Down),
        Just(KeyCode::PageUp),
        Just(KeyCode::PageDown),
        Just(KeyCode::Home),
        Just(KeyCode::End),
        Just(KeyCode::Esc),
    ];
    let held = prop_oneof![
        4 => Just(KeyModifiers::NONE),
        1 => Just(KeyModifiers::CONTROL),
    ];
    let key = (code, held).prop_map(|(code, held)| TerminalEvent::Key(KeyEvent::new(code, held)));
    let kind = prop_oneof![
        Just(MouseEventKind::Down(MouseButton::Left)),
        Just(MouseEventKind::ScrollUp),
        Just(MouseEventKind::ScrollDown),
    ];
    let mouse = (kind, 0..200_u16, 0..60_u16).prop_map(|(kind, column, row)| {
        TerminalEvent::Mouse(MouseEvent {
            kind,
            column,
            row,
            modifiers: KeyModifiers::NONE,
        })
    });
    prop_oneof![key, mouse]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (value(), event()).prop_map(|(ago, event)| Act::Event(ago, event)),
        2 => terminal_event().prop_map(Act::Terminal),
        1 => text().prop_map(Act::Print),
        2 => (1..=200_u16, 1..=60_u16).prop_map(|(width, height)| Act::Draw(width, height)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_happens_is_drawn(watching: bool, acts in vec(act(), 1..40)) {
        let role = if watching { Role::Watching } else { Role::Training };
        let mut sitting = Sitting::new(role);
        for act in acts {
            match act {
                Act::Event(ago, event) => sitting.run.apply(NOW - ago, event),
                Act::Terminal(event) => {
                    sitting.view.on_event(&event, &sitting.run);
                }
                Act::Print(text) => sitting.log.push(text.as_bytes()),
                Act::Draw(width, height) => {
                    sitting.picture(width, height);
                }
            }
        }
        for (width, height) in [(1, 1), (20, 6), (60, 30), (200, 60)] {
            let buffer = sitting.buffer(width, height);
            let mut symbols = buffer.content.iter().flat_map(|cell| cell.symbol().chars());
            prop_assert!(!symbols.any(char::is_control));
        }
    }
}
