//! Closing and dropping, from any thread and at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError, Pending, Reply};

use crate::explore::explore;
use crate::stage::{Book, Fate, Seen, Stage, any, fate, keep_log, pause};

type Shared = Arc<AsyncCheckpointer<usize>>;

fn stage() -> (AsyncCheckpointer<usize>, Arc<Seen>, Arc<Book>) {
    keep_log();
    let stage = Stage::default();
    let seen = Arc::clone(&stage.0);
    (AsyncCheckpointer::new(stage), seen, Arc::default())
}

/// Notes how a call went; false once the checkpointer is closed.
fn noted<T>(book: &Book, epoch: usize, began: u64, result: Result<T, CheckpointerError>) -> bool {
    match result {
        Ok(_) => book.accepted(epoch),
        Err(CheckpointerError::Closed) => return false,
        Err(CheckpointerError::Worker(failure)) => book.call_told(&failure, began),
        Err(error) => panic!("{error}"),
    }
    true
}

fn save(checkpointer: &Shared, book: &Book) -> bool {
    let (epoch, began) = (book.any_epoch(), book.now());
    noted(book, epoch, began, checkpointer.submit(epoch, epoch))
}

/// Closes; on return all is over.
fn close(checkpointer: &Shared, seen: &Seen, book: &Book) -> bool {
    let began = book.now();
    let told = checkpointer.close();
    assert!(seen.let_go(), "the worker is gone, and what it worked with");
    let done = seen.done();
    pause();
    assert_eq!(seen.done(), done, "nothing happens any more");
    match told {
        Ok(()) => return true,
        Err(CheckpointerError::Worker(failure)) => book.call_told(&failure, began),
        Err(error) => panic!("{error}"),
    }
    false
}

#[test]
fn whoever_closes_returns_when_all_is_over() {
    explore(3000, || {
        let (checkpointer, seen, book) = stage();
        let checkpointer = Arc::new(checkpointer);
        let mut threads = Vec::new();
        for closes in [true, true, false, false] {
            let (checkpointer, seen, book) = (
                Arc::clone(&checkpointer),
                Arc::clone(&seen),
                Arc::clone(&book),
            );
            threads.push(shuttle::thread::spawn(move || {
                if closes {
                    close(&checkpointer, &seen, &book);
                } else {
                    for _ in 0..3 {
                        if !save(&checkpointer, &book) {
                            let again = checkpointer.restore(0);
                            assert!(matches!(again, Err(CheckpointerError::Closed)));
                        }
                    }
                }
            }));
        }
        for thread in threads {
            thread.join().expect("it ends");
        }
        while !close(&checkpointer, &seen, &book) {}
        drop(checkpointer);
        book.balance(&seen);
    });
}

// The worker may be the one that drops it, and can't join itself.
#[test]
fn the_last_reference_may_go_anywhere() {
    explore(3000, || {
        let (checkpointer, seen, book) = stage();
        let checkpointer = Arc::new(checkpointer);
        let mut threads = Vec::new();
        for on_worker in [true, false, false] {
            let (checkpointer, book) = (Arc::clone(&checkpointer), Arc::clone(&book));
            threads.push(shuttle::thread::spawn(move || {
                (0..any(3)).for_each(|_| {
                    save(&checkpointer, &book);
                });
                if on_worker {
                    drop_on_worker(checkpointer, &book);
                }
            }));
        }
        save(&checkpointer, &book);
        drop(checkpointer);
        for thread in threads {
            thread.join().expect("it ends");
        }
        // If the worker dropped it, nobody waits for the worker.
        while !seen.let_go() {
            shuttle::thread::yield_now();
        }
        book.balance(&seen);
    });
}

/// Asks for a restore whose closure holds a reference, and lets go of its own before or after the answer.
fn drop_on_worker(checkpointer: Shared, book: &Book) {
    let (epoch, began) = (book.epoch(Fate::Works), book.now());
    let inside = Arc::clone(&checkpointer);
    let then = move |restored: Result<usize, CheckpointerError>| {
        pause();
        drop(inside);
        restored
    };
    let reply: Result<Reply<usize>, _> = match checkpointer.try_restore_with(epoch, then) {
        Ok(reply) => Ok(reply),
        Err(pitstop::TrySubmitError::Busy(_)) => return,
        Err(pitstop::TrySubmitError::Failed(error, _)) => Err(error),
    };
    drop(checkpointer);
    match reply {
        Ok(reply) => {
            book.accepted(epoch);
            assert_eq!(reply.recv().expect("it works"), epoch);
        }
        Err(error) => {
            noted::<()>(book, epoch, began, Err(error));
        }
    }
}

#[test]
fn a_handle_outlives_the_checkpointer() {
    explore(1000, || {
        let (checkpointer, seen, book) = stage();
        let epoch = book.any_epoch();
        let pending: Pending = checkpointer.submit(epoch, epoch).expect("nothing failed");
        book.accepted(epoch);
        let waiter = shuttle::thread::spawn({
            let book = Arc::clone(&book);
            move || {
                let result = pending.wait(None).expect("no time limit");
                assert_eq!(result.is_err(), fate(epoch) != Fate::Works);
                if let Err(CheckpointerError::Worker(failure)) = result {
                    book.handle_told(&failure);
                }
            }
        });
        drop(checkpointer);
        assert!(seen.let_go());
        assert!(seen.is_done(epoch));
        waiter.join().expect("it ends");
        // The log may have had it first; then the handle repeats it.
        book.balance(&seen);
    });
}

#[test]
fn the_worker_refuses_to_wait_for_itself_whatever_others_do() {
    explore(1000, || {
        let (checkpointer, seen, book) = stage();
        let checkpointer = Arc::new(checkpointer);
        let refusals = Arc::new(AtomicUsize::new(0));
        let closer = shuttle::thread::spawn({
            let (checkpointer, seen, book) = (
                Arc::clone(&checkpointer),
                Arc::clone(&seen),
                Arc::clone(&book),
            );
            move || close(&checkpointer, &seen, &book)
        });
        let (inside, counted) = (Arc::clone(&checkpointer), Arc::clone(&refusals));
        let asked = checkpointer.restore_with(0, move |_| {
            let refused = [
                inside.save(4, 4),
                inside.wait(None).map(drop),
                inside.close(),
                inside.restore(4).map(drop),
            ];
            for result in refused {
                assert!(
                    matches!(result, Err(CheckpointerError::Deadlock)),
                    "{result:?}"
                );
                counted.fetch_add(1, SeqCst);
            }
            Ok(())
        });
        match asked {
            Ok(()) => assert_eq!(refusals.load(SeqCst), 4),
            Err(CheckpointerError::Closed) => assert_eq!(refusals.load(SeqCst), 0),
            Err(error) => panic!("{error}"),
        }
        closer.join().expect("it ends");
        assert!(close(&checkpointer, &seen, &book));
    });
}
