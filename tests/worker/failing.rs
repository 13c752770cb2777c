//! Failures: their messages, and who gets to see them.

use std::error::Error;
use std::io;
use std::sync::{Arc, Barrier};
use std::thread;

use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError, Operation, TrySubmitError};

use crate::stage::{
    FULL, FULL_ERRNO, PANICS, REFUSED, Store, full_disk, full_message, gated, record,
};
use crate::time_limit::limited;

#[test]
fn errors_display_as_their_model_does() {
    let io = CheckpointerError::from(io::Error::other("no"));
    assert_eq!(io.to_string(), "I/O Error: `no`");
    let recorder = CheckpointerError::RecorderError("no".into());
    assert_eq!(recorder.to_string(), "Record error: `no`");
    let unknown = CheckpointerError::Unknown("no".to_owned());
    assert_eq!(unknown.to_string(), "Unknown error: `no`");
}

// In the original the second save says "sending on a closed channel" and every one after it, too.
#[test]
fn the_next_call_returns_the_original_message_and_the_one_after_works() {
    limited(|| {
        let store = Store::default();
        let checkpointer = AsyncCheckpointer::new(store.clone());
        checkpointer.save(1, record()).unwrap();
        checkpointer.save(FULL, record()).unwrap();
        let error = checkpointer.save(2, record()).unwrap_err();
        assert_eq!(error.to_string(), full_message());
        checkpointer.save(3, record()).unwrap();
        checkpointer.close().unwrap();
        assert_eq!(
            store.epochs(),
            [1, 3],
            "save 2 returned the failure instead of saving"
        );

        let threads = store.threads.lock().unwrap();
        let (first, failed, restarted) = (&threads[0], &threads[1], &threads[2]);
        assert_eq!(first.1, failed.1);
        assert_ne!(first.1, restarted.1, "a new worker");
        assert_eq!(restarted.0.as_deref(), Some("pitstop-worker"));
    });
}

#[test]
fn every_call_can_be_the_one_that_learns_of_it() {
    type Call = fn(&AsyncCheckpointer<String>) -> Result<(), CheckpointerError>;
    let calls: [Call; 10] = [
        |it| it.save(1, record()),
        |it| it.delete(1),
        |it| it.restore(1).map(drop),
        |it| it.submit(1, record()).map(drop),
        |it| it.restore_with(1, |_| Ok(())),
        |it| match it.try_submit(1, record()) {
            Err(TrySubmitError::Failed(error, record)) if record == "weights" => Err(error),
            _ => Ok(()),
        },
        |it| match it.try_delete(1) {
            Err(TrySubmitError::Failed(error, ())) => Err(error),
            _ => Ok(()),
        },
        |it| match it.try_restore_with(1, |_| Ok(5)) {
            Err(TrySubmitError::Failed(error, then)) if then(Ok(record())).is_ok() => Err(error),
            _ => Ok(()),
        },
        |it| it.wait(None).map(drop),
        AsyncCheckpointer::close,
    ];
    for call in calls {
        limited(move || {
            let checkpointer = AsyncCheckpointer::new(Store::default());
            checkpointer.save(FULL, record()).unwrap();
            assert!(checkpointer.wait_idle(std::time::Duration::MAX));
            let error = call(&checkpointer).unwrap_err();
            assert_eq!(error.to_string(), full_message());
            checkpointer.check().unwrap();
            checkpointer.close().unwrap();
        });
    }
}

#[test]
fn the_io_error_can_be_reached_with_its_errno() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let pending = checkpointer.submit(FULL, record()).unwrap();
        let error = pending.wait(None).unwrap().unwrap_err();

        let mut chain: Vec<&dyn Error> = vec![&error];
        while let Some(source) = chain[chain.len() - 1].source() {
            chain.push(source);
        }
        let texts: Vec<_> = chain.iter().map(ToString::to_string).collect();
        let io_text = full_disk().to_string();
        assert_eq!(
            texts,
            [full_message(), format!("I/O Error: `{io_text}`"), io_text]
        );
        let io = chain[2].downcast_ref::<io::Error>().unwrap();
        assert_eq!(io.raw_os_error(), Some(FULL_ERRNO));

        let CheckpointerError::Worker(failure) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(
            (failure.operation(), failure.epoch()),
            (Operation::Save, FULL)
        );
        assert_eq!(failure.message(), full_message());
        assert!(matches!(
            failure.error(),
            Some(CheckpointerError::IOError(_))
        ));
    });
}

#[test]
fn each_operation_has_its_message() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let failed = |pending: pitstop::Pending| {
            let error = pending.wait(None).unwrap().unwrap_err();
            let CheckpointerError::Worker(failure) = error else {
                panic!("{error:?}")
            };
            (failure.operation(), failure.to_string())
        };
        assert_eq!(
            failed(checkpointer.try_delete(FULL).unwrap()),
            (
                Operation::Delete,
                format!(
                    "Error when deleting the state: I/O Error: `{}`",
                    full_disk()
                )
            )
        );
        assert_eq!(
            failed(checkpointer.submit(REFUSED, record()).unwrap()),
            (
                Operation::Save,
                "Error when saving the state: Record error: `no such dtype`".to_owned()
            )
        );
        checkpointer.close().unwrap();
    });
}

#[test]
fn a_checkpointer_that_panics_has_failed_and_nothing_hangs() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let text = "Unknown error: `the checkpointer lost its mind`";
        let pending = checkpointer.submit(PANICS, record()).unwrap();
        let error = pending.wait(None).unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("Error when saving the state: {text}")
        );

        checkpointer.delete(PANICS).unwrap();
        let error = checkpointer.wait(None).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("Error when deleting the state: {text}")
        );

        let error = checkpointer.restore(PANICS).unwrap_err();
        assert_eq!(error.to_string(), text);
        checkpointer.save(1, record()).unwrap();
        assert_eq!(checkpointer.restore(1).unwrap(), record());
        checkpointer.close().unwrap();
    });
}

/// Its error can't even be displayed.
struct Unspeakable;

impl std::fmt::Debug for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl Error for Unspeakable {}

impl Checkpointer<String> for Unspeakable {
    fn save(&self, _epoch: usize, _record: String) -> Result<(), CheckpointerError> {
        Err(CheckpointerError::RecorderError(Box::new(Unspeakable)))
    }

    fn delete(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        std::panic::panic_any(7)
    }

    fn restore(&self, _epoch: usize) -> Result<String, CheckpointerError> {
        Ok(record())
    }
}

#[test]
fn an_error_that_panics_when_displayed_is_a_failure_too() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Unspeakable);
        let pending = checkpointer.submit(1, record()).unwrap();
        let error = pending.wait(None).unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "Error when saving the state: Unknown error: `no words`"
        );
        let pending = checkpointer.try_delete(1).unwrap();
        let error = pending.wait(None).unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "Error when deleting the state: Unknown error: `a panic without a text`"
        );
        checkpointer.restore(1).unwrap();
    });
}

#[test]
fn what_the_handle_has_claimed_no_later_call_reports() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let pending = checkpointer.submit(FULL, record()).unwrap();
        for _ in 0..2 {
            let error = pending.wait(None).unwrap().unwrap_err();
            assert_eq!(error.to_string(), full_message(), "the handle remembers");
        }
        checkpointer.check().unwrap();
        checkpointer.save(1, record()).unwrap();
        let error = pending.wait(None).unwrap().unwrap_err();
        assert_eq!(error.to_string(), full_message());
        assert!(checkpointer.wait(None).unwrap());
        checkpointer.close().unwrap();
    });
}

#[test]
fn a_handle_never_calls_a_failed_save_a_success() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let pending = checkpointer.submit(FULL, record()).unwrap();
        let error = checkpointer.wait(None).unwrap_err();
        assert_eq!(
            error.to_string(),
            full_message(),
            "the next call came first"
        );
        let error = pending.wait(None).unwrap().unwrap_err();
        assert_eq!(error.to_string(), full_message());
        checkpointer.close().unwrap();
    });
}

#[test]
fn looking_whether_a_save_is_done_claims_nothing() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let pending = checkpointer.submit(FULL, record()).unwrap();
        while !pending.done() {
            thread::yield_now();
        }
        drop(pending);
        assert_eq!(
            checkpointer.check().unwrap_err().to_string(),
            full_message()
        );
        checkpointer.check().unwrap();
    });
}

#[test]
fn many_who_ask_at_once_get_a_failure_once() {
    limited(|| {
        for _ in 0..50 {
            let checkpointer = Arc::new(AsyncCheckpointer::new(Store::default()));
            checkpointer.save(FULL, record()).unwrap();
            checkpointer.wait_idle(std::time::Duration::MAX);
            let barrier = Arc::new(Barrier::new(4));
            let threads: Vec<_> = (0..4)
                .map(|epoch| {
                    let (checkpointer, barrier) = (Arc::clone(&checkpointer), Arc::clone(&barrier));
                    thread::spawn(move || {
                        barrier.wait();
                        match epoch {
                            0 => checkpointer.check().is_err(),
                            1 => checkpointer.save(epoch, record()).is_err(),
                            2 => checkpointer.delete(epoch).is_err(),
                            _ => checkpointer.wait(None).is_err(),
                        }
                    })
                })
                .collect();
            let told = threads.into_iter().map(|thread| thread.join().unwrap());
            assert_eq!(told.filter(|told| *told).count(), 1);
        }
    });
}

#[test]
fn a_save_that_waited_for_one_that_failed_reports_it_and_saves_nothing() {
    limited(|| {
        let (gated, gate) = gated();
        let checkpointer = Arc::new(AsyncCheckpointer::new(gated));
        checkpointer.save(FULL, record()).unwrap();
        gate.begun.recv().unwrap();
        let other = Arc::clone(&checkpointer);
        let second = thread::spawn(move || other.save(2, record()));
        gate.go.send(()).unwrap();
        let error = second.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), full_message());
        assert!(checkpointer.is_idle());
        assert!(gate.store.epochs().is_empty());
        checkpointer.close().unwrap();
    });
}
