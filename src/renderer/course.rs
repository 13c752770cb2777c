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
        if self.trained != Trained::NotYet && !self.counts_epochs {
            self.count_epoch(self.epoch + 1, tell);
        }
        self.trained = Trained::InPart;
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
        if well && self.trained == Trained::Wholly && !self.counts_epochs {
            self.count_epoch(self.epoch + 1, tell);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events in short, such as `start 0 0`, `+train 0/3`, `train 1 @1`, `-`, `epoch 1`.
    #[derive(Default)]
    struct Told(Vec<String>);

    impl Told {
        fn tell(&mut self) -> impl FnMut(Event) {
            move |event| {
                self.0.push(match event {
                    Event::Start { epoch, step, .. } => format!("start {epoch} {step}"),
                    Event::SplitStart { split, done, total } => match total {
                        Some(total) => format!("+{} {done}/{total}", split.name()),
                        None => format!("+{} {done}", split.name()),
                    },
                    Event::Progress { done, step } => format!("{done} @{step}"),
                    Event::SplitEnd => "-".to_owned(),
                    Event::Epoch { epoch } => format!("epoch {epoch}"),
                    other => format!("{other:?}"),
                });
            }
        }

        fn take(&mut self) -> String {
            std::mem::take(&mut self.0).join(", ")
        }
    }

    /// A pass over `items` items, as a `for` loop makes it; broken off in the middle of the last unless `whole`.
    fn pass(course: &mut Course, told: &mut Told, split: Split, items: u64, whole: bool) {
        let id = course.open(split, 0, Some(items), &mut told.tell());
        for _ in 0..items {
            course.finish_item(id, &mut told.tell());
            course.begin_item(id);
        }
        if whole {
            course.finish_item(id, &mut told.tell());
        }
        course.close(id, whole, &mut told.tell());
    }

    #[test]
    fn items_of_training_are_steps_and_passes_of_training_are_epochs() {
        let (mut course, mut told) = (Course::new(Some(2), None, 0, 0), Told::default());
        pass(&mut course, &mut told, Split::Train, 2, true);
        pass(&mut course, &mut told, Split::Valid, 1, true);
        assert_eq!(
            told.take(),
            "start 0 0, +train 0/2, 1 @1, 2 @2, -, +valid 0/1, 1 @2, -"
        );
        pass(&mut course, &mut told, Split::Train, 1, true);
        assert_eq!(told.take(), "epoch 1, +train 0/1, 1 @3, -");
        assert!(course.end(true, &mut told.tell()));
        assert_eq!(told.take(), "epoch 2");
        assert!(!course.end(true, &mut told.tell()), "it is over once");
        assert_eq!(told.take(), "");
    }

    #[test]
    fn each_time_values_are_told_is_a_step_where_nothing_else_counts_them() {
        let (mut course, mut told) = (Course::new(None, Some(9), 0, 4), Told::default());
        course.logged(None, &mut told.tell());
        course.logged(Some(Split::Valid), &mut told.tell());
        course.logged(Some(Split::Train), &mut told.tell());
        assert_eq!(told.take(), "start 0 4, 0 @5, 0 @6");
        pass(&mut course, &mut told, Split::Train, 1, true);
        assert_eq!(told.take(), "+train 0/1, 1 @7, -");
        course.logged(None, &mut told.tell());
        assert_eq!(told.take(), "", "items count");

        let mut course = Course::new(None, None, 0, 0);
        course.set_step(3, &mut told.tell());
        told.take();
        course.logged(None, &mut told.tell());
        assert_eq!((told.take(), course.step()), (String::new(), 3));
    }

    #[test]
    fn an_epoch_that_was_broken_off_is_not_counted_in_the_end() {
        let (mut course, mut told) = (Course::new(Some(2), None, 0, 0), Told::default());
        pass(&mut course, &mut told, Split::Train, 2, false);
        course.end(true, &mut told.tell());
        assert_eq!(told.take(), "start 0 0, +train 0/2, 1 @1, 2 @2, -");
        // What failed in its validation is not counted either.
        let mut course = Course::new(None, None, 3, 30);
        pass(&mut course, &mut told, Split::Train, 1, true);
        course.end(false, &mut told.tell());
        assert_eq!(told.take(), "start 3 30, +train 0/1, 1 @31, -");
    }

    #[test]
    fn the_step_is_the_one_that_is_worked_on() {
        let (mut course, mut told) = (Course::new(None, Some(9), 0, 4), Told::default());
        let id = course.open(Split::Train, 0, None, &mut told.tell());
        assert_eq!(course.step(), 4);
        course.begin_item(id);
        assert_eq!((course.step(), course.split()), (5, Split::Train));
    }

    #[test]
    fn a_pass_around_another_goes_on_where_it_was() {
        let (mut course, mut told) = (Course::default(), Told::default());
        let outer = course.open(Split::Train, 0, Some(5), &mut told.tell());
        course.begin_item(outer);
        pass(&mut course, &mut told, Split::Valid, 1, true);
        course.finish_item(outer, &mut told.tell());
        let expected = "start 0 0, +train 0/5, +valid 0/1, 1 @1, -, +train 0/5, 1 @1";
        assert_eq!(told.take(), expected);
    }

    #[test]
    fn what_nobody_has_ended_is_over_when_the_loop_around_it_goes_on() {
        let (mut course, mut told) = (Course::default(), Told::default());
        let outer = course.open(Split::Train, 0, None, &mut told.tell());
        course.begin_item(outer);
        let inner = course.open(Split::Valid, 0, None, &mut told.tell());
        told.take();
        course.finish_item(outer, &mut told.tell());
        assert_eq!(
            (told.take(), course.split()),
            ("+train 0, 1 @1".to_owned(), Split::Train)
        );
        course.close(inner, false, &mut told.tell());
        assert_eq!(told.take(), "", "it was over before");
        let again = course.open(Split::Train, 0, None, &mut told.tell());
        course.close(outer, false, &mut told.tell());
        assert_eq!(
            told.take(),
            "epoch 1, +train 0",
            "it is over, and another has begun"
        );
        course.close(again, false, &mut told.tell());
        assert_eq!(told.take(), "-");
    }

    #[test]
    fn who_counts_counts_alone() {
        let (mut course, mut told) = (Course::default(), Told::default());
        course.set_step(8, &mut told.tell());
        assert_eq!(told.take(), "start 0 7, 0 @8");
        pass(&mut course, &mut told, Split::Train, 1, true);
        course.set_epoch(1, &mut told.tell());
        course.set_step(9, &mut told.tell());
        course.set_step(9, &mut told.tell());
        pass(&mut course, &mut told, Split::Train, 1, true);
        course.end(true, &mut told.tell());
        let expected = "+train 0/1, 1 @8, -, epoch 1, 0 @9, +train 0/1, 1 @9, -";
        assert_eq!(told.take(), expected);
    }

    #[test]
    fn a_loop_of_ones_own_tells_of_its_passes_by_itself() {
        let (mut course, mut told) = (Course::default(), Told::default());
        course.open(Split::Train, 10, Some(20), &mut told.tell());
        course.progress(13, None, &mut told.tell());
        course.progress(14, Some(100), &mut told.tell());
        course.close_innermost(&mut told.tell());
        course.close_innermost(&mut told.tell());
        course.end(true, &mut told.tell());
        let expected = "start 0 0, +train 10/20, 13 @3, 14 @100, -, epoch 1";
        assert_eq!(told.take(), expected);
    }

    #[test]
    fn a_run_that_is_known_to_be_resumed_begins_there() {
        let (mut course, mut told) = (Course::new(None, None, 0, 5), Told::default());
        course.set_step(9, &mut told.tell());
        assert_eq!(told.take(), "start 0 5, 0 @9");
    }

    #[test]
    fn a_start_that_is_told_in_time_is_the_only_one() {
        let (mut course, mut told) = (Course::new(Some(9), None, 0, 0), Told::default());
        course.start(Some(3), Some(300), &mut told.tell());
        pass(&mut course, &mut told, Split::Train, 1, true);
        assert_eq!(told.take(), "start 3 300, +train 0/1, 1 @301, -");
    }
}
