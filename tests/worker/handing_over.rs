//! Back-pressure, order, and what "busy" means.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use pitstop::{AsyncCheckpointer, Checkpointer, Pending, Reply, TrySubmitError};

use crate::stage::{Store, gated, record};
use crate::time_limit::limited;

const MOMENT: Duration = Duration::from_millis(50);

#[test]
fn handles_and_checkpointers_may_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<AsyncCheckpointer<String>>();
    shared::<Pending>();
    shared::<Reply<String>>();
}

#[test]
fn a_second_save_waits_until_the_first_has_ended() {
    limited(|| {
        let (gated, gate) = gated();
        let checkpointer = Arc::new(AsyncCheckpointer::new(gated));
        checkpointer.save(1, record()).unwrap();
        assert_eq!(gate.begun.recv(), Ok(1));

        let (returned, has_returned) = mpsc::channel();
        let other = Arc::clone(&checkpointer);
        let second = thread::spawn(move || {
            other.save(2, record()).unwrap();
            returned.send(()).unwrap();
        });
        assert!(has_returned.recv_timeout(MOMENT).is_err(), "it didn't wait");
        gate.go.send(()).unwrap();
        has_returned.recv().unwrap();
        second.join().unwrap();

        assert_eq!(gate.begun.recv(), Ok(2));
        gate.go.send(()).unwrap();
        checkpointer.close().unwrap();
        assert_eq!(*gate.store.saved.lock().unwrap(), [1, 2]);
    });
}

#[test]
fn a_busy_worker_gives_everything_back_untouched() {
    limited(|| {
        let (gated, gate) = gated();
        let checkpointer = AsyncCheckpointer::new(gated);
        checkpointer.save(1, record()).unwrap();
        gate.begun.recv().unwrap();
        assert!(!checkpointer.is_idle());
        assert!(!checkpointer.wait_idle(Duration::from_millis(1)));
        assert!(!checkpointer.wait(Some(Duration::from_millis(1))).unwrap());

        let refusal = checkpointer.try_submit(2, "mine".to_owned()).unwrap_err();
        assert_eq!(refusal.to_string(), "another operation is in the worker");
        assert!(matches!(refusal, TrySubmitError::Busy(mine) if mine == "mine"));
        assert!(matches!(
            checkpointer.try_delete(1),
            Err(TrySubmitError::Busy(()))
        ));
        let then = |restored: Result<String, _>| restored.map(|text| text.len());
        let Err(TrySubmitError::Busy(then)) = checkpointer.try_restore_with(1, then) else {
            panic!("not busy");
        };

        gate.go.send(()).unwrap();
        assert!(checkpointer.wait_idle(Duration::MAX));
        assert!(checkpointer.is_idle());
        let reply = checkpointer.try_restore_with(1, then).unwrap();
        gate.go.send(()).unwrap();
        assert_eq!(reply.recv().unwrap(), 7);
    });
}

#[test]
fn a_worker_without_a_job_is_never_busy() {
    limited(|| {
        for epoch in 0..200 {
            let checkpointer = AsyncCheckpointer::new(Store::default());
            let pending = checkpointer.try_submit(epoch, record()).unwrap();
            pending.wait(None).unwrap().unwrap();
            let pending = checkpointer.try_delete(epoch + 1).unwrap();
            while !pending.done() {
                thread::yield_now();
            }
            let reply = checkpointer.try_restore_with(epoch, |restored| restored);
            assert_eq!(reply.unwrap().recv().unwrap(), record());
            checkpointer.try_submit(epoch, record()).unwrap();
            checkpointer.restore(epoch).unwrap();
            checkpointer.try_submit(epoch, record()).unwrap();
            assert!(checkpointer.wait(None).unwrap());
            checkpointer.try_submit(epoch, record()).unwrap();
        }
    });
}

#[test]
fn what_was_drained_is_done() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        for epoch in 0..500 {
            let pending = checkpointer.submit(epoch, record()).unwrap();
            assert!(checkpointer.wait_idle(Duration::from_secs(9)));
            assert!(pending.done());
        }
    });
}

#[test]
fn waiting_for_a_handle_can_time_out_and_go_on() {
    limited(|| {
        let (gated, gate) = gated();
        let checkpointer = AsyncCheckpointer::new(gated);
        let pending = checkpointer.submit(1, record()).unwrap();
        gate.begun.recv().unwrap();
        assert!(!pending.done());
        assert!(pending.wait(Some(Duration::ZERO)).is_none());
        assert!(pending.wait(Some(Duration::from_millis(5))).is_none());
        gate.go.send(()).unwrap();
        pending.wait(Some(Duration::MAX)).unwrap().unwrap();
        assert!(pending.done());
    });
}

#[test]
fn a_handle_may_outlive_the_checkpointer() {
    limited(|| {
        let checkpointer = AsyncCheckpointer::new(Store::default());
        let pending = checkpointer.submit(1, record()).unwrap();
        drop(checkpointer);
        assert!(pending.done());
        pending.wait(None).unwrap().unwrap();
    });
}

#[test]
fn many_threads_get_everything_done_one_at_a_time() {
    limited(|| {
        let store = Store::default();
        let checkpointer = Arc::new(AsyncCheckpointer::new(store.clone()));
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (checkpointer, barrier) = (Arc::clone(&checkpointer), Arc::clone(&barrier));
                thread::spawn(move || {
                    barrier.wait();
                    for epoch in (thread * 100)..(thread * 100 + 40) {
                        checkpointer.save(epoch, record()).unwrap();
                        assert_eq!(checkpointer.restore(epoch).unwrap(), record());
                        if epoch % 2 == 1 {
                            checkpointer.delete(epoch).unwrap();
                        }
                        checkpointer.check().unwrap();
                        checkpointer.wait(Some(Duration::ZERO)).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        checkpointer.close().unwrap();
        assert_eq!(store.epochs().len(), 8 * 20);
        assert_eq!(store.most_inside.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn one_worker_thread_of_that_name_does_it_all() {
    limited(|| {
        let store = Store::default();
        let checkpointer = AsyncCheckpointer::new(store.clone());
        checkpointer.save(1, record()).unwrap();
        checkpointer.delete(1).unwrap();
        checkpointer.restore(1).unwrap_err();
        let threads = store.threads.lock().unwrap();
        assert_eq!(threads.len(), 3);
        for (name, id) in threads.iter() {
            assert_eq!(name.as_deref(), Some("pitstop-worker"));
            assert_eq!(*id, threads[0].1);
        }
    });
}
