//! Runs to look at.

use super::{NOW, Sitting};
use crate::renderer::checkpoints::{Checkpoints, Committed, InFlight, Kept};
use crate::renderer::event::{Event, Goal, Metric, Split};
use crate::renderer::tui::theme::Theme;
use crate::renderer::tui::view::Role;

pub(super) fn register(name: &str, unit: &str, goal: Option<Goal>) -> Event {
    Event::Register(Metric {
        unit: unit.to_owned(),
        goal,
        ..Metric::new(name)
    })
}

pub(super) fn numeric(split: Split, name: &str, value: f64, step: u64) -> Event {
    Event::Numeric {
        split,
        name: name.to_owned(),
        value,
        step,
    }
}

pub(super) fn text(split: Split, name: &str, text: &str) -> Event {
    Event::Text {
        split,
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

pub(super) fn named(name: &str, text: &str) -> Event {
    Event::Named {
        name: name.to_owned(),
        text: text.to_owned(),
        count: 1,
    }
}

pub(super) fn start(epochs: Option<u64>, epoch: u64, step: u64) -> Event {
    Event::Start {
        epochs,
        steps: None,
        epoch,
        step,
    }
}

pub(super) fn split_start(split: Split, total: Option<u64>) -> Event {
    Event::SplitStart {
        split,
        done: 0,
        total,
    }
}

pub(super) fn end(error: Option<&str>) -> Event {
    Event::End {
        summary: vec![("best epoch".to_owned(), "3".to_owned())],
        error: error.map(str::to_owned),
    }
}

pub(super) fn stopping(message: &str) -> Event {
    Event::Stopping {
        message: message.to_owned(),
    }
}

/// A loss that falls, and does not fall evenly.
fn loss(step: u64) -> f64 {
    let step = step as f64;
    2.0 * (-step / 900.0).exp() + 0.3 + 0.05 * (step / 40.0).sin()
}

/// An hour into the fourth of ten epochs of a thousand steps.
pub(super) fn training() -> Sitting {
    trained_by(Role::Training, Theme::PLAIN)
}

pub(super) fn trained_by(role: Role, theme: Theme) -> Sitting {
    let mut sitting = Sitting::with_theme(role, theme);
    sitting.happened(3_720.0, register("loss", "", Some(Goal::Min)));
    sitting.happened(3_720.0, register("accuracy", "%", Some(Goal::Max)));
    sitting.happened(3_720.0, start(Some(10), 0, 0));
    for step in (10..=3_450).step_by(10) {
        sitting.happened(200.0, numeric(Split::Train, "loss", loss(step), step));
        sitting.happened(200.0, numeric(Split::Train, "lr", 3e-4, step));
    }
    for (epoch, worse) in [(1, 0.1), (2, 0.08), (3, 0.12)] {
        let step = epoch * 1_000;
        let value = loss(step) + worse;
        sitting.happened(100.0, numeric(Split::Valid, "loss", value, step));
        let accuracy = 99.0 - 20.0 * value;
        sitting.happened(100.0, numeric(Split::Valid, "accuracy", accuracy, step));
        sitting.happened(100.0, Event::Epoch { epoch });
    }
    sitting.happened(60.0, text(Split::Valid, "sample", "the cat sat on the mat"));
    sitting.happened(3_000.0, named("skipped step", ""));
    sitting.happened(65.0, named("skipped step", "gradients are not finite"));
    sitting.happened(30.0, named("lr dropped", "3e-4"));
    sitting.happened(60.0, split_start(Split::Train, Some(1_000)));
    let progress = Event::Progress {
        done: 450,
        step: 3_450,
    };
    sitting.happened(0.0, progress);
    sitting
}

/// Three checkpoints that are kept, and nothing else.
pub(super) fn checkpoints() -> Checkpoints {
    let kept = |step, why: &str| Kept {
        step,
        bytes: 2_600_000_000,
        why: why.to_owned(),
    };
    Checkpoints {
        directory: "runs/exp1".to_owned(),
        last: Some(Committed {
            step: 3_000,
            at: NOW - 185.0,
            bytes: 2_600_000_000,
            stall: Some(0.012),
            durable: Some(3.12),
        }),
        saved: 6,
        kept: vec![
            kept(1_000, ""),
            kept(2_000, "best val_loss"),
            kept(2_500, "last 2"),
            kept(3_000, "last 2"),
        ],
        ..Checkpoints::default()
    }
}

/// A save that is nearly half done.
pub(super) fn saving() -> Checkpoints {
    Checkpoints {
        in_flight: Some(InFlight {
            step: 3_400,
            done: 1_200_000_000,
            total: 2_600_000_000,
            seconds: 1.5,
        }),
        ..checkpoints()
    }
}

/// Two saves that failed, and one that was not made.
pub(super) fn failing() -> Checkpoints {
    Checkpoints {
        failed: 2,
        skipped: 1,
        failures: vec![
            "Error when saving the state: I/O Error: `Input/output error`".to_owned(),
            "Error when saving the state: I/O Error: `No space left on device`".to_owned(),
        ],
        ..checkpoints()
    }
}

/// A run of one metric with these values, one a step.
pub(super) fn of(name: &str, values: &[f64]) -> Sitting {
    let mut sitting = Sitting::new(Role::Training);
    sitting.happened(60.0, start(None, 0, 0));
    for (value, step) in values.iter().zip(1..) {
        sitting.happened(30.0, numeric(Split::Train, name, *value, step));
    }
    sitting
}
