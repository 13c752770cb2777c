//! A metric in a few numbers, as bars: the last, the best, the mean, and the extremes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::axis::FARTHEST;
use super::fit;
use super::panel::put;
use super::plot::mark;
use super::scene::Scene;
use super::values::with_unit;
use crate::renderer::event::{Goal, Split};
use crate::renderer::figures::count;
use crate::renderer::history::History;
use crate::renderer::run_state::NumericMetric;

/// Columns of a bar, if there is room for one.
const SHORTEST: usize = 5;
const LONGEST: usize = 60;

/// One number.
struct Fact {
    name: &'static str,
    value: f64,
    /// Where it was measured, for those that were measured somewhere.
    step: Option<u64>,
}

/// Draws as many numbers of each split as there are rows for.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, metric: &NumericMetric, scene: Scene<'_>) {
    let all = metric.series.iter().map(|(split, history)| {
        let facts = facts(history, metric.metric.goal);
        (*split, history, facts)
    });
    let all: Vec<(Split, &History, Vec<Fact>)> = all.collect();
    let finite = all
        .iter()
        .flat_map(|(.., facts)| facts)
        .map(|fact| fact.value);
    let finite = finite.filter(|value| value.is_finite());
    let (low, high) = finite.fold((0.0, 0.0), |(low, high), value: f64| {
        (value.min(low), value.max(high))
    });
    let rows = usize::from(area.height) / all.len().max(1);
    let mut row = 0;
    for (split, history, facts) in &all {
        for line in lines(
            *split,
            history,
            facts,
            metric,
            [low, high],
            usize::from(area.width),
            scene,
        )
        .into_iter()
        .take(rows.max(1))
        {
            put(buffer, area, row, &line);
            row += 1;
        }
    }
}

/// The most telling first.
fn facts(history: &History, goal: Option<Goal>) -> Vec<Fact> {
    let fact = |name, found: Option<(u64, f64)>| {
        found.map(|(step, value)| Fact {
            name,
            value,
            step: Some(step),
        })
    };
    let (min, max) = (history.min(), history.max());
    let extremes = match goal {
        Some(Goal::Min) => [fact("best (min)", min), fact("max", max)],
        Some(Goal::Max) => [fact("best (max)", max), fact("min", min)],
        None => [fact("min", min), fact("max", max)],
    };
    let [first, second] = extremes;
    let mean = mean(history).map(|value| Fact {
        name: "mean",
        value,
        step: None,
    });
    let facts = [fact("last", history.last()), first, mean, second];
    facts.into_iter().flatten().collect()
}

/// The mean of all finite values.
fn mean(history: &History) -> Option<f64> {
    let buckets = history.all();
    let total: u64 = buckets.iter().map(|bucket| bucket.count).sum();
    let parts = buckets
        .iter()
        .map(|bucket| bucket.mean * (bucket.count as f64 / total as f64));
    (total > 0).then(|| parts.sum())
}

fn lines(
    split: Split,
    history: &History,
    facts: &[Fact],
    metric: &NumericMetric,
    range: [f64; 2],
    columns: usize,
    scene: Scene<'_>,
) -> Vec<Line<'static>> {
    let style = scene.theme.split(split);
    let heading = format!(" {} {:<6}", mark(split), split.name());
    let values: Vec<String> = facts
        .iter()
        .map(|fact| with_unit(fact.value, &metric.metric))
        .collect();
    let width = values
        .iter()
        .map(|value| fit::columns(value))
        .max()
        .unwrap_or(0);
    let mut lines = Vec::with_capacity(facts.len() + 1);
    for (index, (fact, value)) in facts.iter().zip(&values).enumerate() {
        let heading = if index == 0 {
            heading.clone()
        } else {
            " ".repeat(heading.len())
        };
        let indent = width - fit::columns(value);
        let text = format!("{:<10} {:indent$}{value} ", fact.name, "");
        let step = fact
            .step
            .map(|step| format!(" at {}", count(step)))
            .unwrap_or_default();
        let taken = heading.len() + fit::columns(&text) + step.len();
        let room = columns.saturating_sub(taken).min(LONGEST);
        let bar = if room < SHORTEST {
            String::new()
        } else {
            bar(fact.value, range, room)
        };
        lines.push(Line::from(vec![
            Span::styled(heading, style),
            Span::raw(text),
            Span::styled(bar, style),
            Span::styled(step, scene.theme.faint()),
        ]));
    }
    lines.push(Line::styled(
        format!("{:1$}{2}", "", heading.len(), how_many(history)),
        scene.theme.faint(),
    ));
    lines
}

/// How many values there were.
fn how_many(history: &History) -> String {
    let (all, not_finite) = history.count();
    let plural = if all == 1 { "" } else { "s" };
    let finite = match not_finite {
        0 => String::new(),
        _ => format!(", {} of them not finite", count(not_finite)),
    };
    format!("{} value{plural}{finite}", count(all))
}

/// From zero to the value, to the right or to the left.
fn bar(value: f64, [low, high]: [f64; 2], columns: usize) -> String {
    if !value.is_finite() || high <= low {
        return " ".repeat(columns);
    }
    let (low, high) = (low.max(-FARTHEST), high.min(FARTHEST));
    let place = |value: f64| ((value - low) / (high - low) * columns as f64).round() as usize;
    let (zero, end) = (place(0.0), place(value.clamp(low, high)));
    let (from, to) = (zero.min(end), zero.max(end).min(columns));
    let mut bar = " ".repeat(from);
    bar.push_str(&"█".repeat(to - from));
    bar.push_str(&" ".repeat(columns - to));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_begin_at_zero() {
        for (value, range, expected) in [
            (1.0, [0.0, 1.0], "████"),
            (0.5, [0.0, 1.0], "██  "),
            (0.0, [0.0, 1.0], "    "),
            (-1.0, [-1.0, 1.0], "██  "),
            (1.0, [-1.0, 1.0], "  ██"),
            (-1.0, [-1.0, 0.0], "████"),
            (0.0, [0.0, 0.0], "    "),
            (f64::NAN, [0.0, 1.0], "    "),
            (f64::MAX, [-f64::MAX, f64::MAX], "  ██"),
            (5e-324, [0.0, 5e-324], "████"),
        ] {
            assert_eq!(bar(value, range, 4), expected, "{value} in {range:?}");
        }
    }
}
