//! How the checkpoints stand: the save that is under way, the last one that is durable, what failed, and what the
//! retention keeps.

use ratatui::text::{Line, Span};

use super::fit;
use super::gauge::gauge;
use super::panel::Panel;
use super::scene::Scene;
use crate::renderer::checkpoints::{Checkpoints, Committed, InFlight, Kept};
use crate::renderer::figures::{brief, bytes, count, duration};

/// Rows of one failure.
const MESSAGE: usize = 3;
/// A gauge that would be shorter is left out.
const SHORTEST: usize = 4;

/// All of it; `None` if nothing is known of any.
pub(super) fn panel(scene: Scene<'_>, columns: usize) -> Option<Panel<'_>> {
    let checkpoints = scene.run.checkpoints.as_ref()?;
    let mut lines = Vec::new();
    if let Some(saving) = &checkpoints.in_flight {
        lines.extend(in_flight(saving, scene, columns));
    }
    match &checkpoints.last {
        Some(last) => lines.extend(fit::flow(committed(last, scene), columns)),
        None => lines.push(Line::styled("none is durable yet", scene.theme.faint())),
    }
    lines.extend(fit::flow(totals(checkpoints, scene), columns));
    lines.extend(failures(checkpoints, scene, columns));
    lines.extend(kept(&checkpoints.kept, scene, columns));
    Some(Panel::new(title(checkpoints, scene, columns), lines))
}

/// What it is, and of which run. That saves failed is told here too: there may be no row left for it below.
fn title<'a>(checkpoints: &Checkpoints, scene: Scene<'a>, columns: usize) -> Line<'a> {
    let mut title = Line::from("Checkpoints");
    if checkpoints.failed > 0 {
        let failed = format!(" ! {} failed", count(checkpoints.failed));
        title.push_span(Span::styled(failed, scene.theme.bad()));
    }
    // A space on either side, and for how many lines there is no room.
    let taken = title.width() + "  ".len() + " + 99 more ".len();
    let directory = fit::cut(&checkpoints.directory, columns.saturating_sub(taken));
    if !directory.is_empty() {
        title.push_span(Span::styled(format!(" {directory}"), scene.theme.faint()));
    }
    title
}

/// What is being saved, and a gauge of how far it is.
fn in_flight(saving: &InFlight, scene: Scene<'_>, columns: usize) -> Vec<Line<'static>> {
    let mut facts = vec![Line::styled(
        format!("saving {}", count(saving.step)),
        scene.theme.strong(),
    )];
    if saving.seconds > 0.0 && saving.done > 0 {
        let rate = (saving.done as f64 / saving.seconds) as u64;
        facts.push(format!("{}/s", bytes(rate)).into());
    }
    let mut lines = fit::flow(facts, columns);
    lines.push(amount(saving, scene, columns));
    lines
}

/// How many bytes of how many.
fn amount(saving: &InFlight, scene: Scene<'_>, columns: usize) -> Line<'static> {
    if saving.total == 0 {
        return Line::from(bytes(saving.done));
    }
    let fraction = saving.done as f64 / saving.total as f64;
    let text = format!(
        " {} of {} {}",
        bytes(saving.done),
        bytes(saving.total),
        percent(fraction)
    );
    let room = columns.saturating_sub(text.len());
    if room < SHORTEST {
        return Line::from(text.trim_start().to_owned());
    }
    let [full, rest] = gauge(fraction, room, scene.theme.good(), scene.theme.faint());
    Line::from(vec![full, rest, Span::raw(text)])
}

/// All of a hundred only when all is done.
pub(super) fn percent(fraction: f64) -> String {
    format!("{:>3}%", (fraction.clamp(0.0, 1.0) * 100.0) as u64)
}

/// The checkpoint that is durable.
fn committed(last: &Committed, scene: Scene<'_>) -> Vec<Line<'static>> {
    let mut facts = vec![
        Line::styled(format!("saved {}", count(last.step)), scene.theme.good()),
        format!("{} ago", duration(scene.now - last.at)).into(),
        bytes(last.bytes).into(),
    ];
    let stall = last.stall.map(|stall| format!("stall {}", brief(stall)));
    let durable = last
        .durable
        .map(|durable| format!("durable in {}", brief(durable)));
    facts.extend(stall.into_iter().chain(durable).map(Line::from));
    facts
}

/// How many saves went how.
fn totals(checkpoints: &Checkpoints, scene: Scene<'_>) -> Vec<Line<'static>> {
    let theme = scene.theme;
    let totals = [
        (checkpoints.saved, "saved", theme.good()),
        (checkpoints.failed, "failed", theme.bad()),
        (checkpoints.skipped, "skipped", theme.strong()),
    ];
    let some = totals.into_iter().filter(|(times, ..)| *times > 0);
    some.map(|(times, what, style)| Line::styled(format!("{} {what}", count(times)), style))
        .collect()
}

/// What went wrong, the latest first.
fn failures(checkpoints: &Checkpoints, scene: Scene<'_>, columns: usize) -> Vec<Line<'static>> {
    let latest = checkpoints.failures.iter().rev();
    let lines = latest.flat_map(|failure| fit::wrap(&format!("! {failure}"), columns, MESSAGE));
    lines
        .map(|line| Line::styled(line, scene.theme.bad()))
        .collect()
}

/// What there is, the newest first, and why it is kept.
fn kept(kept: &[Kept], scene: Scene<'_>, columns: usize) -> Vec<Line<'static>> {
    let steps: Vec<String> = kept.iter().map(|kept| count(kept.step)).collect();
    let width = steps.iter().map(String::len).max().unwrap_or(0);
    let newest = kept.iter().zip(&steps).rev();
    let lines = newest.map(|(kept, step)| {
        let what = format!("{step:>width$} {:>7} ", bytes(kept.bytes));
        let room = columns.saturating_sub(what.len());
        let why = if kept.why.is_empty() {
            Span::styled(fit::cut("goes next", room), scene.theme.faint())
        } else {
            Span::raw(fit::cut(&kept.why, room).into_owned())
        };
        Line::from(vec![Span::raw(what), why])
    });
    lines.collect()
}
