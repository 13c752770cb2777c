//! Calls from several threads: nothing is lost, doubled, or mixed up.

use std::sync::Arc;
use std::time::Duration;

use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError, Interrupter, TrySubmitError};

use crate::explore::explore;
use crate::stage::{Book, Fate, Seen, Stage, any, fate, keep_log, pause};

const SOON: Duration = Duration::from_secs(1);

/// One of several threads that call the same checkpointer.
#[derive(Clone)]
struct Caller {
    checkpointer: Arc<AsyncCheckpointer<usize>>,
    seen: Arc<Seen>,
    book: Arc<Book>,
    /// What this thread has asked for, and was not refused.
    mine: Vec<usize>,
}

impl Caller {
    fn new(interrupter: Option<Interrupter>) -> Caller {
        let stage = Stage::default();
        let seen = Arc::clone(&stage.0);
        let checkpointer = AsyncCheckpointer::new(stage);
        Caller {
            checkpointer: Arc::new(match interrupter {
                Some(interrupter) => checkpointer.with_interrupter(interrupter),
                None => checkpointer,
            }),
            seen,
            book: Arc::default(),
            mine: Vec::new(),
        }
    }

    fn act(&mut self) {
        match any(8) {
            0 | 1 => self.submit(),
            2 => self.save(),
            3 => self.delete(),
            4 => self.restore(),
            5 => self.go_away(),
            6 => self.wait(),
            _ => self.check(),
        }
    }

    fn submit(&mut self) {
        let (epoch, began) = (self.book.any_epoch(), self.book.now());
        let submitted = if any(2) == 0 {
            self.checkpointer.submit(epoch, epoch)
        } else {
            match self.checkpointer.try_submit(epoch, epoch) {
                Err(TrySubmitError::Busy(record)) => return assert_eq!(record, epoch),
                Err(TrySubmitError::Failed(error, record)) => {
                    assert_eq!(record, epoch);
                    Err(error)
                }
                Ok(pending) => Ok(pending),
            }
        };
        let Some(pending) = self.entered(epoch, began, submitted) else {
            return;
        };
        let result = match any(4) {
            0 => return,
            1 => {
                while !pending.done() {
                    shuttle::thread::yield_now();
                }
                pending.wait(Some(Duration::ZERO)).expect("it is done")
            }
            2 => match pending.wait(Some(SOON)) {
                None => return,
                Some(result) => result,
            },
            _ => pending.wait(None).expect("no time limit"),
        };
        assert!(self.seen.is_done(epoch), "the handle waited");
        assert_eq!(result.is_err(), fate(epoch) != Fate::Works);
        if let Err(CheckpointerError::Worker(failure)) = result {
            self.book.handle_told(&failure);
        }
    }

    fn save(&mut self) {
        let (epoch, began) = (self.book.any_epoch(), self.book.now());
        let saved = self.checkpointer.save(epoch, epoch);
        self.entered(epoch, began, saved);
    }

    fn delete(&mut self) {
        let (epoch, began) = (self.book.any_epoch(), self.book.now());
        let deleted = self.checkpointer.delete(epoch);
        self.entered(epoch, began, deleted);
    }

    /// Its failures go to the caller, and to nobody else.
    fn restore(&mut self) {
        let (epoch, began) = (self.book.epoch(Fate::Works), self.book.now());
        let asked = match any(3) {
            0 => self.checkpointer.restore(epoch),
            1 => self.checkpointer.restore_with(epoch, |restored| restored),
            _ => {
                let restored = self
                    .checkpointer
                    .restore_with(epoch, |_| -> Result<usize, _> {
                        std::panic::resume_unwind(Box::new("then".to_owned()))
                    });
                match restored {
                    Err(CheckpointerError::Unknown(text)) if text == "then" => Ok(epoch),
                    other => other,
                }
            }
        };
        if let Some(record) = self.entered(epoch, began, asked) {
            assert_eq!(record, epoch);
            assert!(self.seen.is_done(epoch));
        }
    }

    /// The answer to a restore may find nobody: a failure like any other.
    fn go_away(&mut self) {
        let (epoch, began) = (self.book.epoch(Fate::Works), self.book.now());
        let asked = self
            .checkpointer
            .try_restore_with(epoch, |restored| restored);
        let asked = match asked {
            Err(TrySubmitError::Busy(_)) => return,
            Err(TrySubmitError::Failed(error, _)) => Err(error),
            Ok(reply) => Ok(reply),
        };
        drop(self.entered(epoch, began, asked));
    }

    fn wait(&mut self) {
        let began = self.book.now();
        let timeout = [None, Some(SOON)][any(2)];
        let mine = self.mine.clone();
        match self.checkpointer.wait(timeout) {
            Ok(drained) => {
                assert!(drained || timeout.is_some());
                if drained {
                    assert!(
                        mine.iter().all(|&epoch| self.seen.is_done(epoch)),
                        "it waited"
                    );
                }
            }
            Err(error) => self.refused(began, &error),
        }
    }

    fn check(&mut self) {
        let began = self.book.now();
        if let Err(error) = self.checkpointer.check() {
            self.refused(began, &error);
        }
    }

    /// What was taken, unless the call was refused.
    fn entered<T>(
        &mut self,
        epoch: usize,
        began: u64,
        result: Result<T, CheckpointerError>,
    ) -> Option<T> {
        match result {
            Ok(taken) => {
                for earlier in &self.mine {
                    assert!(self.seen.is_done(*earlier), "one at a time");
                }
                self.mine.push(epoch);
                self.book.accepted(epoch);
                Some(taken)
            }
            Err(error) => {
                self.refused(began, &error);
                None
            }
        }
    }

    fn refused(&self, began: u64, error: &CheckpointerError) {
        let CheckpointerError::Worker(failure) = error else {
            panic!("{error}");
        };
        self.book.call_told(failure, began);
    }

    /// Closes until nothing is left to be told, or leaves that to the log.
    fn end(self) {
        let (book, seen) = (Arc::clone(&self.book), Arc::clone(&self.seen));
        if any(2) == 0 {
            loop {
                let began = book.now();
                match self.checkpointer.close() {
                    Ok(()) => break,
                    Err(error) => self.refused(began, &error),
                }
            }
        }
        drop(self);
        assert!(seen.let_go());
        book.balance(&seen);
    }
}

fn everything_at_once(interrupter: Option<Interrupter>) {
    keep_log();
    let mut caller = Caller::new(interrupter);
    let start = |mut caller: Caller| {
        shuttle::thread::spawn(move || {
            (0..3).for_each(|_| caller.act());
        })
    };
    let others = [start(caller.clone()), start(caller.clone())];
    caller.act();
    caller.act();
    for other in others {
        other.join().expect("it ends");
    }
    caller.end();
}

#[test]
fn everything_at_once_loses_nothing_and_tells_each_failure_once() {
    explore(4000, || everything_at_once(None));
}

#[test]
fn with_an_interrupter_too() {
    explore(4000, || everything_at_once(Some(Interrupter::new())));
}

// A rendezvous channel alone looks busy between two jobs.
#[test]
fn a_worker_without_a_job_is_never_busy() {
    explore(1000, || {
        let Caller { checkpointer, .. } = Caller::new(None);
        for epoch in [0, 4, 8] {
            let pending = checkpointer.try_submit(epoch, epoch).expect("it is free");
            match any(3) {
                0 => pending
                    .wait(None)
                    .expect("no time limit")
                    .expect("it works"),
                1 => {
                    while !pending.done() {
                        shuttle::thread::yield_now();
                    }
                }
                _ => assert!(checkpointer.wait(None).expect("it works")),
            }
            assert!(checkpointer.is_idle());
            let reply = checkpointer.try_restore_with(epoch, |restored| restored);
            let reply = reply.unwrap_or_else(|_| panic!("it is free"));
            assert_eq!(reply.recv().expect("it works"), epoch);
        }
    });
}

#[test]
fn after_a_failure_a_new_worker_takes_over() {
    explore(1000, || {
        let Caller {
            checkpointer, seen, ..
        } = Caller::new(None);
        let checkpointer = &checkpointer;
        for failing in [2, 3] {
            let pending = checkpointer.submit(failing, failing).expect("a worker");
            if any(2) == 0 {
                let told = pending.wait(None).expect("no time limit");
                told.expect_err("it fails");
            } else {
                let told = checkpointer
                    .save(100, 100)
                    .expect_err("the one before failed");
                assert!(
                    told.to_string().ends_with(&format!("`epoch {failing}`")),
                    "{told}"
                );
            }
            checkpointer
                .save(4 * failing, 4 * failing)
                .expect("a new worker");
        }
        checkpointer.close().expect("all was told");
        assert_eq!(seen.done(), [2, 8, 3, 12]);
    });
}

// Whoever waits for a turn while others time out on theirs is served.
#[test]
fn those_who_give_up_waiting_hold_up_nobody() {
    explore(1000, || {
        let caller = Caller::new(None);
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let checkpointer = Arc::clone(&caller.checkpointer);
                shuttle::thread::spawn(move || {
                    checkpointer.wait_idle(SOON);
                    pause();
                    checkpointer.wait(Some(SOON)).expect("nothing fails");
                })
            })
            .collect();
        for epoch in [0, 4] {
            caller.checkpointer.save(epoch, epoch).expect("it works");
        }
        for waiter in waiters {
            waiter.join().expect("it ends");
        }
        caller.checkpointer.close().expect("nothing failed");
        assert_eq!(caller.seen.done(), [0, 4]);
    });
}
