//! The keys that do something right now.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Role;
use super::fit;
use super::log_pane::LogPane;
use super::panel::put;
use super::scene::Scene;

/// A key, and what it does.
type Control = (&'static str, &'static str);

/// Draws as many of them as fit into a row, the most important first.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: Scene<'_>, log: &LogPane, popup: bool) {
    let controls = if popup {
        vec![("Esc", "back")]
    } else {
        controls(scene, log)
    };
    let facts = controls.into_iter().map(|(key, what)| {
        Line::from(vec![
            Span::styled(key, scene.theme.strong()),
            Span::raw(" "),
            Span::styled(what, scene.theme.faint()),
        ])
    });
    let columns = usize::from(area.width).saturating_sub(1);
    if let Some(mut line) = fit::flow(facts, columns).into_iter().next() {
        line.spans.insert(0, " ".into());
        put(buffer, area, 0, &line);
    }
}

fn controls(scene: Scene<'_>, log: &LogPane) -> Vec<Control> {
    let metrics = scene.run.numeric.len();
    let all = [
        (true, ending(scene)),
        (true, ("?", "help")),
        (metrics > 1, ("←→", "metric")),
        (metrics > 0, ("↑↓", "plot")),
        (log.is_large, ("l", "small log")),
        (!log.is_large && log.has_lines(), ("l", "large log")),
        (log.can_scroll(), ("PgUp PgDn", "scroll")),
    ];
    let useful = all.into_iter().filter(|(is_useful, _)| *is_useful);
    useful.map(|(_, control)| control).collect()
}

/// How to come out of it.
pub(super) fn ending(scene: Scene<'_>) -> Control {
    match scene.role {
        _ if scene.is_over() => ("x or q", "to leave"),
        Role::Training if scene.run.stopping.is_some() => ("q", "stop or kill"),
        Role::Training => ("q", "stop"),
        Role::Watching => ("q", "stop or leave"),
    }
}
