//! A run as lines of text, one now and then: for pipes, logs and CI.

mod summary;

use std::fmt::Write as _;
use std::io::{self, Write};

use super::checkpoints::{Checkpoints, Committed};
use super::control::Request;
use super::display::Display;
use super::event::Split;
use super::figures::{abridged, brief, bytes, clean, count, duration, number, several};
use super::run_state::{Ended, NumericMetric, RunState};

pub(crate) use summary::summary_lines;

/// Seconds between lines that say how far it is.
const EVERY: f64 = 10.0;
/// So many metrics are on a line.
const METRICS: usize = 8;
/// So many characters of the name of a metric are shown.
const NAME: usize = 40;

/// Shows a run as lines. How far it is, is said now and then; what matters more is said each time.
pub(crate) struct Plain {
    out: Box<dyn Write + Send>,
    /// How many columns there are, where that matters.
    columns: fn() -> Option<usize>,
    /// The last line that said how far it is, without what changes all the time, and when that was.
    progress: Option<(f64, String)>,
    /// When a named event was told last.
    named: Option<f64>,
    told: Told,
}

/// What has been told already.
#[derive(Debug, Default)]
struct Told {
    started: Option<f64>,
    epoch: u64,
    passes: u64,
    named: u64,
    stopping: Option<String>,
    notice: Option<String>,
    committed: Option<Committed>,
    failed: u64,
}

impl Plain {
    pub(crate) fn new(out: impl Write + Send + 'static) -> Plain {
        Plain {
            out: Box::new(out),
            columns: || None,
            progress: None,
            named: None,
            told: Told::default(),
        }
    }

    /// On standard output, which may be a terminal.
    pub(crate) fn on_stdout() -> Plain {
        Plain {
            columns: stdout_columns,
            ..Plain::new(io::stdout())
        }
    }

    /// All there is to say at `now`.
    fn lines(&mut self, run: &RunState, now: f64) -> Vec<String> {
        let mut lines = Vec::new();
        if run.notice != self.told.notice {
            self.told.notice.clone_from(&run.notice);
            lines.extend(run.notice.clone());
        }
        if run.started.is_none() {
            return lines;
        }
        lines.extend(self.start(run));
        let before = lines.len();
        lines.extend(self.pass_that_ended(run));
        lines.extend(self.epoch_that_ended(run, now));
        let says_how_far = lines.len() > before;
        if let Some(checkpoints) = &run.checkpoints {
            self.checkpoints(checkpoints, &mut lines);
        }
        lines.extend(self.named(run, now));
        lines.extend(self.stop(run));
        if !says_how_far && run.end.is_none() {
            lines.extend(self.progress(run, now));
        }
        lines
    }

    fn start(&mut self, run: &RunState) -> Option<String> {
        if run.started == self.told.started {
            return None;
        }
        let (epoch, step) = run.resumed_after;
        self.told = Told {
            started: run.started,
            epoch,
            notice: self.told.notice.take(),
            ..Told::default()
        };
        self.progress = None;
        let whole = match (run.epochs, run.steps) {
            (_, Some(steps)) => format!(" of {}", several(steps, "step")),
            (Some(epochs), None) => format!(" of {}", several(epochs, "epoch")),
            (None, None) => String::new(),
        };
        let after = match (epoch, step) {
            (0, 0) => return Some(format!("a run{whole} begins")),
            (0, step) => format!("step {}", count(step)),
            (epoch, step) => format!("epoch {}, step {}", count(epoch), count(step)),
        };
        Some(format!("a run{whole} goes on after {after}"))
    }

    /// That it was asked to stop, or that this was taken back.
    fn stop(&mut self, run: &RunState) -> Option<String> {
        if run.stopping == self.told.stopping {
            return None;
        }
        self.told.stopping.clone_from(&run.stopping);
        Some(match &run.stopping {
            Some(message) => format!("stopping: {message}"),
            None => "not stopping any more".to_owned(),
        })
    }

    fn pass_that_ended(&mut self, run: &RunState) -> Option<String> {
        let has_ended = std::mem::replace(&mut self.told.passes, run.passes) != run.passes;
        let Ended { pass, at } = run.ended.as_ref().filter(|_| has_ended)?;
        let took = duration(at - pass.began);
        let mut line = format!("{}: {} in {took}", pass.split.name(), count(pass.done));
        append_values(&mut line, run, pass.split);
        Some(line)
    }

    fn epoch_that_ended(&mut self, run: &RunState, now: f64) -> Option<String> {
        if std::mem::replace(&mut self.told.epoch, run.epoch) == run.epoch {
            return None;
        }
        let mut line = format!("epoch {} done", of(run.epoch, run.epochs));
        append_left(&mut line, run, now);
        Some(line)
    }

    fn checkpoints(&mut self, checkpoints: &Checkpoints, lines: &mut Vec<String>) {
        if checkpoints.last != self.told.committed {
            self.told.committed.clone_from(&checkpoints.last);
            lines.extend(checkpoints.last.as_ref().and_then(committed));
        }
        let failed = std::mem::replace(&mut self.told.failed, checkpoints.failed);
        let new = checkpoints.failed.saturating_sub(failed) as usize;
        let known = checkpoints.failures.len();
        let failures = &checkpoints.failures[known.saturating_sub(new)..];
        lines.extend(
            failures
                .iter()
                .map(|why| format!("checkpoint failed: {why}")),
        );
    }

    /// The latest named event; there may be one each step.
    fn named(&mut self, run: &RunState, now: f64) -> Option<String> {
        let times = run.counters.iter().map(|(_, times)| times);
        let times = times.fold(0u64, |sum, times| sum.saturating_add(*times));
        if times == self.told.named || self.named.is_some_and(|told| is_too_soon(told, now)) {
            return None;
        }
        let others = times.saturating_sub(self.told.named).saturating_sub(1);
        (self.told.named, self.named) = (times, Some(now));
        let (_, latest) = run.events.back()?;
        Some(if others > 0 {
            format!("{latest} (and {} more before)", count(others))
        } else {
            latest.clone()
        })
    }

    fn progress(&mut self, run: &RunState, now: f64) -> Option<String> {
        let (said, at) = match &self.progress {
            Some((at, said)) => (said.as_str(), Some(*at)),
            None => ("", None),
        };
        if at.is_some_and(|at| is_too_soon(at, now)) {
            return None;
        }
        let line = how_far(run)?;
        if line == said {
            return None;
        }
        self.progress = Some((now, line.clone()));
        let mut line = line;
        if let Some(rate) = run.pass.as_ref().and_then(|pass| pass.rate(now)) {
            // Writing to a String cannot fail.
            let _ = write!(line, " | {}/s", number(rate));
        }
        append_left(&mut line, run, now);
        Some(line)
    }

    /// Writes all lines at once, so that those of other threads and processes stay whole.
    fn tell(&mut self, lines: &[String]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(&clean(line));
            text.push('\n');
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

impl Display for Plain {
    fn is_attended(&self) -> bool {
        false
    }

    /// Nobody is in front of it; nor does anybody wait for it to be read.
    fn requests(&mut self, run: &RunState) -> io::Result<Vec<Request>> {
        Ok(run.end.iter().map(|_| Request::Leave).collect())
    }

    fn draw(&mut self, run: &RunState, now: f64) -> io::Result<()> {
        let lines = self.lines(run, now);
        self.tell(&lines)
    }

    fn close(&mut self, run: &RunState, now: f64) -> io::Result<()> {
        let mut lines = self.lines(run, now);
        lines.extend(summary_lines(run, (self.columns)()));
        self.tell(&lines)
    }
}

/// Those of the terminal, if standard output is one.
#[cfg(all(unix, feature = "tui"))]
fn stdout_columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

/// Nobody knows.
#[cfg(not(all(unix, feature = "tui")))]
fn stdout_columns() -> Option<usize> {
    None
}

/// A clock that was set back makes nothing too soon.
fn is_too_soon(told: f64, now: f64) -> bool {
    (0.0..EVERY).contains(&(now - told))
}

/// How far the run is; `None` if there is nothing to say yet.
fn how_far(run: &RunState) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(pass) = &run.pass {
        if run.epochs.is_some() {
            // The one that goes on.
            let epoch = run.epoch.saturating_add(1);
            parts.push(format!("epoch {}", of(epoch, run.epochs)));
        }
        let pass_done = of(pass.done, pass.total);
        parts.push(format!(
            "{} {pass_done}{}",
            pass.split.name(),
            percent(pass.fraction())
        ));
    }
    if run.step > 0 {
        let fraction = run.fraction().filter(|_| run.steps.is_some());
        parts.push(format!(
            "step {}{}",
            of(run.step, run.steps),
            percent(fraction)
        ));
    }
    let split = run.pass.as_ref().map_or(Split::Train, |pass| pass.split);
    let mut line = parts.join(" | ");
    append_values(&mut line, run, split);
    (!line.is_empty()).then_some(line)
}

fn of(done: u64, total: Option<u64>) -> String {
    match total {
        Some(total) => format!("{}/{}", count(done), count(total)),
        None => count(done),
    }
}

fn percent(fraction: Option<f64>) -> String {
    let percent = |fraction: f64| format!(" ({:.0}%)", (fraction * 100.0).floor());
    fraction.map(percent).unwrap_or_default()
}

/// The last values on a split.
fn append_values(line: &mut String, run: &RunState, split: Split) {
    let value = |metric: &NumericMetric| {
        let (_, history) = metric.series.iter().find(|(of, _)| *of == split)?;
        let (_, value) = history.last()?;
        let name = abridged(&metric.metric.name, NAME);
        Some(format!("{name} {}", with_unit(value, &metric.metric.unit)))
    };
    let mut values: Vec<String> = run.numeric.iter().filter_map(value).collect();
    let others = values.len().saturating_sub(METRICS);
    if others > 0 {
        values.truncate(METRICS);
        values.push(format!("and {others} more"));
    }
    if !values.is_empty() {
        let before = if line.is_empty() { "" } else { " | " };
        let _ = write!(line, "{before}{}", values.join(", "));
    }
}

fn append_left(line: &mut String, run: &RunState, now: f64) {
    if let Some(left) = run.left(now) {
        let _ = write!(line, " | {} left", duration(left));
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    let value = number(value);
    if unit.is_empty() {
        value
    } else {
        format!("{value} {unit}")
    }
}

/// `None` for one that an earlier process has saved.
fn committed(last: &Committed) -> Option<String> {
    let took = brief(last.durable?);
    let mut line = format!(
        "checkpoint: step {}, {} in {took}",
        count(last.step),
        bytes(last.bytes)
    );
    if let Some(stall) = last.stall {
        let _ = write!(line, ", of which training stood still for {}", brief(stall));
    }
    Some(line)
}

#[cfg(test)]
mod tests;
