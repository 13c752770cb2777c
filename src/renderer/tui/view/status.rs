//! How the run stands: what a person should know, what it does, how far it is, what happened.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::fit;
use super::panel::Panel;
use super::scene::Scene;
use crate::renderer::control::KILLING;
use crate::renderer::event::Split;
use crate::renderer::figures::{count, duration};

/// Rows of one message.
const MESSAGE: usize = 6;
/// So many of the latest events.
const EVENTS: usize = 5;

/// All of it.
pub(super) fn panel(scene: Scene<'_>, columns: usize) -> Panel<'_> {
    let mut lines = Vec::new();
    for (message, style) in notices(scene) {
        let wrapped = fit::wrap(&message, columns, MESSAGE).into_iter();
        lines.extend(wrapped.map(|line| Line::styled(line, style)));
    }
    lines.extend(fit::flow(facts(scene), columns));
    lines.extend(fit::flow(counters(scene, columns), columns));
    lines.extend(events(scene, columns));
    Panel::new("Status", lines)
}

/// What it does, and how far it is.
pub(super) fn facts(scene: Scene<'_>) -> Vec<Line<'static>> {
    let run = scene.run;
    let mut facts = vec![Line::styled(doing(scene), scene.theme.strong())];
    facts.extend(epoch(scene).map(Line::from));
    if let Some(started) = run.started {
        let steps = run.steps.map(|steps| format!("/{}", count(steps)));
        let steps = steps.unwrap_or_default();
        facts.push(format!("step {}{steps}", count(run.step)).into());
        let until = run.end.as_ref().map_or(scene.now, |end| end.at);
        let word = if scene.is_over() { "took" } else { "for" };
        facts.push(format!("{word} {}", duration(until - started)).into());
    }
    facts
}

/// In a word.
fn doing(scene: Scene<'_>) -> &'static str {
    let run = scene.run;
    match (&run.end, &run.pass) {
        (Some(_), _) if run.was_killed() => "killed",
        (Some(end), _) if end.error.is_some() => "failed",
        (Some(_), _) if run.stopping.is_some() => "stopped",
        (Some(_), _) => "finished",
        _ if scene.is_killing() => "ending at once",
        _ if run.stopping.is_some() => "stopping",
        _ if run.started.is_none() => "waiting",
        (None, Some(pass)) => match pass.split {
            Split::Train => "training",
            Split::Valid => "validating",
            Split::Test => "testing",
        },
        (None, None) => "running",
    }
}

/// The epoch that goes on, of how many; nothing for runs that know no epochs.
fn epoch(scene: Scene<'_>) -> Option<String> {
    let run = scene.run;
    if run.epochs.is_none() && run.epoch == 0 {
        return None;
    }
    let current = if scene.is_over() {
        run.epoch
    } else {
        run.epoch.saturating_add(1)
    };
    Some(match run.epochs {
        Some(epochs) => format!("epoch {}/{}", count(current.min(epochs)), count(epochs)),
        None => format!("epoch {}", count(current)),
    })
}

/// What a person should know, most urgent first.
pub(super) fn notices(scene: Scene<'_>) -> Vec<(String, Style)> {
    let (run, theme) = (scene.run, scene.theme);
    let error = run.end.as_ref().and_then(|end| end.error.as_deref());
    let killing = scene.is_killing().then_some(KILLING);
    let stopping = run.stopping.as_deref().filter(|_| killing.is_none());
    let notices = [
        (error, theme.bad()),
        (killing, theme.bad()),
        (stopping, theme.warning()),
        (run.notice.as_deref(), theme.warning()),
    ];
    let some = notices.into_iter().filter_map(|(text, style)| {
        let marked = format!("! {}", text?);
        Some((marked, style))
    });
    some.collect()
}

/// How often named events happened.
fn counters(scene: Scene<'_>, columns: usize) -> Vec<Line<'static>> {
    let counters = scene.run.counters.iter().map(|(name, times)| {
        let times = format!(" {}", count(*times));
        let name = fit::cut(name, columns.saturating_sub(times.len())).into_owned();
        Line::from(vec![
            Span::styled(name, scene.theme.faint()),
            Span::raw(times),
        ])
    });
    counters.collect()
}

/// The latest named events, the latest first.
fn events(scene: Scene<'_>, columns: usize) -> impl Iterator<Item = Line<'static>> {
    let latest = scene.run.events.iter().rev().take(EVENTS);
    latest.map(move |(at, event)| {
        let age = format!("{} ago ", duration(scene.now - at));
        let event = fit::cut(event, columns.saturating_sub(age.len())).into_owned();
        Line::from(vec![
            Span::styled(age, scene.theme.faint()),
            Span::raw(event),
        ])
    })
}
