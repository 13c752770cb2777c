//! The few words that matter most, for terminals that have no room for panels.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::checkpoints::percent;
use super::controls::ending;
use super::metrics::Choice;
use super::panel::put;
use super::scene::Scene;
use super::status::{facts, notices};
use super::values::with_unit;
use super::{fit, metrics};
use crate::renderer::checkpoints::Checkpoints;
use crate::renderer::figures::{bytes, count, duration};

/// A plot of fewer rows is left out.
const PLOT: u16 = 4;

/// Draws as much as fits, the most important first, and below it the plot, if there is room left.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: Scene<'_>, choice: &Choice) {
    let lines = words(scene, choice.metric, area);
    for (row, line) in lines.iter().enumerate() {
        put(buffer, area, row, line);
    }
    let used = u16::try_from(lines.len())
        .unwrap_or(u16::MAX)
        .min(area.height);
    let rest = Rect {
        y: area.y + used,
        height: area.height - used,
        ..area
    };
    if let Some(metric) = scene.run.numeric.get(choice.metric)
        && rest.height >= PLOT
    {
        metrics::content(buffer, rest, metric, choice.plot, scene);
    }
}

fn words(scene: Scene<'_>, metric: usize, area: Rect) -> Vec<Line<'_>> {
    let columns = usize::from(area.width);
    let rows = usize::from(area.height / 2).max(1);
    let notices = notices(scene).into_iter().flat_map(|(notice, style)| {
        let lines = fit::wrap(&notice, columns, rows).into_iter();
        lines.map(move |line| Line::styled(line, style))
    });
    let mut facts = facts(scene);
    let doing = facts.remove(0);
    let words = notices
        .chain([doing])
        .chain(progress(scene))
        .chain(values(scene, metric, columns))
        .chain(checkpoints(scene))
        .chain([key(scene)])
        .chain(facts);
    fit::flow(words, columns)
}

/// How far it is, and how long it will take.
fn progress(scene: Scene<'_>) -> Vec<Line<'static>> {
    let run = scene.run;
    let pass = run.pass.as_ref();
    let fraction = run.fraction().or_else(|| pass?.fraction());
    let left = run.left(scene.now).or_else(|| pass?.left(scene.now));
    let fraction = fraction.map(|fraction| percent(fraction).trim_start().to_owned());
    let left = left.map(|left| format!("{} left", duration(left)));
    fraction.into_iter().chain(left).map(Line::from).collect()
}

/// The last values of the chosen metric. Its name gives way to them.
fn values(scene: Scene<'_>, metric: usize, columns: usize) -> Vec<Line<'_>> {
    let Some(metric) = scene.run.numeric.get(metric) else {
        return Vec::new();
    };
    let values = metric.series.iter().filter_map(|(split, history)| {
        let (_, value) = history.last()?;
        let split = Span::styled(format!(" {} ", split.name()), scene.theme.split(*split));
        let value = Span::raw(with_unit(value, &metric.metric));
        let room = columns.saturating_sub(split.width() + value.width());
        let name = fit::shorten(&metric.metric.name, room.clamp(4, 12));
        Some(Line::from(vec![Span::raw(name), split, value]))
    });
    values.collect()
}

/// What failed, what is being saved, or what is durable.
fn checkpoints(scene: Scene<'_>) -> Vec<Line<'static>> {
    let Some(checkpoints) = &scene.run.checkpoints else {
        return Vec::new();
    };
    let failed = (checkpoints.failed > 0).then(|| {
        let failed = format!("! {} saves failed", count(checkpoints.failed));
        Line::styled(failed, scene.theme.bad())
    });
    let saved = saved(checkpoints, scene.now).map(Line::from);
    failed.into_iter().chain(saved).collect()
}

fn saved(checkpoints: &Checkpoints, now: f64) -> Option<String> {
    if let Some(saving) = &checkpoints.in_flight {
        let much = match saving.total {
            0 => bytes(saving.done),
            total => percent(saving.done as f64 / total as f64),
        };
        return Some(format!(
            "saving {} {}",
            count(saving.step),
            much.trim_start()
        ));
    }
    let last = checkpoints.last.as_ref()?;
    Some(format!(
        "saved {} {} ago",
        count(last.step),
        duration(now - last.at)
    ))
}

fn key(scene: Scene<'_>) -> Line<'static> {
    let (key, what) = ending(scene);
    Line::from(vec![
        Span::styled(key, scene.theme.strong()),
        Span::raw(format!(" {what}")),
    ])
}
