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
    assert!(course.is_over());
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

/// Its passes were counted as epochs, of which nobody had spoken.
#[test]
fn a_run_that_is_measured_in_steps_has_no_epochs_unless_the_user_speaks_of_them() {
    let mut told = Told::default();
    let run = |course: &mut Course, told: &mut Told| {
        pass(course, told, Split::Train, 1, true);
        pass(course, told, Split::Train, 1, true);
        course.end(true, &mut told.tell());
    };
    run(&mut Course::new(None, Some(9), 0, 0), &mut told);
    let passes = "start 0 0, +train 0/1, 1 @1, -, +train 0/1, 1 @2, -";
    assert_eq!(told.take(), passes);
    run(&mut Course::new(None, Some(9), 3, 0), &mut told);
    let counted = "start 3 0, +train 0/1, 1 @1, -, epoch 4, +train 0/1, 1 @2, -, epoch 5";
    assert_eq!(told.take(), counted);
    run(&mut Course::new(Some(2), Some(9), 0, 0), &mut told);
    assert!(told.take().ends_with(", epoch 2"));
    let mut course = Course::new(None, Some(9), 0, 0);
    course.set_epoch(7, &mut told.tell());
    assert_eq!(told.take(), "start 0 0, epoch 7");
}

#[test]
fn a_run_cannot_begin_behind_its_end() {
    let course = Course::new(Some(2), Some(10), 0, 0);
    let refused = course.why_not(None, Some(11)).unwrap();
    assert!(
        refused.starts_with("step=11 is beyond steps=10: "),
        "{refused}"
    );
    let refused = course.why_not(Some(3), Some(11)).unwrap();
    assert!(
        refused.starts_with("epoch=3 is beyond epochs=2: "),
        "{refused}"
    );
    for (epoch, step) in [(None, None), (Some(2), Some(10)), (Some(0), Some(0))] {
        assert_eq!(course.why_not(epoch, step), None);
    }
    let endless = Course::new(None, None, 0, 0);
    assert_eq!(endless.why_not(Some(u64::MAX), Some(u64::MAX)), None);
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
