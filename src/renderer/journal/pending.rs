//! What has happened since the last point.

use crate::renderer::checkpoints::Checkpoints;
use crate::renderer::event::{Event, Metric, Split};

/// Of the passes since the last point, so many beginnings and ends are kept.
const TURNS: usize = 8;

/// How soon a point must be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// When the next one is due.
    NextPoint,
    /// A person may be waiting for it.
    Soon,
    /// At once.
    Now,
}

/// What has happened since the last point, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Pending {
    urgency: Option<Urgency>,
    values: Vec<Value>,
    /// Whatever is not averaged; what was overtaken is left out.
    events: Vec<(f64, Event)>,
    checkpoints: Option<(f64, Checkpoints)>,
    /// As they were written last.
    known_checkpoints: Option<Checkpoints>,
    known_metrics: Vec<Metric>,
}

/// The values of one metric on one split.
#[derive(Debug)]
struct Value {
    split: Split,
    name: String,
    finite: Mean,
    /// The last value that is not finite: a mean would hide it.
    not_finite: Option<Point>,
}

#[derive(Debug, Default)]
struct Mean {
    count: u64,
    value: f64,
    /// Where the last one was measured.
    at: f64,
    step: u64,
}

#[derive(Debug)]
struct Point {
    at: f64,
    step: u64,
    value: f64,
}

impl Pending {
    /// How soon what there is must be written; `None` if there is nothing.
    pub(super) fn urgency(&self) -> Option<Urgency> {
        self.urgency
    }

    pub(super) fn add(&mut self, at: f64, event: &Event) {
        let urgency = match event {
            Event::Numeric {
                split,
                name,
                value,
                step,
            } => {
                self.value(*split, name).add(at, *step, *value);
                Urgency::NextPoint
            }
            Event::Register(metric) if self.known_metrics.contains(metric) => return,
            Event::Checkpoints(checkpoints) => self.checkpoints(at, checkpoints),
            Event::Saving(in_flight) => {
                let mut checkpoints = self.latest_checkpoints();
                checkpoints.in_flight = Some(in_flight.clone());
                self.checkpoints(at, &checkpoints)
            }
            _ => {
                if matches!(event, Event::Start { .. }) {
                    // Whoever reads it has forgotten how checkpoints stood before.
                    self.known_checkpoints = None;
                }
                self.replace(at, event);
                urgency(event)
            }
        };
        self.urgency = self.urgency.max(Some(urgency));
    }

    /// Adds an event, and removes those that it overtakes.
    fn replace(&mut self, at: f64, event: &Event) {
        let mut event = event.clone();
        if let Event::Named { name, count, .. } = &mut event {
            *count = count.saturating_add(self.times(name));
        }
        // How far one pass is says nothing about the one before.
        let turn = self.events.iter().rposition(|(_, event)| is_turn(event));
        let first = match event {
            Event::Progress { .. } => turn.map_or(0, |turn| turn + 1),
            _ => 0,
        };
        let mut index = 0;
        self.events.retain(|(_, earlier)| {
            index += 1;
            index <= first || !overtakes(&event, earlier)
        });
        self.events.push((at, event));
        self.leave_out_a_pass();
    }

    /// Of very many passes the first are left out, each as a whole.
    fn leave_out_a_pass(&mut self) {
        let events = self.events.iter().enumerate();
        let turns = events.filter(|(_, (_, event))| is_turn(event));
        let turns: Vec<usize> = turns.map(|(index, _)| index).collect();
        if turns.len() <= TURNS {
            return;
        }
        // One with no other inside.
        let is_whole = |pair: &&[usize]| {
            let [begin, end] = [pair[0], pair[1]].map(|index| &self.events[index].1);
            matches!(begin, Event::SplitStart { .. }) && matches!(end, Event::SplitEnd)
        };
        if let Some(&[begin, end]) = turns.windows(2).find(is_whole) {
            let mut index = 0;
            self.events.retain(|(_, event)| {
                index += 1;
                let is_inside = (begin + 1..=end + 1).contains(&index);
                !(is_inside && (is_turn(event) || matches!(event, Event::Progress { .. })))
            });
        }
    }

    /// How often an event of this name is waiting to be written.
    fn times(&self, wanted: &str) -> u64 {
        let count = |(_, event): &(f64, Event)| match event {
            Event::Named { name, count, .. } if name == wanted => *count,
            _ => 0,
        };
        self.events.iter().map(count).sum()
    }

    fn value(&mut self, split: Split, name: &str) -> &mut Value {
        let mut known = self.values.iter();
        let index = known.position(|known| known.split == split && known.name == name);
        let index = index.unwrap_or_else(|| {
            self.values.push(Value {
                split,
                name: name.to_owned(),
                finite: Mean::default(),
                not_finite: None,
            });
            self.values.len() - 1
        });
        &mut self.values[index]
    }

    fn latest_checkpoints(&self) -> Checkpoints {
        let waiting = self
            .checkpoints
            .as_ref()
            .map(|(_, checkpoints)| checkpoints);
        waiting
            .or(self.known_checkpoints.as_ref())
            .cloned()
            .unwrap_or_default()
    }

    /// A checkpoint that is committed, or has failed, is what a person waits for.
    fn checkpoints(&mut self, at: f64, checkpoints: &Checkpoints) -> Urgency {
        let counts = |of: &Checkpoints| (of.saved, of.failed);
        let known = self.known_checkpoints.as_ref().map(counts);
        let is_news = known != Some(counts(checkpoints));
        self.checkpoints = Some((at, checkpoints.clone()));
        if is_news {
            Urgency::Soon
        } else {
            Urgency::NextPoint
        }
    }

    /// What there is to write, in its order.
    pub(super) fn take(&mut self) -> Vec<(f64, Event)> {
        self.urgency = None;
        let mut taken: Vec<(f64, Event)> = Vec::new();
        // The start of a run cuts values off, and is written before any; its end is the last thing there is.
        let (first, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.events)
            .into_iter()
            .partition(|(_, event)| matches!(event, Event::Start { .. } | Event::Register(_)));
        taken.extend(first);
        for value in std::mem::take(&mut self.values) {
            value.append_to(&mut taken);
        }
        if let Some((at, checkpoints)) = self.checkpoints.take() {
            taken.extend(self.tell(checkpoints).map(|event| (at, event)));
        }
        taken.extend(rest);
        for (_, event) in &taken {
            if let Event::Register(metric) = event {
                self.known_metrics.retain(|known| known.name != metric.name);
                self.known_metrics.push(metric.clone());
            }
        }
        taken
    }

    /// All about checkpoints, or only the save in flight if nothing else is new.
    fn tell(&mut self, checkpoints: Checkpoints) -> Option<Event> {
        let known = self.known_checkpoints.replace(checkpoints.clone());
        let Some(mut known) = known else {
            return Some(Event::Checkpoints(checkpoints));
        };
        if known == checkpoints {
            return None;
        }
        known.in_flight.clone_from(&checkpoints.in_flight);
        match &checkpoints.in_flight {
            Some(in_flight) if known == checkpoints => Some(Event::Saving(in_flight.clone())),
            _ => Some(Event::Checkpoints(checkpoints)),
        }
    }
}

impl Value {
    fn add(&mut self, at: f64, step: u64, value: f64) {
        if value.is_finite() {
            self.finite.add(at, step, value);
        } else {
            self.not_finite = Some(Point { at, step, value });
        }
    }

    /// In ascending order of their steps.
    fn append_to(self, taken: &mut Vec<(f64, Event)>) {
        let Value {
            split,
            name,
            finite,
            not_finite,
        } = self;
        let mean = (finite.count > 0).then_some(Point {
            at: finite.at,
            step: finite.step,
            value: finite.value,
        });
        let mut points: Vec<Point> = mean.into_iter().chain(not_finite).collect();
        points.sort_by_key(|point| point.step);
        taken.extend(points.into_iter().map(|point| {
            let event = Event::Numeric {
                split,
                name: name.clone(),
                value: point.value,
                step: point.step,
            };
            (point.at, event)
        }));
    }
}

impl Mean {
    fn add(&mut self, at: f64, step: u64, value: f64) {
        (self.at, self.step) = (at, step);
        self.count += 1;
        // Divided first, so that no sum is too large.
        let count = self.count as f64;
        self.value += value / count - self.value / count;
    }
}

/// How soon an event must be written.
fn urgency(event: &Event) -> Urgency {
    match event {
        Event::Start { .. } | Event::Stopping { .. } | Event::End { .. } => Urgency::Now,
        Event::Register(_)
        | Event::SplitStart { .. }
        | Event::SplitEnd
        | Event::Epoch { .. }
        | Event::Named { .. } => Urgency::Soon,
        _ => Urgency::NextPoint,
    }
}

/// Whether a pass begins or ends.
fn is_turn(event: &Event) -> bool {
    matches!(event, Event::SplitStart { .. } | Event::SplitEnd)
}

/// Whether an event says all that an earlier one says.
fn overtakes(event: &Event, earlier: &Event) -> bool {
    match (event, earlier) {
        (Event::Progress { .. }, Event::Progress { .. })
        | (Event::Epoch { .. }, Event::Epoch { .. }) => true,
        (Event::Named { name, .. }, Event::Named { name: earlier, .. }) => name == earlier,
        (Event::Register(metric), Event::Register(earlier)) => metric.name == earlier.name,
        (
            Event::Text { split, name, .. },
            Event::Text {
                split: earlier_split,
                name: earlier,
                ..
            },
        ) => (split, name) == (earlier_split, earlier),
        _ => false,
    }
}
