//! What there is to say of a run that is over.

use std::fmt::Write;

use super::{NAME, with_unit};
use crate::renderer::checkpoints::Checkpoints;
use crate::renderer::control::KILLING;
use crate::renderer::event::{Goal, Metric, Split};
use crate::renderer::figures::{abridged, clean, count, duration, several};
use crate::renderer::history::History;
use crate::renderer::run_state::{Ending, RunState};

/// So many rows has the table.
const ROWS: usize = 40;
/// A name is not made shorter than this.
const SHORTEST: usize = 12;

/// The cells of one metric on one split.
type Row = [String; 7];
const TITLES: [&str; 7] = [
    "metric", "split", "last", "lowest", "at step", "highest", "at step",
];

/// What there is to say of a run that is over, as lines without line breaks; none if it is not. What is a table fits
/// into so many columns, if each character takes one.
pub(crate) fn summary_lines(run: &RunState, columns: Option<usize>) -> Vec<String> {
    let Some(end) = &run.end else {
        return Vec::new();
    };
    let mut lines = vec![ending(run, end)];
    lines.extend(table(run, columns.unwrap_or(usize::MAX)));
    lines.extend(
        end.summary
            .iter()
            .map(|(name, value)| format!("  {name}: {value}")),
    );
    let times = |(name, times): &(String, u64)| format!("  {name}: {}", several(*times, "time"));
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
    let (how, why) = match (&end.error, &run.stopping) {
        _ if run.was_killed() => ("was killed", Some(KILLING)),
        (Some(error), _) => ("failed", Some(error.as_str())),
        (None, Some(message)) => ("was stopped", Some(message.as_str())),
        (None, None) => ("is over", None),
    };
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    format!("the run {how}{took}, at step {step}{why}")
}

/// Metric, split and last value; the lowest and the highest one, as far as they matter, and where those were.
fn table(run: &RunState, columns: usize) -> Vec<String> {
    let series = run.numeric.iter().flat_map(|numeric| {
        let row = |(split, history): &(Split, History)| row(&numeric.metric, *split, history);
        numeric.series.iter().map(row).collect::<Vec<_>>()
    });
    let mut rows: Vec<Row> = series.collect();
    let others = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    let mut lines = side_by_side(&rows, columns).unwrap_or_else(|| stacked(&rows, columns));
    if others > 0 {
        lines.push(format!("  and {others} more"));
    }
    lines
}

/// Without a goal nobody knows which of them is the best one: both are told.
fn row(metric: &Metric, split: Split, history: &History) -> Row {
    let unit = &metric.unit;
    let told = |found: Option<(u64, f64)>| match found {
        Some((step, value)) => (with_unit(value, unit), count(step)),
        None => (String::new(), String::new()),
    };
    let (lowest, lowest_at) = told(history.min().filter(|_| metric.goal != Some(Goal::Max)));
    let (highest, highest_at) = told(history.max().filter(|_| metric.goal != Some(Goal::Min)));
    let (last, _) = told(history.last());
    let name = abridged(&clean(&metric.name), NAME).into_owned();
    let split = split.name().to_owned();
    [name, split, last, lowest, lowest_at, highest, highest_at]
}

/// A table with titles; names are shortened to make it fit. `None` if it does not fit all the same.
fn side_by_side(rows: &[Row], columns: usize) -> Option<Vec<String>> {
    if rows.is_empty() {
        return Some(Vec::new());
    }
    let mut widths = widths(rows);
    let needed: usize = widths
        .iter()
        .filter(|width| **width > 0)
        .map(|width| width + 2)
        .sum();
    if needed > columns {
        let room = widths[0].checked_sub(needed - columns);
        widths[0] = room.filter(|room| *room >= SHORTEST)?;
    }
    let titles = TITLES.map(str::to_owned);
    let all = [&titles].into_iter().chain(rows);
    Some(all.map(|row| line(row, &widths)).collect())
}

/// Columns of each cell; none where there is nothing in any row.
fn widths(rows: &[Row]) -> [usize; 7] {
    std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        match cells.max().unwrap_or(0) {
            0 => 0,
            width => width.max(TITLES[column].len()),
        }
    })
}

/// Texts begin, and numbers end, at the same place in each row.
fn line(row: &Row, widths: &[usize; 7]) -> String {
    let mut line = String::new();
    for (column, (cell, &width)) in row.iter().zip(widths).enumerate() {
        // Writing to a String cannot fail.
        let _ = match (column, width) {
            (_, 0) => Ok(()),
            (0, _) => write!(line, "  {:width$}", abridged(cell, width)),
            (1, _) => write!(line, "  {cell:width$}"),
            _ => write!(line, "  {cell:>width$}"),
        };
    }
    line.trim_end().to_owned()
}

/// Below one another what has no room side by side.
fn stacked(rows: &[Row], columns: usize) -> Vec<String> {
    let lines = |row: &Row| {
        let [name, split, last, lowest, lowest_at, highest, highest_at] = row;
        let others = "    ".len() + split.len() + last.chars().count();
        let name = abridged(name, columns.saturating_sub(others).max(SHORTEST));
        let mut lines = vec![format!("  {name} {split} {last}")];
        for (what, value, step) in [
            ("lowest", lowest, lowest_at),
            ("highest", highest, highest_at),
        ] {
            if !value.is_empty() {
                lines.push(format!("    {what} {value} at step {step}"));
            }
        }
        lines
    };
    rows.iter().flat_map(lines).collect()
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
