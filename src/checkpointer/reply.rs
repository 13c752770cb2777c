//! What a restoring caller waits for.

use std::time::Duration;

use super::message::Callback;
use super::panic::catch;
use super::{CheckpointerError, Pending};
use crate::sync::mpsc::{self, Receiver, RecvTimeoutError};
use crate::sync::{Mutex, PoisonError};

/// The answer to a [`try_restore_with`](super::AsyncCheckpointer::try_restore_with), to be waited
/// for.
///
/// Dropping it before the answer means that the caller has gone away. The worker still finishes, and
/// then fails with `Error when sending response through callback channel: sending on a closed
/// channel`, which is a [`Failure`](super::Failure) like any other.
#[derive(Debug)]
#[must_use = "dropping it tells the worker that nobody waits for the answer, which is a failure"]
pub struct Reply<T> {
    /// Never locked; the mutex is there to make the handle `Sync`.
    answer: Mutex<Receiver<Answer<T>>>,
    pending: Pending,
}

type Answer<T> = Result<T, CheckpointerError>;

impl<T> Reply<T> {
    pub(super) fn new(answer: Receiver<Answer<T>>, pending: Pending) -> Self {
        Self {
            answer: Mutex::new(answer),
            pending,
        }
    }

    /// Waits for the answer; `None` if the timeout ran out first. Once it was there it is gone from
    /// here: asking again is an error.
    ///
    /// # Errors
    ///
    /// The inner result is what the closure returned. If the closure panicked it is
    /// [`CheckpointerError::Unknown`] with the text of the panic.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Result<T, CheckpointerError>> {
        let receiver = self.answer.get_mut();
        let receiver = receiver.unwrap_or_else(PoisonError::into_inner);
        match receiver.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(no_answer())),
            Ok(answer) => Some(self.accept(answer)),
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// As for [`recv_timeout`](Self::recv_timeout).
    pub fn recv(mut self) -> Result<T, CheckpointerError> {
        let receiver = self.answer.get_mut();
        let receiver = receiver.unwrap_or_else(PoisonError::into_inner);
        match receiver.recv() {
            Err(_) => Err(no_answer()),
            Ok(answer) => self.accept(answer),
        }
    }

    /// The answer is sent moments before the worker is free. Whoever has it may rely on the worker
    /// being free, and a following `try_submit` on not being told `Busy`.
    fn accept(&self, answer: Answer<T>) -> Answer<T> {
        self.pending.ended_by(None);
        answer
    }
}

fn no_answer() -> CheckpointerError {
    CheckpointerError::Unknown("there is no answer, or it was already taken".to_owned())
}

/// The worker's end and the caller's end of an answer.
///
/// `then` runs on the worker; what it returns, or the text of its panic, is sent to the caller.
pub(super) fn channel<R, T, F>(then: F) -> (Callback<R>, Receiver<Answer<T>>)
where
    T: Send + 'static,
    F: FnOnce(Result<R, CheckpointerError>) -> Result<T, CheckpointerError> + Send + 'static,
{
    // Room for the one answer, so that the worker never waits for the caller.
    let (sender, receiver) = mpsc::sync_channel(1);
    let callback = move |restored| {
        let answer = catch(|| then(restored));
        let answer = answer.unwrap_or_else(|text| Err(CheckpointerError::Unknown(text)));
        sender.send(answer).map_err(|closed| closed.to_string())
    };
    (Box::new(callback), receiver)
}
