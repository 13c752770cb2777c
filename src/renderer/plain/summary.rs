//! What there is to say of a run that is over.

use std::fmt::Write;

use super::with_unit;
use crate::renderer::checkpoints::Checkpoints;
use crate::renderer::event::{Goal, Metric, Split};
use crate::renderer::figures::{clean, count, duration, number};
use crate::renderer::history::History;
use crate::renderer::run_state::{Ending, RunState};

/// So many rows has the table.
const ROWS: usize = 40;

/// What there is to say of a run that is over, as lines without line breaks; none if it is not.
pub(crate) fn summary_lines(run: &RunState) -> Vec<String> {
    let Some(end) = &run.end else {
        return Vec::new();
    };
    let mut lines = vec![ending(run, end)];
    lines.extend(table(run));
    lines.extend(
        end.summary
            .iter()
            .map(|(name, value)| format!("  {name}: {value}")),
    );
    let times = |(name, times): &(String, u64)| format!("  {name}: {} times", count(*times));
    lines.extend(run.counters.iter().take(ROWS).map(times));
    lines.extend(run.checkpoints.as_ref().map(checkpoints));
    lines.iter().map(|line| clean(line).into_owned()).collect()
}

fn ending(run: &RunState, end: &Ending) -> String {
    let took = run.started.map(|started| duration(end.at - started));
    let took = took
        .map(|took| format!(" after {took}"))
        .unwrap_or_default();
    let step = count(run.step);
    match (&end.error, &run.stopping) {
        (Some(error), _) => format!("the run failed{took}, at step {step}: {error}"),
        (None, Some(message)) => format!("the run was stopped{took}, at step {step}: {message}"),
        (None, None) => format!("the run is over{took}, at step {step}"),
    }
}

/// Metric, split, last and best value, and where that was; in columns.
fn table(run: &RunState) -> Vec<String> {
    let series = run.numeric.iter().flat_map(|numeric| {
        let row = |(split, history): &(Split, History)| row(&numeric.metric, *split, history);
        numeric.series.iter().map(row).collect::<Vec<_>>()
    });
    let mut rows: Vec<[String; 5]> = series.collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let others = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    let titles = ["metric", "split", "last", "best", "at step"];
    rows.insert(0, titles.map(str::to_owned));
    let widths = [0, 1, 2, 3, 4].map(|column| {
        let width = |row: &[String; 5]| row[column].chars().count();
        rows.iter().map(width).max().unwrap_or(0)
    });
    let mut lines: Vec<String> = rows.iter().map(|row| in_columns(row, widths)).collect();
    if others > 0 {
        lines.push(format!("  and {others} more"));
    }
    lines
}

fn in_columns(row: &[String; 5], widths: [usize; 5]) -> String {
    let [metric, split, last, best, step] = row;
    let [w0, w1, w2, w3, w4] = widths;
    let line = format!("  {metric:w0$}  {split:w1$}  {last:>w2$}  {best:>w3$}  {step:>w4$}");
    line.trim_end().to_owned()
}

/// Without a goal, the range of the values takes the place of the best one.
fn row(metric: &Metric, split: Split, history: &History) -> [String; 5] {
    let unit = &metric.unit;
    let best = match metric.goal {
        Some(Goal::Min) => history.min(),
        Some(Goal::Max) => history.max(),
        None => None,
    };
    let (best, step) = match (best, history.min().zip(history.max())) {
        (Some((step, value)), _) => (with_unit(value, unit), count(step)),
        (None, Some(((_, min), (_, max)))) if metric.goal.is_none() => {
            (format!("{} to {}", number(min), number(max)), String::new())
        }
        _ => (String::new(), String::new()),
    };
    let last = history.last().map(|(_, value)| with_unit(value, unit));
    [
        clean(&metric.name).into_owned(),
        split.name().to_owned(),
        last.unwrap_or_default(),
        best,
        step,
    ]
}

fn checkpoints(checkpoints: &Checkpoints) -> String {
    let mut line = format!("  checkpoints: {} saved", count(checkpoints.saved));
    for (times, what) in [
        (checkpoints.failed, "failed"),
        (checkpoints.skipped, "skipped"),
    ] {
        if times > 0 {
            // Writing to a String cannot fail.
            let _ = write!(line, ", {} {what}", count(times));
        }
    }
    if let Some(last) = &checkpoints.last {
        let _ = write!(line, "; the last is step {}", count(last.step));
    }
    if let Some(in_flight) = &checkpoints.in_flight {
        let _ = write!(line, "; step {} is being saved", count(in_flight.step));
    }
    line
}
