//! The numeric metrics: tabs to choose one, what its marks mean, and a plot of it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::panel::{put, rule};
use super::plot::{BEST, mark};
use super::scene::Scene;
use super::values::with_unit;
use super::{bars, curves, fit, plot, tabs};
use crate::renderer::figures::count;
use crate::renderer::run_state::NumericMetric;

/// An area of fewer columns has no room for all kinds of plot beside the tabs: beside so many that not all are shown,
/// beside few, or for any kind.
const WIDER: u16 = 80;
const WIDE: u16 = 56;
const NARROW: u16 = 36;
/// Columns of all kinds.
const KINDS: usize = 31;
/// An area of fewer rows has one row for what marks mean.
const TALL: u16 = 12;

/// What of a metric is drawn.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plot {
    /// The whole history, at reduced resolution.
    #[default]
    Whole,
    /// The last values, one by one.
    Recent,
    /// A few numbers, as bars.
    Summary,
}

impl Plot {
    /// All of them, in the order of their keys.
    pub(super) const ALL: [Plot; 3] = [Plot::Whole, Plot::Recent, Plot::Summary];

    /// The one after it; after the last comes the first.
    fn next(self) -> Plot {
        Plot::ALL[(self as usize + 1) % Plot::ALL.len()]
    }

    fn name(self) -> &'static str {
        match self {
            Plot::Whole => "whole",
            Plot::Recent => "recent",
            Plot::Summary => "summary",
        }
    }
}

/// What the person has chosen to see.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Index of a numeric metric of the run, if it has any.
    pub(super) metric: usize,
    /// The first tab that is shown.
    pub(super) first_tab: usize,
    pub(super) plot: Plot,
}

/// What a click chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Click {
    Metric(usize),
    Plot(Plot),
}

/// Where it can be clicked for what.
pub(super) type Clicks = Vec<(Rect, Click)>;

/// Draws all of it, and notes where it can be clicked.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    scene: Scene<'_>,
    choice: &mut Choice,
    clicks: &mut Clicks,
) {
    rule(buffer, area, &Line::default(), scene.theme);
    choice.metric = choice.metric.min(scene.run.numeric.len().saturating_sub(1));
    let Some(metric) = scene.run.numeric.get(choice.metric) else {
        rule(buffer, area, &Line::from("Metrics"), scene.theme);
        let nothing = Line::styled(" no metric yet", scene.theme.faint());
        return put(buffer, area, usize::from(area.height / 2), &nothing);
    };
    let beside = kinds(buffer, area, scene, choice.plot, clicks);
    let top = Rect {
        width: area.width - beside,
        ..area
    };
    tabs::draw(buffer, top, scene, choice, clicks);
    let taken = 1 + legend(buffer, area, metric, scene);
    let rest = Rect {
        y: area.y + taken.min(area.height),
        height: area.height.saturating_sub(taken),
        ..area
    };
    content(buffer, rest, metric, choice.plot, scene);
}

/// Draws the kinds of plot at the end of the first row, and says how many columns they take.
fn kinds(
    buffer: &mut Buffer,
    area: Rect,
    scene: Scene<'_>,
    chosen: Plot,
    clicks: &mut Clicks,
) -> u16 {
    let all_fit = tabs::columns(scene) + KINDS <= usize::from(area.width);
    let is_wide = area.width >= WIDER || (area.width >= WIDE && all_fit);
    let shown = |plot: Plot| is_wide || (area.width >= NARROW && plot == chosen);
    let kinds = Plot::ALL
        .into_iter()
        .zip(1..)
        .filter(|(plot, _)| shown(*plot));
    let texts = kinds.map(|(plot, key)| {
        if plot == chosen {
            let text = format!("[{key} {}]", plot.name());
            (plot, Line::styled(text, scene.theme.chosen_one()))
        } else {
            (plot, Line::from(format!(" {key} {} ", plot.name())))
        }
    });
    let texts: Vec<(Plot, Line<'_>)> = texts.collect();
    let width: usize = texts.iter().map(|(_, text)| text.width()).sum();
    let mut x = area.right() - width as u16;
    for (plot, text) in texts {
        let place = Rect {
            x,
            width: text.width() as u16,
            height: 1,
            ..area
        };
        put(buffer, place, 0, &text);
        // Where only the chosen one is seen, a click turns to the next.
        let chosen = if is_wide { plot } else { plot.next() };
        clicks.push((place, Click::Plot(chosen)));
        x = place.right();
    }
    if width == 0 {
        return 0;
    }
    // And one of the rule.
    width as u16 + 1
}

/// Says what the marks mean, with the last values and the best one, and how many rows that takes.
fn legend(buffer: &mut Buffer, area: Rect, metric: &NumericMetric, scene: Scene<'_>) -> u16 {
    let series = metric.series.iter().filter_map(|(split, history)| {
        let (_, value) = history.last()?;
        let text = format!("{} {} ", mark(*split), split.name());
        Some(Line::from(vec![
            Span::styled(text, scene.theme.split(*split)),
            Span::raw(with_unit(value, &metric.metric)),
        ]))
    });
    let best = curves::best(metric).map(|best| {
        let value = with_unit(best.value, &metric.metric);
        let at = format!(
            " best {} {value} at {}",
            best.split.name(),
            count(best.step)
        );
        let mark = Span::styled(BEST.to_string(), scene.theme.split(best.split));
        Line::from(vec![mark, Span::raw(at)])
    });
    let lines = fit::flow(
        series.chain(best),
        usize::from(area.width).saturating_sub(1),
    );
    let most = if area.height >= TALL { 2 } else { 1 };
    let below = Rect {
        x: area.x + area.width.min(1),
        width: area.width.saturating_sub(1),
        ..area
    };
    for (row, line) in lines.iter().take(most).enumerate() {
        put(buffer, below, row + 1, line);
    }
    lines.len().min(most) as u16
}

/// Draws the metric itself.
pub(super) fn content(
    buffer: &mut Buffer,
    area: Rect,
    metric: &NumericMetric,
    kind: Plot,
    scene: Scene<'_>,
) {
    let most = usize::from(area.width) * 2;
    let curves = match kind {
        Plot::Whole => curves::whole(metric, most),
        Plot::Recent => curves::recent(metric, most),
        Plot::Summary => return bars::draw(buffer, area, metric, scene),
    };
    plot::draw(buffer, area, &curves, curves::best(metric), scene.theme);
}
