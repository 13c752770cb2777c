//! The worker thread: takes one message after the other.

use std::io;

use super::ledger::Ledger;
use super::message::{Completion, Message};
use super::panic::{catch, end_thread};
use super::{Checkpointer, CheckpointerError, Failure, Interrupter, Operation};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::mpsc::{self, Receiver, SyncSender};
use crate::sync::thread::{self, JoinHandle, ThreadId};

/// A running worker thread, seen from outside.
pub(super) struct Worker<R> {
    sender: SyncSender<Message<R>>,
    handle: JoinHandle<()>,
    ended: Arc<AtomicBool>,
}

impl<R> Worker<R> {
    /// Starts a thread that carries messages to the checkpointer and failures to the ledger.
    pub(super) fn start(
        checkpointer: Arc<dyn Checkpointer<R>>,
        ledger: Arc<Ledger>,
    ) -> io::Result<Self>
    where
        R: Send + 'static,
    {
        let (sender, receiver) = mpsc::sync_channel(0);
        let ended = Arc::new(AtomicBool::new(false));
        let bench = Bench {
            checkpointer,
            ledger,
            ended: Arc::clone(&ended),
        };
        let handle = thread::Builder::new()
            .name("pitstop-worker".to_owned())
            .spawn(move || bench.run(&receiver))?;
        Ok(Self {
            sender,
            handle,
            ended,
        })
    }

    pub(super) fn sender(&self) -> SyncSender<Message<R>> {
        self.sender.clone()
    }

    pub(super) fn thread_id(&self) -> ThreadId {
        self.handle.thread().id()
    }

    /// Whether it takes no more messages. Exact for whoever holds the turn.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) || self.handle.is_finished()
    }

    /// Ends the thread and waits until it is gone. What it panicked with is in the ledger already.
    pub(super) fn join(self) {
        if !self.has_ended() {
            // An error means that the thread is gone, which is what is wanted.
            let _ = self.sender.send(Message::End);
        }
        let _ = self.handle.join();
    }
}

/// What the worker thread works with.
struct Bench<R> {
    checkpointer: Arc<dyn Checkpointer<R>>,
    ledger: Arc<Ledger>,
    ended: Arc<AtomicBool>,
}

impl<R> Bench<R> {
    fn run(&self, receiver: &Receiver<Message<R>>) {
        while let Ok(message) = receiver.recv() {
            let (failure, interrupter, completion) = match message {
                Message::Restore(epoch, callback, interrupter, completion) => {
                    let failure = attempt(Operation::Callback, epoch, || {
                        callback(self.restore(epoch)).map_err(Lapse::Callback)
                    });
                    (failure, interrupter, completion)
                }
                Message::Save(epoch, record, interrupter, completion) => {
                    let save = || self.checkpointer.save(epoch, record).map_err(Lapse::from);
                    let failure = attempt(Operation::Save, epoch, save);
                    (failure, interrupter, completion)
                }
                Message::Delete(epoch, interrupter, completion) => {
                    let delete = || self.checkpointer.delete(epoch).map_err(Lapse::from);
                    let failure = attempt(Operation::Delete, epoch, delete);
                    (failure, interrupter, completion)
                }
                Message::End => return,
            };
            let Some(failure) = failure else {
                completion.settle(Ok(()));
                continue;
            };
            if let Some(message) = self.report(failure, interrupter, completion) {
                return end_thread(message);
            }
        }
    }

    /// A panic is an error for the caller to see, as any other error of restoring.
    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        let restored = catch(|| self.checkpointer.restore(epoch));
        restored.unwrap_or_else(|text| Err(CheckpointerError::Unknown(text)))
    }

    /// Tells of a failure; without an interrupter, gives back what the thread is to end with.
    ///
    /// Everything that others may look at is in place before the turn ends.
    fn report(
        &self,
        failure: Failure,
        interrupter: Option<Interrupter>,
        completion: Completion,
    ) -> Option<String> {
        let failure = Arc::new(failure);
        self.ledger.record(Arc::clone(&failure));
        let last_words = if let Some(interrupter) = interrupter {
            interrupter.stop(Some(failure.message()));
            None
        } else {
            self.ended.store(true, Ordering::Release);
            Some(failure.message().to_owned())
        };
        completion.settle(Err(failure));
        last_words
    }
}

/// An error together with its text, made while panics are still caught: displaying runs user code.
enum Lapse {
    Checkpointer(CheckpointerError, String),
    Callback(String),
}

impl From<CheckpointerError> for Lapse {
    fn from(error: CheckpointerError) -> Self {
        let text = error.to_string();
        Self::Checkpointer(error, text)
    }
}

/// Runs one operation, user code and all; a panic counts as a failure.
fn attempt(
    operation: Operation,
    epoch: usize,
    work: impl FnOnce() -> Result<(), Lapse>,
) -> Option<Failure> {
    let outcome = catch(work).unwrap_or_else(|text| Err(CheckpointerError::Unknown(text).into()));
    let (text, error) = match outcome {
        Ok(()) => return None,
        Err(Lapse::Checkpointer(error, text)) => (text, Some(error)),
        Err(Lapse::Callback(text)) => (text, None),
    };
    Some(Failure::new(operation, epoch, &text, error))
}

#[cfg(test)]
mod tests {
    use crate::sync::OnceLock;

    use super::super::lane::Lane;
    use super::*;

    struct Full;

    impl Checkpointer<()> for Full {
        fn save(&self, _epoch: usize, (): ()) -> Result<(), CheckpointerError> {
            Err(CheckpointerError::Unknown("full".to_owned()))
        }

        fn delete(&self, _epoch: usize) -> Result<(), CheckpointerError> {
            Err(CheckpointerError::Unknown("read-only".to_owned()))
        }

        fn restore(&self, _epoch: usize) -> Result<(), CheckpointerError> {
            Ok(())
        }
    }

    /// What the thread panics with when it is sent this message.
    fn last_words(message: impl FnOnce(Completion) -> Message<()>) -> String {
        let worker = Worker::start(Arc::new(Full), Arc::default()).unwrap();
        let turn = Arc::new(Lane::default()).enter();
        let completion = Completion::new(Arc::new(OnceLock::new()), turn);
        worker.sender.send(message(completion)).unwrap();
        let payload = worker.handle.join().unwrap_err();
        *payload.downcast::<String>().unwrap()
    }

    #[test]
    fn without_an_interrupter_the_thread_panics_with_exactly_the_message() {
        assert_eq!(
            last_words(|completion| Message::Save(3, (), None, completion)),
            "Error when saving the state: Unknown error: `full`"
        );
        assert_eq!(
            last_words(|completion| Message::Delete(3, None, completion)),
            "Error when deleting the state: Unknown error: `read-only`"
        );
        let (callback, answer) = super::super::reply::channel(|restored| restored);
        drop(answer);
        assert_eq!(
            last_words(|completion| Message::Restore(3, callback, None, completion)),
            "Error when sending response through callback channel: sending on a closed channel"
        );
    }
}
