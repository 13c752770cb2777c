//! The interrupter, alone and with a worker.

use std::sync::Arc;
use std::thread;

use pitstop::{AsyncCheckpointer, Checkpointer, Interrupter};

use crate::stage::{FULL, PANICS, Store, full_disk, full_message, record};
use crate::time_limit::limited;

#[test]
fn the_first_reason_is_kept_until_the_reset() {
    let interrupter = Interrupter::default();
    assert!(!interrupter.should_stop());
    interrupter.stop(None);
    assert!(interrupter.should_stop());
    assert_eq!(interrupter.get_message(), None);
    interrupter.clone().stop(Some("the cause"));
    interrupter.stop(Some("a consequence"));
    interrupter.stop(None);
    assert_eq!(interrupter.get_message().as_deref(), Some("the cause"));
}

// In the original the old message stays.
#[test]
fn a_reset_clears_the_flag_and_the_message() {
    let interrupter = Interrupter::new();
    interrupter.stop(Some("once"));
    interrupter.reset();
    assert!(!interrupter.should_stop());
    assert_eq!(interrupter.get_message(), None);
    interrupter.stop(Some("again"));
    assert_eq!(interrupter.get_message().as_deref(), Some("again"));
}

#[test]
fn of_many_reasons_at_once_one_is_kept() {
    limited(|| {
        let interrupter = Interrupter::new();
        let threads: Vec<_> = (0..8)
            .map(|reason| {
                let interrupter = interrupter.clone();
                thread::spawn(move || {
                    interrupter.stop(Some(&reason.to_string()));
                    interrupter.get_message().unwrap()
                })
            })
            .collect();
        let kept = threads.into_iter().map(|thread| thread.join().unwrap());
        let kept: std::collections::BTreeSet<_> = kept.collect();
        assert_eq!(kept.len(), 1);
    });
}

#[test]
fn with_an_interrupter_a_failure_stops_the_run_and_the_worker_lives_on() {
    limited(|| {
        let interrupter = Interrupter::new();
        let store = Store::default();
        let checkpointer =
            AsyncCheckpointer::new(store.clone()).with_interrupter(interrupter.clone());
        checkpointer.save(FULL, record()).unwrap();
        checkpointer.save(1, record()).unwrap();
        assert!(interrupter.should_stop());
        assert_eq!(interrupter.get_message(), Some(full_message()));
        checkpointer.delete(FULL).unwrap();
        checkpointer.save(PANICS, record()).unwrap();
        assert_eq!(checkpointer.restore(1).unwrap(), record());
        drop(checkpointer.submit(2, record()).unwrap());

        // Oldest first, each once.
        let delete = format!(
            "Error when deleting the state: I/O Error: `{}`",
            full_disk()
        );
        let panic = "Error when saving the state: Unknown error: `the checkpointer lost its mind`";
        assert_eq!(
            checkpointer.wait(None).unwrap_err().to_string(),
            full_message()
        );
        assert_eq!(checkpointer.check().unwrap_err().to_string(), delete);
        assert_eq!(checkpointer.close().unwrap_err().to_string(), panic);
        checkpointer.close().unwrap();

        assert_eq!(
            interrupter.get_message(),
            Some(full_message()),
            "the first is the cause"
        );
        assert_eq!(store.epochs(), [1, 2]);
        let threads = store.threads.lock().unwrap();
        assert!(threads.iter().all(|thread| thread.1 == threads[0].1));
    });
}

#[test]
fn the_interrupter_is_stopped_before_the_handle_says_so() {
    limited(|| {
        let interrupter = Interrupter::new();
        let checkpointer = AsyncCheckpointer::new(Arc::new(Store::default()))
            .with_interrupter(interrupter.clone());
        for _ in 0..100 {
            let pending = checkpointer.submit(FULL, record()).unwrap();
            pending.wait(None).unwrap().unwrap_err();
            assert!(interrupter.should_stop());
            interrupter.reset();
        }
        checkpointer.close().unwrap();
    });
}
