//! The latest values of all metrics, in few words, and metrics that are texts.

use ratatui::text::{Line, Span};

use super::fit;
use super::panel::Panel;
use super::scene::Scene;
use crate::renderer::event::Metric;
use crate::renderer::figures::{clean, number};
use crate::renderer::run_state::{NumericMetric, TextMetric};

/// Columns of a name.
const NAME: usize = 20;

/// All of them; texts first, they are shown nowhere else.
pub(super) fn panel(scene: Scene<'_>, columns: usize) -> Option<Panel<'_>> {
    let texts = scene
        .run
        .texts
        .iter()
        .map(|text| self::text(text, scene, columns));
    let numbers = scene
        .run
        .numeric
        .iter()
        .filter(|numeric| !numeric.series.is_empty());
    let lines: Vec<Line<'_>> = texts
        .chain(numbers.map(|numeric| self::numeric(numeric, scene)))
        .collect();
    (!lines.is_empty()).then(|| Panel::new("Values", lines))
}

fn text<'a>(text: &'a TextMetric, scene: Scene<'a>, columns: usize) -> Line<'a> {
    let name = fit::cut(&text.name, NAME);
    let split = format!(" {} ", text.split.name());
    let room = columns.saturating_sub(fit::columns(&name) + split.len());
    Line::from(vec![
        Span::styled(name, scene.theme.strong()),
        Span::styled(split, scene.theme.split(text.split)),
        Span::raw(fit::cut(&text.text, room)),
    ])
}

fn numeric<'a>(numeric: &'a NumericMetric, scene: Scene<'a>) -> Line<'a> {
    let name = fit::cut(&numeric.metric.name, NAME);
    let mut line = Line::from(Span::styled(name, scene.theme.strong()));
    for (split, history) in &numeric.series {
        if let Some((_, value)) = history.last() {
            let style = scene.theme.split(*split);
            line.push_span(Span::styled(format!(" {} ", split.name()), style));
            line.push_span(with_unit(value, &numeric.metric));
        }
    }
    line
}

/// A value of the metric, as it is shown.
pub(super) fn with_unit(value: f64, metric: &Metric) -> String {
    let unit = clean(&metric.unit);
    let space = if unit.is_empty() { "" } else { " " };
    format!("{}{space}{unit}", number(value))
}
