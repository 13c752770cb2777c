//! The interrupter: its flag and its message belong together.

use std::sync::Arc;

use pitstop::{AsyncCheckpointer, Checkpointer, Interrupter};

use crate::explore::explore;
use crate::stage::{Fate, Stage, any, fate, keep_log, pause};

#[test]
fn a_reset_clears_both_or_neither() {
    explore(2000, || {
        let interrupter = Interrupter::new();
        let stop = |reason: &'static str| {
            let interrupter = interrupter.clone();
            shuttle::thread::spawn(move || interrupter.stop(Some(reason)))
        };
        let reset = shuttle::thread::spawn({
            let interrupter = interrupter.clone();
            move || interrupter.reset()
        });
        for thread in [stop("one"), stop("other"), reset] {
            thread.join().expect("it ends");
        }
        assert_eq!(
            interrupter.should_stop(),
            interrupter.get_message().is_some()
        );
    });
}

#[test]
fn the_first_reason_stays_and_is_there_before_the_flag() {
    explore(2000, || {
        let interrupter = Interrupter::new();
        let mut stops = Vec::new();
        for reason in ["one", "other"] {
            let interrupter = interrupter.clone();
            stops.push(shuttle::thread::spawn(move || {
                interrupter.stop(Some(reason));
            }));
        }
        while !interrupter.should_stop() {
            shuttle::thread::yield_now();
        }
        let first = interrupter.get_message();
        assert!(first.is_some());
        for stop in stops {
            stop.join().expect("it ends");
        }
        assert_eq!(interrupter.get_message(), first);
    });
}

// With a reason or without, it stops; a stop without one takes no message away, and brings none.
#[test]
fn a_stop_without_a_reason_is_a_stop() {
    explore(1000, || {
        let interrupter = Interrupter::new();
        let other = interrupter.clone();
        let thread = shuttle::thread::spawn(move || other.stop(Some("reason")));
        interrupter.stop(None);
        assert!(interrupter.should_stop());
        thread.join().expect("it ends");
        assert_eq!(interrupter.get_message().as_deref(), Some("reason"));
    });
}

#[test]
fn whoever_sees_a_failed_save_ended_sees_the_interrupter_stopped() {
    explore(2000, || {
        keep_log();
        let interrupter = Interrupter::new();
        let stage = Stage::default();
        let seen = Arc::clone(&stage.0);
        let checkpointer = AsyncCheckpointer::new(stage).with_interrupter(interrupter.clone());
        let checkpointer = Arc::new(checkpointer);
        let other = shuttle::thread::spawn({
            let checkpointer = Arc::clone(&checkpointer);
            move || {
                for epoch in [2, 0] {
                    checkpointer
                        .save(epoch, epoch)
                        .expect("it is not told here");
                }
            }
        });
        let epoch = [6, 7][any(2)];
        let pending = checkpointer
            .submit(epoch, epoch)
            .expect("it is not told here");
        if any(2) == 0 {
            assert!(checkpointer.wait(None).is_err());
        } else {
            pending
                .wait(None)
                .expect("no time limit")
                .expect_err("it fails");
        }
        assert!(interrupter.should_stop());
        pause();
        other.join().expect("it ends");
        checkpointer.close().err();
        let first = seen
            .done()
            .into_iter()
            .find(|&epoch| fate(epoch) != Fate::Works);
        let message = interrupter.get_message().expect("there is one");
        let expected = format!("`epoch {}`", first.expect("two failed"));
        assert!(message.ends_with(&expected), "{message}, not {expected}");
    });
}
