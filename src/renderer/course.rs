//! Where a run is, as a loop tells it that hands out items: they become steps, passes and epochs.

use super::event::{Event, Split};

/// Where a run is. Every call hands the events that it amounts to over to `tell`.
#[derive(Debug, Default)]
pub(crate) struct Course {
    epochs: Option<u64>,
    steps: Option<u64>,
    /// Epochs that are done.
    epoch: u64,
    /// Steps that are done, the one that is worked on included.
    step: u64,
    stage: Stage,
    /// The user counts epochs; then nobody else does.
    counts_epochs: bool,
    /// The user counts steps; then nobody else does.
    counts_steps: bool,
    /// The pass over the training data in the epoch that goes on.
    trained: Trained,
    /// Those that are open, each begun inside the one before it.
    passes: Vec<Pass>,
    last: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Ahead,
    Begun,
    Over,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Trained {
    #[default]
    NotYet,
    /// It has begun, and perhaps been broken off.
    InPart,
    Wholly,
}

#[derive(Debug)]
struct Pass {
    id: u64,
    split: Split,
    done: u64,
    total: Option<u64>,
    /// An item was handed out, and is being worked on.
    busy: bool,
}

type Tell<'a> = &'a mut dyn FnMut(Event);

impl Course {
    pub(crate) fn new(epochs: Option<u64>, steps: Option<u64>, epoch: u64, step: u64) -> Course {
        Course {
            epochs,
            steps,
            epoch,
            step,
            ..Course::default()
        }
    }

    /// Steps that are done, the one that is worked on included.
    pub(crate) fn step(&self) -> u64 {
        self.step
    }

    /// Whether it was said that the run is over.
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Why no run can begin with so many epochs and steps done, if none can.
    pub(crate) fn why_not(&self, epoch: Option<u64>, step: Option<u64>) -> Option<String> {
        let epoch = beyond("epoch", epoch, self.epochs);
        epoch.or_else(|| beyond("step", step, self.steps))
    }

    /// The run begins, or turns out to go on from somewhere else. What is not given is as it was.
    pub(crate) fn start(&mut self, epoch: Option<u64>, step: Option<u64>, tell: Tell<'_>) {
        self.epoch = epoch.unwrap_or(self.epoch);
        self.step = step.unwrap_or(self.step);
        self.trained = Trained::NotYet;
        self.passes.clear();
        self.stage = Stage::Begun;
        tell(Event::Start {
            epochs: self.epochs,
            steps: self.steps,
            epoch: self.epoch,
            step: self.step,
        });
    }

    /// Says that the run begins, unless that was said. Not before there is something to tell: by then the user may
    /// have said where it begins, and a wrong place would cost the history of a run that goes on.
    pub(crate) fn begin(&mut self, tell: Tell<'_>) {
        if self.stage == Stage::Ahead {
            self.start(None, None, tell);
        }
    }

    /// A pass begins; returns what it is known by. One over the same split that is still open is over.
    pub(crate) fn open(
        &mut self,
        split: Split,
        done: u64,
        total: Option<u64>,
        tell: Tell<'_>,
    ) -> u64 {
        self.begin(tell);
        if let Some(index) = self.passes.iter().position(|pass| pass.split == split) {
            self.passes.truncate(index);
        }
        if split == Split::Train {
            self.begin_training(tell);
        }
        self.last += 1;
        self.passes.push(Pass {
            id: self.last,
            split,
            done,
            total,
            busy: false,
        });
        tell(Event::SplitStart { split, done, total });
        self.last
    }

    /// The next pass over the training data ends the epoch before.
    fn begin_training(&mut self, tell: Tell<'_>) {
        if self.trained != Trained::NotYet && self.passes_are_epochs() {
            self.count_epoch(self.epoch + 1, tell);
        }
        self.trained = Trained::InPart;
    }

    /// Not where the user counts those, nor in a run that is measured in steps only.
    fn passes_are_epochs(&self) -> bool {
        let is_all_steps = self.steps.is_some() && self.epochs.is_none() && self.epoch == 0;
        !self.counts_epochs && !is_all_steps
    }

    fn count_epoch(&mut self, epoch: u64, tell: Tell<'_>) {
        (self.epoch, self.trained) = (epoch, Trained::NotYet);
        tell(Event::Epoch { epoch });
    }

    /// The item that was handed out last is done with, and so are the passes inside this one.
    pub(crate) fn finish_item(&mut self, id: u64, tell: Tell<'_>) {
        let Some(pass) = self.innermost(id, tell) else {
            return;
        };
        if std::mem::take(&mut pass.busy) {
            pass.done += 1;
            let done = pass.done;
            let step = self.step;
            tell(Event::Progress { done, step });
        }
    }

    /// Another item is handed out.
    pub(crate) fn begin_item(&mut self, id: u64) {
        let Some(pass) = self.passes.iter_mut().find(|pass| pass.id == id) else {
            return;
        };
        pass.busy = true;
        if pass.split == Split::Train && !self.counts_steps {
            self.step += 1;
        }
    }

    /// A pass, once those inside it that nobody has ended are over.
    fn innermost(&mut self, id: u64, tell: Tell<'_>) -> Option<&mut Pass> {
        let index = self.passes.iter().position(|pass| pass.id == id)?;
        if index + 1 < self.passes.len() {
            self.passes.truncate(index + 1);
            self.go_on(tell);
        }
        self.passes.last_mut()
    }

    /// A pass is over, with all that are inside it; `whole`: there was nothing left to pass over. Loops are left where
    /// an item is done with, as a rule.
    pub(crate) fn close(&mut self, id: u64, whole: bool, tell: Tell<'_>) {
        self.finish_item(id, tell);
        let Some(index) = self.passes.iter().position(|pass| pass.id == id) else {
            return;
        };
        if whole && self.passes[index].split == Split::Train {
            self.trained = Trained::Wholly;
        }
        self.passes.truncate(index);
        tell(Event::SplitEnd);
        self.go_on(tell);
    }

    /// The pass around the one that is over goes on.
    fn go_on(&self, tell: Tell<'_>) {
        if let Some(pass) = self.passes.last() {
            tell(Event::SplitStart {
                split: pass.split,
                done: pass.done,
                total: pass.total,
            });
        }
    }

    /// `done` items of the innermost pass are done. They are the steps too, if it is one of training, unless `step`
    /// says how many there are.
    pub(crate) fn progress(&mut self, done: u64, step: Option<u64>, tell: Tell<'_>) {
        self.begin(tell);
        if step.is_some() {
            self.counts_steps = true;
        }
        if let Some(pass) = self.passes.last_mut() {
            let more = done.saturating_sub(pass.done);
            pass.done = done;
            if pass.split == Split::Train && !self.counts_steps {
                self.step += more;
            }
        }
        self.step = step.unwrap_or(self.step);
        let step = self.step;
        tell(Event::Progress { done, step });
    }

    /// The innermost pass is over.
    pub(crate) fn close_innermost(&mut self, tell: Tell<'_>) {
        if let Some(id) = self.passes.last().map(|pass| pass.id) {
            self.close(id, true, tell);
        }
    }

    /// The user says how many steps are done. If it is the first that is heard of the run, that began a step before.
    pub(crate) fn set_step(&mut self, step: u64, tell: Tell<'_>) {
        self.counts_steps = true;
        if self.stage == Stage::Ahead && (self.epoch, self.step) == (0, 0) {
            self.step = step.saturating_sub(1);
        }
        self.begin(tell);
        if step != self.step {
            self.step = step;
            let done = self.passes.last().map_or(0, |pass| pass.done);
            tell(Event::Progress { done, step });
        }
    }

    /// Values are told, of `split` if that is said. Where nothing else counts steps, each time is one: no pass was ever
    /// begun, and the user counts none.
    pub(crate) fn logged(&mut self, split: Option<Split>, tell: Tell<'_>) {
        self.begin(tell);
        let is_training = split.is_none_or(|split| split == Split::Train);
        if is_training && self.last == 0 && !self.counts_steps {
            self.step += 1;
            let (done, step) = (0, self.step);
            tell(Event::Progress { done, step });
        }
    }

    /// The user says how many epochs are done.
    pub(crate) fn set_epoch(&mut self, epoch: u64, tell: Tell<'_>) {
        self.begin(tell);
        self.counts_epochs = true;
        self.count_epoch(epoch, tell);
    }

    /// What a value without a split was measured on.
    pub(crate) fn split(&self) -> Split {
        self.passes.last().map_or(Split::Train, |pass| pass.split)
    }

    /// The run is over; returns false if that was said before.
    pub(crate) fn end(&mut self, well: bool, tell: Tell<'_>) -> bool {
        if self.stage == Stage::Over {
            return false;
        }
        self.begin(tell);
        self.stage = Stage::Over;
        self.passes.clear();
        if well && self.trained == Trained::Wholly && self.passes_are_epochs() {
            self.count_epoch(self.epoch + 1, tell);
        }
        true
    }
}

fn beyond(what: &str, done: Option<u64>, total: Option<u64>) -> Option<String> {
    let (done, total) = done.zip(total).filter(|(done, total)| done > total)?;
    Some(format!(
        "{what}={done} is beyond {what}s={total}: {what} is how many are done before, {what}s how many there are \
         in all, with those; give a larger {what}s, or leave it out"
    ))
}

#[cfg(test)]
mod tests;
