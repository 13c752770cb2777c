//! Restoring: what runs where, and callers who go away.

use std::thread;
use std::time::Duration;

use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError, Interrupter, Operation};

use crate::stage::{Gate, Store, gated, record};
use crate::time_limit::limited;

const GONE: &str =
    "Error when sending response through callback channel: sending on a closed channel";

#[test]
fn a_restore_that_fails_is_for_its_caller_alone() {
    limited(|| {
        let interrupter = Interrupter::new();
        let checkpointer =
            AsyncCheckpointer::new(Store::default()).with_interrupter(interrupter.clone());
        let error = checkpointer.restore(1).unwrap_err();
        assert_eq!(error.to_string(), "Unknown error: `no epoch 1`");
        assert!(!interrupter.should_stop());
        checkpointer.close().unwrap();
    });
}

#[test]
fn the_closure_runs_on_the_worker_and_its_result_comes_back() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        checkpointer.save(1, record()).unwrap();
        let (name, length) = checkpointer
            .restore_with(1, |restored| {
                Ok((thread::current().name().map(str::to_owned), restored?.len()))
            })
            .unwrap();
        assert_eq!(name.as_deref(), Some("pitstop-worker"));
        assert_eq!(length, 7);

        let error = checkpointer
            .restore_with(2, |restored| restored.map(drop))
            .unwrap_err();
        assert_eq!(error.to_string(), "Unknown error: `no epoch 2`");
        let forgiven = checkpointer.restore_with(2, |restored| Ok(restored.is_err()));
        assert!(forgiven.unwrap());
    });
}

#[test]
fn a_closure_that_panics_is_an_error_for_its_caller() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let error = checkpointer
            .restore_with(1, |_| -> Result<(), CheckpointerError> {
                panic!("bad closure")
            })
            .unwrap_err();
        assert_eq!(error.to_string(), "Unknown error: `bad closure`");
        checkpointer.save(1, record()).unwrap();
        checkpointer.close().unwrap();
    });
}

#[test]
fn an_answer_can_be_polled_for_and_is_there_once() {
    limited(|| {
        let (gated, gate) = gated();
        let checkpointer = AsyncCheckpointer::new(gated);
        let mut reply = checkpointer.try_restore_with(1, |_| Ok("answer")).unwrap();
        gate.begun.recv().unwrap();
        assert!(reply.recv_timeout(Duration::ZERO).is_none());
        assert!(reply.recv_timeout(Duration::from_millis(5)).is_none());
        gate.go.send(()).unwrap();
        let answer = reply.recv_timeout(Duration::from_secs(9)).unwrap();
        assert_eq!(answer.unwrap(), "answer");
        reply.recv_timeout(Duration::ZERO).unwrap().unwrap_err();
        checkpointer.close().unwrap();
    });
}

/// Asks for a restore, goes away while it runs, and lets it end.
fn go_away(checkpointer: &AsyncCheckpointer<String>, gate: &Gate) {
    let reply = checkpointer
        .try_restore_with(1, |restored| restored)
        .unwrap();
    gate.begun.recv().unwrap();
    drop(reply);
    gate.go.send(()).unwrap();
    checkpointer.wait_idle(Duration::MAX);
}

#[test]
fn a_caller_who_went_away_is_reported_by_the_next_call_and_later_ones_work() {
    limited(|| {
        let (gated, gate) = gated();
        let checkpointer = AsyncCheckpointer::new(gated);
        go_away(&checkpointer, &gate);
        let error = checkpointer.restore(1).unwrap_err();
        assert_eq!(error.to_string(), GONE);
        let CheckpointerError::Worker(failure) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(
            (failure.operation(), failure.epoch()),
            (Operation::Callback, 1)
        );
        assert!(failure.error().is_none());

        let store = gate.store.clone();
        drop(gate);
        checkpointer.save(2, record()).unwrap();
        assert_eq!(checkpointer.restore(2).unwrap(), record());
        checkpointer.close().unwrap();
        let threads = store.threads.lock().unwrap();
        assert_ne!(threads[0].1, threads[1].1, "a new worker");
    });
}

#[test]
fn with_an_interrupter_a_caller_who_went_away_stops_the_run_and_the_worker_lives_on() {
    limited(|| {
        let interrupter = Interrupter::new();
        let (gated, gate) = gated();
        let checkpointer = AsyncCheckpointer::new(gated).with_interrupter(interrupter.clone());
        go_away(&checkpointer, &gate);
        assert_eq!(interrupter.get_message().as_deref(), Some(GONE));

        let store = gate.store.clone();
        drop(gate);
        checkpointer.save(2, record()).unwrap();
        assert_eq!(checkpointer.restore(2).unwrap(), record());
        assert_eq!(checkpointer.close().unwrap_err().to_string(), GONE);
        checkpointer.close().unwrap();
        let threads = store.threads.lock().unwrap();
        assert_eq!(threads[0].1, threads[1].1, "the same worker");
    });
}
