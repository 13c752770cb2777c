//! The latest values of all metrics, in few words, and metrics that are texts.

use ratatui::text::{Line, Span};

use super::fit;
use super::panel::Panel;
use super::scene::Scene;
use crate::renderer::event::Metric;
use crate::renderer::figures::{clean, number};
use crate::renderer::run_state::{NumericMetric, TextMetric};

/// A name for which there are fewer columns beside its values has a line of its own.
const NAME: usize = 8;

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
        .chain(numbers.flat_map(|numeric| self::numeric(numeric, scene, columns)))
        .collect();
    (!lines.is_empty()).then(|| Panel::new("Values", lines))
}

fn text<'a>(text: &'a TextMetric, scene: Scene<'a>, columns: usize) -> Line<'a> {
    let name = fit::shorten(&text.name, columns / 2);
    let split = format!(" {} ", text.split.name());
    let room = columns.saturating_sub(fit::columns(&name) + split.len());
    Line::from(vec![
        Span::styled(name, scene.theme.strong()),
        Span::styled(split, scene.theme.split(text.split)),
        Span::raw(fit::cut(&text.text, room)),
    ])
}

/// The name gives way to the values; where that is not enough, they go on below it.
fn numeric<'a>(numeric: &'a NumericMetric, scene: Scene<'a>, columns: usize) -> Vec<Line<'a>> {
    let values = numeric.series.iter().filter_map(|(split, history)| {
        let (_, value) = history.last()?;
        let split = Span::styled(format!(" {} ", split.name()), scene.theme.split(*split));
        let value = Span::raw(with_unit(value, &numeric.metric));
        Some(Line::from(vec![split, value]))
    });
    let values: Vec<Line<'_>> = values.collect();
    let room = columns.saturating_sub(values.iter().map(Line::width).sum());
    let room = if room < NAME { columns / 2 } else { room };
    let name = fit::shorten(&numeric.metric.name, room);
    let name = Line::from(Span::styled(name, scene.theme.strong()));
    fit::join([name].into_iter().chain(values), "", columns)
}

/// A value of the metric, as it is shown.
pub(super) fn with_unit(value: f64, metric: &Metric) -> String {
    let unit = clean(&metric.unit);
    let space = if unit.is_empty() { "" } else { " " };
    format!("{}{space}{unit}", number(value))
}
