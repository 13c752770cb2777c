//! What is left to read once the run is over.

use ratatui::text::{Line, Span};

use super::curves::best_of;
use super::fit;
use super::panel::Panel;
use super::scene::Scene;
use super::values::with_unit;
use crate::renderer::figures::count;
use crate::renderer::run_state::NumericMetric;

/// The summary that the training gave, and the last and the best value of each metric; `None` while it goes on.
pub(super) fn panel(scene: Scene<'_>, columns: usize) -> Option<Panel<'_>> {
    let end = scene.run.end.as_ref()?;
    let given = end.summary.iter().map(|(name, value)| {
        let name = fit::cut(name, columns);
        let room = columns.saturating_sub(fit::columns(&name) + 1);
        Line::from(vec![
            Span::styled(name, scene.theme.strong()),
            Span::raw(" "),
            Span::raw(fit::cut(value, room)),
        ])
    });
    let metrics = scene.run.numeric.iter();
    let metrics = metrics.flat_map(|metric| lines(metric, scene, columns));
    let lines: Vec<Line<'_>> = given.chain(metrics).collect();
    (!lines.is_empty()).then(|| Panel::new("Summary", lines))
}

/// One line for each split, or more if they are long.
fn lines<'a>(metric: &'a NumericMetric, scene: Scene<'a>, columns: usize) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (split, history) in &metric.series {
        let Some((_, last)) = history.last() else {
            continue;
        };
        let what = Line::from(vec![
            Span::styled(fit::cut(&metric.metric.name, columns), scene.theme.strong()),
            Span::styled(format!(" {} ", split.name()), scene.theme.split(*split)),
            Span::raw(with_unit(last, &metric.metric)),
        ]);
        let best = metric.metric.goal.and_then(|goal| best_of(history, goal));
        let best = best.map(|(step, value)| {
            let value = with_unit(value, &metric.metric);
            Line::from(format!("best {value} at {}", count(step)))
        });
        lines.extend(fit::flow([what].into_iter().chain(best), columns));
    }
    lines
}
