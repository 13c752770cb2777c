//! How far the pass over the data is, and the whole run: one bar each.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::checkpoints::percent;
use super::gauge::gauge;
use super::panel::put;
use super::scene::Scene;
use crate::renderer::figures::{count, duration, number};
use crate::renderer::run_state::Pass;

/// A bar that would be shorter is left out.
const SHORTEST: usize = 5;

/// A bar with words on both sides of it.
struct Bar {
    name: &'static str,
    /// `None` if nobody knows how much there is to do.
    fraction: Option<f64>,
    facts: Vec<String>,
    style: Style,
}

/// Draws as many bars as there are rows; the whole run is the one that is never left out.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: Scene<'_>) {
    let pass = scene.run.pass.as_ref().map(|pass| of_pass(pass, scene));
    let bars: Vec<Bar> = pass.into_iter().chain([of_run(scene)]).collect();
    let hidden = bars.len().saturating_sub(usize::from(area.height));
    let shown = &bars[hidden..];
    let facts: Vec<String> = shown.iter().map(|bar| bar.facts.join("  ")).collect();
    let width = facts.iter().map(String::len).max().unwrap_or(0);
    // The whole run stays where it is while passes come and go.
    let first = usize::from(area.height).saturating_sub(shown.len());
    for (row, (bar, facts)) in shown.iter().zip(&facts).enumerate() {
        let line = line(bar, facts, width, usize::from(area.width), scene);
        put(buffer, area, first + row, &line);
    }
}

fn line(bar: &Bar, facts: &str, width: usize, columns: usize, scene: Scene<'_>) -> Line<'static> {
    let name = format!(" {:<5} ", bar.name);
    let room = columns.saturating_sub(name.len() + width + 2);
    let mut line = Line::from(Span::styled(name, scene.theme.strong()));
    if room >= SHORTEST {
        match bar.fraction {
            Some(fraction) => {
                let gauge = gauge(fraction, room, bar.style, scene.theme.faint());
                line.spans.extend(gauge);
            }
            None => line.push_span(Span::styled("·".repeat(room), scene.theme.faint())),
        }
        line.push_span(" ");
    }
    line.push_span(facts.to_owned());
    line
}

fn of_pass(pass: &Pass, scene: Scene<'_>) -> Bar {
    let fraction = pass.fraction();
    let total = pass.total.map(|total| format!("/{}", count(total)));
    let mut facts: Vec<String> = fraction.map(percent).into_iter().collect();
    facts.push(format!("{}{}", count(pass.done), total.unwrap_or_default()));
    facts.extend(
        pass.rate(scene.now)
            .map(|rate| format!("{}/s", number(rate))),
    );
    facts.extend(pass.left(scene.now).map(left));
    Bar {
        name: pass.split.name(),
        fraction,
        facts,
        style: scene.theme.split(pass.split),
    }
}

fn of_run(scene: Scene<'_>) -> Bar {
    let run = scene.run;
    let fraction = run.fraction();
    let mut facts = match fraction {
        Some(fraction) => vec![percent(fraction)],
        None => vec![format!("step {}", count(run.step))],
    };
    facts.extend(run.left(scene.now).map(left));
    Bar {
        name: "total",
        fraction,
        facts,
        style: scene.theme.strong(),
    }
}

fn left(seconds: f64) -> String {
    format!("{} left", duration(seconds))
}
