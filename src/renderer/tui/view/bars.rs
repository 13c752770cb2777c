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
use crate::renderer::event::{Goal, Metric, Split};
use crate::renderer::figures::count;
use crate::renderer::history::History;
use crate::renderer::run_state::NumericMetric;

/// Columns of the split, and of the name of a number.
const SPLIT: usize = 9;
const NAME: usize = 11;
/// Columns of a bar, if there is room for one.
const SHORTEST: usize = 5;
const LONGEST: usize = 60;

/// One number.
struct Fact {
    name: &'static str,
    value: f64,
    text: String,
    /// Where it was measured, for those that were measured somewhere.
    at: String,
}

/// What all bars have in common, so that they can be compared.
struct Scale {
    low: f64,
    high: f64,
    /// Columns of the numbers, and of the bars.
    text: usize,
    bar: usize,
}

/// Draws as many numbers of each split as there are rows for.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, metric: &NumericMetric, scene: Scene<'_>) {
    let all = metric.series.iter();
    let all = all.map(|(split, history)| (*split, history, facts(history, &metric.metric)));
    let all: Vec<(Split, &History, Vec<Fact>)> = all.collect();
    let scale = Scale::of(
        all.iter().flat_map(|(.., facts)| facts),
        usize::from(area.width),
    );
    let rows = usize::from(area.height) / all.len().max(1);
    let mut row = 0;
    for (split, history, facts) in &all {
        let lines = lines(*split, history, facts, &scale, scene);
        for line in lines.iter().take(rows.max(1)) {
            put(buffer, area, row, line);
            row += 1;
        }
    }
}

impl Scale {
    fn of<'a>(facts: impl Iterator<Item = &'a Fact>, columns: usize) -> Scale {
        let (mut low, mut high, mut text, mut at) = (0.0_f64, 0.0_f64, 0, 0);
        for fact in facts {
            if fact.value.is_finite() {
                (low, high) = (low.min(fact.value), high.max(fact.value));
            }
            text = text.max(fit::columns(&fact.text));
            at = at.max(fit::columns(&fact.at));
        }
        // A space between number and bar.
        let room = columns.saturating_sub(SPLIT + NAME + text + 1 + at);
        Scale {
            low: low.max(-FARTHEST),
            high: high.min(FARTHEST),
            text,
            bar: if room < SHORTEST {
                0
            } else {
                room.min(LONGEST)
            },
        }
    }

    /// From zero to the value, to the right or to the left.
    fn bar(&self, value: f64) -> String {
        if !value.is_finite() || self.high <= self.low {
            return " ".repeat(self.bar);
        }
        let place = |value: f64| {
            let part = (value - self.low) / (self.high - self.low);
            (part.clamp(0.0, 1.0) * self.bar as f64).round() as usize
        };
        let (zero, end) = (place(0.0), place(value));
        let (from, to) = (zero.min(end), zero.max(end));
        let blank = |columns| " ".repeat(columns);
        format!(
            "{}{}{}",
            blank(from),
            "█".repeat(to - from),
            blank(self.bar - to)
        )
    }
}

/// The most telling first.
fn facts(history: &History, metric: &Metric) -> Vec<Fact> {
    let fact = |name, (step, value): (Option<u64>, f64)| Fact {
        name,
        value,
        text: with_unit(value, metric),
        at: step
            .map(|step| format!(" at {}", count(step)))
            .unwrap_or_default(),
    };
    let (lower, upper) = match metric.goal {
        Some(Goal::Min) => ("best (min)", "max"),
        Some(Goal::Max) => ("min", "best (max)"),
        None => ("min", "max"),
    };
    let somewhere = |found: Option<(u64, f64)>| found.map(|(step, value)| (Some(step), value));
    let facts = [
        ("last", somewhere(history.last())),
        (lower, somewhere(history.min())),
        ("mean", mean(history).map(|value| (None, value))),
        (upper, somewhere(history.max())),
    ];
    let facts = facts
        .into_iter()
        .filter_map(|(name, found)| Some(fact(name, found?)));
    facts.collect()
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
    scale: &Scale,
    scene: Scene<'_>,
) -> Vec<Line<'static>> {
    let style = scene.theme.split(split);
    let lines = facts.iter().enumerate().map(|(index, fact)| {
        let heading = match index {
            0 => format!(" {} {}", mark(split), split.name()),
            _ => String::new(),
        };
        let indent = scale.text - fit::columns(&fact.text);
        let (name, text) = (fact.name, &fact.text);
        Line::from(vec![
            Span::styled(format!("{heading:<SPLIT$}"), style),
            Span::raw(format!("{name:<NAME$}{:indent$}{text} ", "")),
            Span::styled(scale.bar(fact.value), style),
            Span::styled(fact.at.clone(), scene.theme.faint()),
        ])
    });
    let many = format!("{:SPLIT$}{}", "", how_many(history));
    lines
        .chain([Line::styled(many, scene.theme.faint())])
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_begin_at_zero() {
        for (value, [low, high], expected) in [
            (1.0, [0.0, 1.0], "████"),
            (0.5, [0.0, 1.0], "██  "),
            (0.0, [0.0, 1.0], "    "),
            (-1.0, [-1.0, 1.0], "██  "),
            (1.0, [-1.0, 1.0], "  ██"),
            (-1.0, [-1.0, 0.0], "████"),
            (0.0, [0.0, 0.0], "    "),
            (f64::NAN, [0.0, 1.0], "    "),
            (f64::MAX, [-FARTHEST, FARTHEST], "  ██"),
            (5e-324, [0.0, 5e-324], "████"),
        ] {
            let scale = Scale {
                low,
                high,
                text: 0,
                bar: 4,
            };
            assert_eq!(scale.bar(value), expected, "{value} from {low} to {high}");
        }
    }
}
