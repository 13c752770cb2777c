//! Closing and dropping.

use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError, Interrupter, TrySubmitError};

use crate::stage::{FULL, Store, full_message, gated, record};
use crate::time_limit::limited;

#[test]
fn closing_drains_and_may_be_repeated() {
    limited(|| {
        let store = Store::default();
        let checkpointer = AsyncCheckpointer::new(store.clone());
        checkpointer.save(1, record()).unwrap();
        checkpointer.close().unwrap();
        assert_eq!(store.epochs(), [1]);
        checkpointer.close().unwrap();
        assert!(checkpointer.wait(None).unwrap());
        checkpointer.check().unwrap();
        assert!(checkpointer.is_idle());
    });
}

#[test]
fn a_closed_checkpointer_does_nothing_more() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        checkpointer.close().unwrap();
        let closed = |error: CheckpointerError| {
            assert!(matches!(error, CheckpointerError::Closed));
            assert_eq!(error.to_string(), "the checkpointer is closed");
        };
        closed(checkpointer.save(1, record()).unwrap_err());
        closed(checkpointer.delete(1).unwrap_err());
        closed(checkpointer.restore(1).unwrap_err());
        closed(checkpointer.submit(1, record()).unwrap_err());
        let Err(TrySubmitError::Failed(error, back)) = checkpointer.try_submit(1, record()) else {
            panic!("accepted");
        };
        assert_eq!(back, record());
        closed(error);
    });
}

#[test]
fn closing_reports_each_failure_once_and_is_closed_all_the_same() {
    limited(|| {
        let checkpointer =
            AsyncCheckpointer::new(Store::default()).with_interrupter(Interrupter::new());
        checkpointer.save(FULL, record()).unwrap();
        checkpointer.save(FULL, record()).unwrap();
        for _ in 0..2 {
            assert_eq!(
                checkpointer.close().unwrap_err().to_string(),
                full_message()
            );
            let error = checkpointer.save(1, record()).unwrap_err();
            assert!(matches!(error, CheckpointerError::Closed));
        }
        checkpointer.close().unwrap();
    });
}

#[test]
fn closing_lets_go_of_the_wrapped_checkpointer() {
    limited(|| {
        let store = Arc::new(Store::default());
        let checkpointer = AsyncCheckpointer::new(Arc::clone(&store));
        checkpointer.save(1, record()).unwrap();
        checkpointer.close().unwrap();
        assert_eq!(Arc::strong_count(&store), 1);
    });
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped badly");
    }
}

impl Checkpointer<()> for PanicsWhenDropped {
    fn save(&self, _epoch: usize, (): ()) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn delete(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn restore(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }
}

#[test]
fn a_checkpointer_that_panics_when_dropped_is_an_error_of_closing() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(PanicsWhenDropped);
        checkpointer.save(1, ()).unwrap();
        let error = checkpointer.close().unwrap_err();
        assert_eq!(error.to_string(), "Unknown error: `dropped badly`");
        checkpointer.close().unwrap();
        drop(AsyncCheckpointer::new(PanicsWhenDropped));
    });
}

#[test]
fn dropping_waits_for_what_is_in_the_worker() {
    limited(|| {
        let (gated, gate) = gated();
        let checkpointer = AsyncCheckpointer::new(gated);
        checkpointer.save(1, record()).unwrap();
        gate.begun.recv().unwrap();
        let (dropped, was_dropped) = mpsc::channel();
        let dropping = thread::spawn(move || {
            drop(checkpointer);
            dropped.send(()).unwrap();
        });
        assert!(was_dropped.recv_timeout(Duration::from_millis(50)).is_err());
        gate.go.send(()).unwrap();
        dropping.join().unwrap();
        assert_eq!(gate.store.epochs(), [1]);
    });
}

static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        LOGGED.lock().unwrap().push(line);
        assert!(!line_is_poison(record), "a logger that panics");
    }

    fn flush(&self) {}
}

fn line_is_poison(record: &log::Record<'_>) -> bool {
    record.args().to_string().contains("log me and panic")
}

/// Fails with a text that no other test uses.
struct FailsWith(&'static str);

impl Checkpointer<()> for FailsWith {
    fn save(&self, _epoch: usize, (): ()) -> Result<(), CheckpointerError> {
        Err(CheckpointerError::Unknown(self.0.to_owned()))
    }

    fn delete(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }

    fn restore(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }
}

fn times_logged(text: &str) -> usize {
    let logged = LOGGED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    logged.iter().filter(|line| line.contains(text)).count()
}

// In the original the drop panics.
#[test]
fn dropping_with_an_unclaimed_failure_logs_it_and_does_not_panic() {
    limited(|| {
        let _ = log::set_logger(&Logger);
        log::set_max_level(log::LevelFilter::Error);
        for text in ["nobody asked", "log me and panic"] {
            let checkpointer = AsyncCheckpointer::new(FailsWith(text));
            checkpointer.save(1, ()).unwrap();
            drop(checkpointer);
            assert_eq!(times_logged(text), 1);
        }
        let line = "ERROR Error when saving the state: Unknown error: `nobody asked`";
        assert_eq!(times_logged(line), 1);

        let checkpointer = AsyncCheckpointer::new(FailsWith("somebody asked"));
        checkpointer.save(1, ()).unwrap();
        checkpointer.wait(None).unwrap_err();
        drop(checkpointer);
        assert_eq!(times_logged("somebody asked"), 0);
    });
}

#[test]
fn the_worker_refuses_to_wait_for_itself() {
    limited(|| {
        let checkpointer = Arc::new(AsyncCheckpointer::new(Store::default()));
        let inside = Arc::clone(&checkpointer);
        let errors = checkpointer.restore_with(1, move |_| {
            inside.check()?;
            assert!(!inside.is_idle());
            assert!(matches!(
                inside.try_delete(1),
                Err(TrySubmitError::Busy(()))
            ));
            Ok([
                inside.save(1, record()).unwrap_err(),
                inside.delete(1).unwrap_err(),
                inside.restore(1).unwrap_err(),
                inside.wait(None).unwrap_err(),
                inside.close().unwrap_err(),
            ])
        });
        for error in errors.unwrap() {
            assert!(matches!(error, CheckpointerError::Deadlock), "{error:?}");
        }
        checkpointer.save(1, record()).unwrap();
        checkpointer.close().unwrap();
    });
}

#[test]
fn the_last_reference_may_be_dropped_on_the_worker() {
    limited(|| {
        let store = Arc::new(Store::default());
        let checkpointer = Arc::new(AsyncCheckpointer::new(Arc::clone(&store)));
        let inside = Arc::clone(&checkpointer);
        let (go, may_go) = mpsc::channel::<()>();
        let reply = checkpointer.try_restore_with(1, move |_| {
            may_go.recv().unwrap();
            drop(inside);
            Ok(())
        });
        drop(checkpointer);
        go.send(()).unwrap();
        reply.unwrap().recv().unwrap();
        while Arc::strong_count(&store) > 1 {
            thread::yield_now(); // the worker thread ends by itself
        }
    });
}

#[test]
fn many_threads_may_close_while_others_still_save() {
    limited(|| {
        for round in 0..20 {
            let store = Store::default();
            let checkpointer = Arc::new(AsyncCheckpointer::new(store.clone()));
            let barrier = Arc::new(Barrier::new(6));
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let (checkpointer, barrier) = (Arc::clone(&checkpointer), Arc::clone(&barrier));
                    thread::spawn(move || {
                        barrier.wait();
                        if thread >= 4 {
                            checkpointer.close().unwrap();
                            return 0;
                        }
                        let first = round + thread * 10;
                        let accepted = (first..first + 10).map_while(|epoch| {
                            match checkpointer.save(epoch, record()) {
                                Ok(()) => Some(()),
                                Err(CheckpointerError::Closed) => None,
                                Err(error) => panic!("{error}"),
                            }
                        });
                        accepted.count()
                    })
                })
                .collect();
            let accepted: usize = threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum();
            assert_eq!(
                store.saved.lock().unwrap().len(),
                accepted,
                "accepted means saved"
            );
        }
    });
}
