//! What the events of a run add up to: all that a display knows. Bounded, however long the run is.

use std::collections::VecDeque;

use super::checkpoints::Checkpoints;
use super::event::{Event, Metric, Split};
use super::history::History;

/// So many named events are remembered one by one.
const EVENTS: usize = 100;

/// All that a display knows of a run. Times are seconds since 1970 (UTC).
#[derive(Debug, Default)]
pub(crate) struct RunState {
    /// When this process began, or went on with, the run.
    pub(crate) started: Option<f64>,
    /// The latest event.
    pub(crate) latest: f64,
    /// Epochs in all, if that is known.
    pub(crate) epochs: Option<u64>,
    /// Epochs that are done.
    pub(crate) epoch: u64,
    /// Steps that are done.
    pub(crate) step: u64,
    /// Epochs, with their fraction, that were done when this process began: its speed says nothing of them.
    baseline: f64,
    /// The pass over the data that goes on.
    pub(crate) pass: Option<Pass>,
    /// In the order in which they were heard of.
    pub(crate) numeric: Vec<NumericMetric>,
    /// In the order in which they were heard of.
    pub(crate) texts: Vec<TextMetric>,
    /// How often each named event happened, in the order in which they were heard of.
    pub(crate) counters: Vec<(String, u64)>,
    /// The latest named events, with their times; the latest last.
    pub(crate) events: VecDeque<(f64, String)>,
    /// Why it was asked to stop, if it was.
    pub(crate) stopping: Option<String>,
    /// `None` if nothing is known of any.
    pub(crate) checkpoints: Option<Checkpoints>,
    /// Set once it is over.
    pub(crate) end: Option<Ending>,
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
    /// When it began.
    began: f64,
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
        self.latest = self.latest.max(at);
        match event {
            Event::Start {
                epochs,
                epoch,
                step,
            } => self.start(at, epochs, epoch, step),
            Event::Register(metric) => self.metric(&metric.name).metric = metric,
            Event::Numeric {
                split,
                name,
                value,
                step,
            } => self.metric(&name).history(split).push(step, value),
            Event::Text { split, name, text } => self.text(split, name, text),
            Event::SplitStart { split, done, total } => {
                self.pass = Some(Pass {
                    split,
                    done,
                    total,
                    skipped: done,
                    began: at,
                });
                if self.baseline.is_nan() {
                    self.baseline = self.epochs_done();
                }
            }
            Event::Progress { done, step } => {
                self.step = step;
                if let Some(pass) = &mut self.pass {
                    pass.done = done;
                }
            }
            Event::SplitEnd => self.pass = None,
            Event::Epoch { epoch } => self.epoch = epoch,
            Event::Named { name, text } => self.named(at, name, text),
            Event::Stopping { message } => self.stopping = Some(message),
            Event::Checkpoints(checkpoints) => self.checkpoints = Some(checkpoints),
            Event::End { summary, error } => {
                self.pass = None;
                self.end = Some(Ending { at, summary, error });
            }
        }
    }

    fn start(&mut self, at: f64, epochs: Option<u64>, epoch: u64, step: u64) {
        self.started = Some(at);
        (self.epochs, self.epoch, self.step) = (epochs, epoch, step);
        // Known once the first pass says how far it was.
        self.baseline = f64::NAN;
        (self.pass, self.stopping, self.end) = (None, None, None);
        for metric in &mut self.numeric {
            for (_, history) in &mut metric.series {
                history.forget_after(step);
            }
        }
    }

    fn metric(&mut self, name: &str) -> &mut NumericMetric {
        let known = self.numeric.iter().position(|known| known.metric.name == name);
        let index = known.unwrap_or_else(|| {
            self.numeric.push(NumericMetric {
                metric: Metric::new(name),
                series: Vec::new(),
            });
            self.numeric.len() - 1
        });
        &mut self.numeric[index]
    }

    fn text(&mut self, split: Split, name: String, text: String) {
        let mut known = self.texts.iter_mut();
        match known.find(|known| known.split == split && known.name == name) {
            Some(known) => known.text = text,
            None => self.texts.push(TextMetric { name, split, text }),
        }
    }

    fn named(&mut self, at: f64, name: String, text: String) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        let line = if text.is_empty() {
            name.clone()
        } else {
            format!("{name}: {text}")
        };
        self.events.push_back((at, line));
        match self.counters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => self.counters.push((name, 1)),
        }
    }

    /// Epochs that are done, with the fraction of the one that goes on.
    fn epochs_done(&self) -> f64 {
        let within = match &self.pass {
            Some(pass) if pass.split == Split::Train => pass.fraction().unwrap_or(0.0),
            // What comes after the training of an epoch belongs to it.
            Some(_) | None => 0.0,
        };
        self.epoch as f64 + within
    }

    /// How much of the whole run is done, from 0 to 1, if that can be known.
    pub(crate) fn fraction(&self) -> Option<f64> {
        let epochs = self.epochs.filter(|epochs| *epochs > 0)? as f64;
        Some((self.epochs_done() / epochs).clamp(0.0, 1.0))
    }

    /// Seconds until the run is over, at the speed that it had since this process began.
    pub(crate) fn left(&self, now: f64) -> Option<f64> {
        let total = self.epochs? as f64;
        let (done, since) = (self.epochs_done(), now - self.started?);
        let gained = done - self.baseline;
        (gained > 0.0 && since >= 0.0).then(|| (total - done).max(0.0) * since / gained)
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
    pub(crate) fn left(&self, now: f64) -> Option<f64> {
        Some(self.total?.saturating_sub(self.done) as f64 / self.rate(now)?)
    }
}

impl NumericMetric {
    fn history(&mut self, split: Split) -> &mut History {
        let index = match self.series.binary_search_by_key(&split, |(split, _)| *split) {
            Ok(index) => index,
            Err(index) => {
                self.series.insert(index, (split, History::default()));
                index
            }
        };
        &mut self.series[index].1
    }
}
