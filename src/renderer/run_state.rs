//! What the events of a run add up to: all that a display knows. Bounded, however long the run is.

use std::collections::VecDeque;

use super::checkpoints::Checkpoints;
use super::control::KILLING;
use super::event::{Event, Metric, Split};
use super::figures::abridged;
use super::history::History;

/// So many named events are remembered one by one.
const EVENTS: usize = 100;
/// So many metrics, texts and counters are known, each.
const NAMES: usize = 512;
/// Characters of a name, and bytes of any other text, that are kept.
const NAME: usize = 256;
const TEXT: usize = 4096;

/// All that a display knows of a run. Times are seconds since 1970 (UTC).
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// When this process began, or went on with, the run.
    pub(crate) started: Option<f64>,
    /// Seconds since then in which the process was stopped.
    paused: f64,
    /// The latest event.
    pub(crate) latest: f64,
    /// Epochs and steps that earlier processes had done then.
    pub(crate) resumed_after: (u64, u64),
    /// Epochs in all, if that is known.
    pub(crate) epochs: Option<u64>,
    /// Steps in all, if that is known; then the whole is measured by them.
    pub(crate) steps: Option<u64>,
    /// Epochs that are done.
    pub(crate) epoch: u64,
    /// Steps that are done.
    pub(crate) step: u64,
    /// How much of the epoch that goes on is trained, from 0 to 1. What comes after that belongs to it.
    trained: f64,
    /// What [`done`](Self::done) was when this process began: its speed says nothing of that.
    baseline: f64,
    /// The first pass has yet to say how much of it an earlier process has done.
    baseline_is_open: bool,
    /// The pass over the data that goes on.
    pub(crate) pass: Option<Pass>,
    /// The pass that ended last.
    pub(crate) ended: Option<Ended>,
    /// How many have ended in this process.
    pub(crate) passes: u64,
    /// In the order in which they were heard of.
    pub(crate) numeric: Vec<NumericMetric>,
    /// In the order in which they were heard of.
    pub(crate) texts: Vec<TextMetric>,
    /// How often each named event happened, in the order in which they were heard of.
    pub(crate) counters: Vec<(String, u64)>,
    /// The latest named events, with their times; the latest last.
    pub(crate) events: VecDeque<(f64, String)>,
    /// There were more names than are kept.
    overflowed: bool,
    /// Why it was asked to stop, if it was.
    pub(crate) stopping: Option<String>,
    /// `None` if nothing is known of any.
    pub(crate) checkpoints: Option<Checkpoints>,
    /// Set once it is over.
    pub(crate) end: Option<Ending>,
    /// What else the person in front of the display should know. Not from events: a watcher sets it.
    pub(crate) notice: Option<String>,
}

/// A pass over some of the data.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pass {
    pub(crate) split: Split,
    /// Items done.
    pub(crate) done: u64,
    /// Items in all, if that is known.
    pub(crate) total: Option<u64>,
    /// Items that were done when it began, in a run that was resumed in its middle.
    skipped: u64,
    /// When it began; later by as long as the process was stopped meanwhile.
    pub(crate) began: f64,
}

/// A pass that is over.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    pub(crate) pass: Pass,
    /// When it ended.
    pub(crate) at: f64,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub(crate) at: f64,
    pub(crate) summary: Vec<(String, String)>,
    pub(crate) error: Option<String>,
}

/// A metric that can be plotted.
#[derive(Debug)]
pub(crate) struct NumericMetric {
    pub(crate) metric: Metric,
    /// One for each split that it was measured on, in the order of [`Split::ALL`].
    pub(crate) series: Vec<(Split, History)>,
}

/// A metric that is a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TextMetric {
    pub(crate) name: String,
    pub(crate) split: Split,
    pub(crate) text: String,
}

impl RunState {
    /// Takes in an event that happened at `at`.
    pub(crate) fn apply(&mut self, at: f64, event: Event) {
        if !self.has_room_for(&event) {
            return self.warn_once();
        }
        self.latest = self.latest.max(at);
        match event {
            Event::Start {
                epochs,
                steps,
                epoch,
                step,
            } => {
                (self.epochs, self.steps) = (epochs, steps);
                self.start(at, epoch, step);
            }
            Event::Register(metric) => self.register(&metric),
            Event::Numeric {
                split,
                name,
                value,
                step,
            } => self.metric(&name).history(split).push(step, value),
            Event::Text { split, name, text } => self.text(split, &name, text),
            Event::SplitStart { split, done, total } => self.begin_pass(at, split, done, total),
            Event::Progress { done, step } => self.progress(done, step),
            Event::SplitEnd => self.end_pass(at),
            Event::Epoch { epoch } => {
                (self.epoch, self.trained) = (epoch, 0.0);
                self.baseline_is_open = false;
            }
            Event::Named { name, text, count } => self.named(at, &name, text, count),
            Event::Stopping { message } => self.stopping = Some(shortened(message)),
            Event::GoingOn => self.stopping = None,
            Event::Paused { seconds } => self.pause(seconds.max(0.0)),
            Event::Checkpoints(checkpoints) => self.checkpoints = Some(checkpoints),
            Event::Saving(in_flight) => {
                let checkpoints = self.checkpoints.get_or_insert_default();
                checkpoints.in_flight = Some(in_flight);
            }
            Event::End { summary, error } => {
                // A pass that the end cuts short is no further for it.
                let trained = self.trained;
                self.end_pass(at);
                self.trained = trained;
                self.end = Some(Ending {
                    at,
                    summary: last_words(summary),
                    error: error.map(shortened),
                });
            }
        }
    }

    /// Whether what an event names is known already, or may still be.
    pub(crate) fn has_room_for(&self, event: &Event) -> bool {
        match event {
            Event::Register(Metric { name, .. }) | Event::Numeric { name, .. } => {
                self.numeric.len() < NAMES || self.find_metric(name).is_some()
            }
            Event::Text { split, name, .. } => {
                self.texts.len() < NAMES || self.find_text(*split, name).is_some()
            }
            Event::Named { name, .. } => {
                self.counters.len() < NAMES || self.find_counter(name).is_some()
            }
            _ => true,
        }
    }

    fn warn_once(&mut self) {
        if !self.overflowed {
            self.overflowed = true;
            log::warn!(
                "the run has more than {NAMES} metrics, texts, or named events: the rest is not shown"
            );
        }
    }

    /// What an earlier process left does not tell how this one stands.
    pub(crate) fn set_aside_process(&mut self) {
        (self.pass, self.ended, self.passes, self.trained) = (None, None, 0, 0.0);
        (self.started, self.stopping, self.end) = (None, None, None);
        (self.paused, self.checkpoints) = (0.0, None);
    }

    fn start(&mut self, at: f64, epoch: u64, step: u64) {
        self.set_aside_process();
        self.started = Some(at);
        (self.epoch, self.step) = (epoch, step);
        self.resumed_after = (epoch, step);
        (self.baseline, self.baseline_is_open) = (self.done(), self.steps.is_none());
        if epoch == 0 && step == 0 {
            return self.start_over();
        }
        for metric in &mut self.numeric {
            for (_, history) in &mut metric.series {
                history.forget_after(step);
            }
        }
    }

    /// A run before this one has nothing to say any more. What is known of metrics stays: they may be registered
    /// before the start.
    fn start_over(&mut self) {
        for metric in &mut self.numeric {
            metric.series.clear();
        }
        self.texts.clear();
        self.counters.clear();
        self.events.clear();
    }

    fn begin_pass(&mut self, at: f64, split: Split, done: u64, total: Option<u64>) {
        self.end_pass(at);
        let pass = Pass {
            split,
            done,
            total,
            skipped: done,
            began: at,
        };
        if split == Split::Train {
            self.trained = pass.fraction().unwrap_or(0.0);
            if std::mem::take(&mut self.baseline_is_open) {
                self.baseline = self.done();
            }
        }
        self.pass = Some(pass);
    }

    fn progress(&mut self, done: u64, step: u64) {
        self.step = step;
        let Some(pass) = &mut self.pass else { return };
        pass.done = done;
        if pass.split == Split::Train {
            self.trained = pass.fraction().unwrap_or(0.0);
        }
    }

    fn pause(&mut self, seconds: f64) {
        self.paused += seconds;
        if let Some(pass) = &mut self.pass {
            pass.began += seconds;
        }
    }

    fn end_pass(&mut self, at: f64) {
        let Some(pass) = self.pass.take() else { return };
        if pass.split == Split::Train && pass.total.is_none() {
            self.trained = 1.0;
        }
        self.passes += 1;
        self.ended = Some(Ended { pass, at });
    }

    fn find_metric(&self, name: &str) -> Option<usize> {
        let name = abridged(name, NAME);
        self.numeric
            .iter()
            .position(|known| known.metric.name == name)
    }

    fn find_text(&self, split: Split, name: &str) -> Option<usize> {
        let name = abridged(name, NAME);
        let is_it = |known: &TextMetric| known.split == split && known.name == name;
        self.texts.iter().position(is_it)
    }

    fn find_counter(&self, name: &str) -> Option<usize> {
        let name = abridged(name, NAME);
        self.counters.iter().position(|(known, _)| *known == name)
    }

    fn register(&mut self, metric: &Metric) {
        let known = self.metric(&metric.name);
        known.metric.unit = abridged(&metric.unit, NAME).into_owned();
        known.metric.goal = metric.goal;
    }

    fn metric(&mut self, name: &str) -> &mut NumericMetric {
        let index = self.find_metric(name).unwrap_or_else(|| {
            self.numeric.push(NumericMetric {
                metric: Metric::new(abridged(name, NAME)),
                series: Vec::new(),
            });
            self.numeric.len() - 1
        });
        &mut self.numeric[index]
    }

    fn text(&mut self, split: Split, name: &str, text: String) {
        let text = shortened(text);
        if let Some(known) = self.find_text(split, name) {
            self.texts[known].text = text;
        } else {
            let name = abridged(name, NAME).into_owned();
            self.texts.push(TextMetric { name, split, text });
        }
    }

    fn named(&mut self, at: f64, name: &str, text: String, count: u64) {
        let name = abridged(name, NAME).into_owned();
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        let line = if text.is_empty() {
            name.clone()
        } else {
            format!("{name}: {}", shortened(text))
        };
        self.events.push_back((at, line));
        match self.find_counter(&name) {
            Some(known) => {
                let counter = &mut self.counters[known].1;
                *counter = counter.saturating_add(count);
            }
            None => self.counters.push((name, count)),
        }
    }

    /// Steps that are done or, where their number is not known, epochs, with the fraction of the one that goes on.
    fn done(&self) -> f64 {
        if self.steps.is_some() {
            self.step as f64
        } else {
            self.epoch as f64 + self.trained
        }
    }

    /// What [`done`](Self::done) is in the end.
    fn total(&self) -> Option<f64> {
        let total = self.steps.or(self.epochs);
        Some(total.filter(|total| *total > 0)? as f64)
    }

    /// How much of the whole run is done, from 0 to 1, if that can be known.
    pub(crate) fn fraction(&self) -> Option<f64> {
        Some((self.done() / self.total()?).clamp(0.0, 1.0))
    }

    /// Seconds until the run is over, at the speed that it had since this process began.
    pub(crate) fn left(&self, now: f64) -> Option<f64> {
        if self.end.is_some() {
            return None;
        }
        let left = (self.total()? - self.done()).max(0.0);
        let since = now - self.started? - self.paused;
        let gained = self.done() - self.baseline;
        (gained > 0.0 && since >= 0.0).then(|| left * since / gained)
    }

    /// Whether it is over because a person has killed it.
    pub(crate) fn was_killed(&self) -> bool {
        let end = self.end.as_ref();
        // Whoever catches a kill may end the run as if all were well.
        let why = end.and_then(|end| end.error.as_ref().or(self.stopping.as_ref()));
        why.is_some_and(|why| why == KILLING)
    }
}

impl Pass {
    /// How much of it is done, from 0 to 1, if that can be known.
    pub(crate) fn fraction(&self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0)?;
        Some((self.done as f64 / total as f64).clamp(0.0, 1.0))
    }

    /// Items a second since it began.
    pub(crate) fn rate(&self, now: f64) -> Option<f64> {
        let (done, since) = (self.done.saturating_sub(self.skipped), now - self.began);
        (done > 0 && since > 0.0).then(|| done as f64 / since)
    }

    /// Seconds until it is over.
    #[cfg_attr(
        not(any(feature = "tui", test)),
        expect(dead_code, reason = "only the screen shows it")
    )]
    pub(crate) fn left(&self, now: f64) -> Option<f64> {
        Some(self.total?.saturating_sub(self.done) as f64 / self.rate(now)?)
    }
}

impl NumericMetric {
    fn history(&mut self, split: Split) -> &mut History {
        let index = match self
            .series
            .binary_search_by_key(&split, |(split, _)| *split)
        {
            Ok(index) => index,
            Err(index) => {
                self.series.insert(index, (split, History::default()));
                index
            }
        };
        &mut self.series[index].1
    }
}

/// The beginning of a text that is too long.
fn shortened(mut text: String) -> String {
    if text.len() > TEXT {
        let mut end = TEXT - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

/// What the training says in the end, as far as there is room for it.
fn last_words(summary: Vec<(String, String)>) -> Vec<(String, String)> {
    let pairs = summary.into_iter().take(NAMES);
    let short = pairs.map(|(name, value)| (abridged(&name, NAME).into_owned(), shortened(value)));
    short.collect()
}

#[cfg(test)]
mod tests;
