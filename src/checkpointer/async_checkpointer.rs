//! The checkpointer that does its work on another thread.

use std::fmt;
use std::time::Duration;

use super::crew::Crew;
use super::lane::{Lane, Turn, deadline};
use super::ledger::Ledger;
use super::message::{Completion, Message};
use super::panic::catch;
use super::{Checkpointer, CheckpointerError, Interrupter, Pending, Reply, TrySubmitError, reply};
use crate::sync::mpsc::SyncSender;
use crate::sync::{Arc, OnceLock};

/// A [`Checkpointer`] that carries everything to another one on a worker thread.
///
/// [`save`](Checkpointer::save) and [`delete`](Checkpointer::delete) return once the worker has taken
/// the job, [`restore`](Checkpointer::restore) waits for the answer. One job is in the worker at a
/// time; more wait in order of arrival.
///
/// # Failures
///
/// What fails on the worker is kept as a [`Failure`](super::Failure) until it is claimed.
///
/// - Without an interrupter the worker thread ends with a panic whose payload is the failure's
///   message, and prints no report. The next `save`, `delete`, `restore`, `submit`, `restore_with` or
///   `try_…` returns that failure *instead of* doing its work; the one after that starts a new worker.
/// - With an interrupter the worker stops the interrupter with the message and lives on. Then these
///   calls don't report it, since the loop sees [`Interrupter::should_stop`].
/// - [`check`](Self::check), [`wait`](Self::wait) and [`close`](Self::close) report it in either case,
///   and so does [`Pending::wait`].
///
/// # Threads
///
/// All methods may be called from many threads at once. Code that runs *on* the worker, such as the
/// closure given to [`restore_with`](Self::restore_with), gets [`CheckpointerError::Deadlock`] from
/// those that would wait for the worker.
///
/// # Dropping
///
/// Waits for the job in the worker, ends and joins the thread, and logs the failures that nobody has
/// claimed. Never panics.
pub struct AsyncCheckpointer<R> {
    lane: Arc<Lane>,
    ledger: Arc<Ledger>,
    crew: Crew<R>,
    interrupter: Option<Interrupter>,
}

/// All that may fail is done: the turn is held and the worker is there.
struct Access<R> {
    turn: Turn,
    sender: SyncSender<Message<R>>,
}

impl<R: Send + 'static> AsyncCheckpointer<R> {
    /// Wraps a checkpointer. The worker thread is started by the first operation.
    pub fn new(checkpointer: impl Checkpointer<R> + 'static) -> Self {
        Self {
            lane: Arc::default(),
            ledger: Arc::default(),
            crew: Crew::new(Arc::new(checkpointer)),
            interrupter: None,
        }
    }

    /// Failures stop this interrupter instead of the worker.
    #[must_use]
    pub fn with_interrupter(mut self, interrupter: Interrupter) -> Self {
        self.interrupter = Some(interrupter);
        self
    }

    /// Saves a record on the worker. Blocks until the worker has taken it, which is after everything
    /// that was asked for before has ended.
    ///
    /// # Errors
    ///
    /// Nothing was saved, and the record is dropped, if there was an unclaimed failure (not with an
    /// interrupter), if the checkpointer is closed, if no thread could be started, or if this is
    /// the worker itself. What goes wrong later is for [`Pending::wait`] or the next call.
    pub fn submit(&self, epoch: usize, record: R) -> Result<Pending, CheckpointerError> {
        let access = self.enter()?;
        Ok(self.send_save(access, epoch, record))
    }

    /// Saves a record on the worker if that is free. Doesn't wait for any job.
    ///
    /// # Errors
    ///
    /// The record is given back: as [`TrySubmitError::Busy`] if a job is in the worker or waits for
    /// it, else for the reasons that [`submit`](Self::submit) has.
    pub fn try_submit(&self, epoch: usize, record: R) -> Result<Pending, TrySubmitError<R>> {
        match self.try_enter() {
            Ok(access) => Ok(self.send_save(access, epoch, record)),
            Err(refusal) => Err(refusal.with(record)),
        }
    }

    /// Deletes a record on the worker if that is free. Doesn't wait for any job.
    ///
    /// # Errors
    ///
    /// As for [`try_submit`](Self::try_submit); nothing was deleted.
    pub fn try_delete(&self, epoch: usize) -> Result<Pending, TrySubmitError<()>> {
        let access = self.try_enter()?;
        Ok(self.send_delete(access, epoch))
    }

    /// Restores a record, runs `then` on it *on the worker*, and waits for what that returns.
    ///
    /// `then` also gets the error if restoring failed.
    ///
    /// # Errors
    ///
    /// What `then` returned; [`CheckpointerError::Unknown`] if it panicked; and the reasons that
    /// [`submit`](Self::submit) has, in which case `then` wasn't called.
    pub fn restore_with<T, F>(&self, epoch: usize, then: F) -> Result<T, CheckpointerError>
    where
        T: Send + 'static,
        F: FnOnce(Result<R, CheckpointerError>) -> Result<T, CheckpointerError> + Send + 'static,
    {
        let access = self.enter()?;
        self.send_restore(access, epoch, then).recv()
    }

    /// As [`restore_with`](Self::restore_with), but waits for nothing: neither for a free worker nor
    /// for the answer.
    ///
    /// # Errors
    ///
    /// As for [`try_submit`](Self::try_submit); `then` is given back.
    pub fn try_restore_with<T, F>(
        &self,
        epoch: usize,
        then: F,
    ) -> Result<Reply<T>, TrySubmitError<F>>
    where
        T: Send + 'static,
        F: FnOnce(Result<R, CheckpointerError>) -> Result<T, CheckpointerError> + Send + 'static,
    {
        match self.try_enter() {
            Ok(access) => Ok(self.send_restore(access, epoch, then)),
            Err(refusal) => Err(refusal.with(then)),
        }
    }

    fn enter(&self) -> Result<Access<R>, CheckpointerError> {
        // Before the wait, for what is known already; `access` asks again after it.
        self.refuse()?;
        self.access(self.lane.enter())
    }

    fn try_enter(&self) -> Result<Access<R>, TrySubmitError<()>> {
        let failed = |error| TrySubmitError::Failed(error, ());
        // Before the lane, so that a caller who polls sees a failure rather than `Busy`.
        self.refuse_closed()
            .and_then(|()| self.refuse_failed())
            .map_err(failed)?;
        let turn = self.lane.try_enter().ok_or(TrySubmitError::Busy(()))?;
        self.access(turn).map_err(failed)
    }

    /// Whoever holds the turn sees everything that earlier jobs left behind, and no job can add to
    /// it: nothing is handed over while a failure is unclaimed.
    fn access(&self, turn: Turn) -> Result<Access<R>, CheckpointerError> {
        self.refuse()?;
        let sender = self.crew.sender(&self.ledger)?;
        Ok(Access { turn, sender })
    }

    fn refuse(&self) -> Result<(), CheckpointerError> {
        self.refuse_on_worker()?;
        self.refuse_closed()?;
        self.refuse_failed()
    }

    fn refuse_closed(&self) -> Result<(), CheckpointerError> {
        if self.crew.is_dismissed() {
            return Err(CheckpointerError::Closed);
        }
        Ok(())
    }

    fn refuse_failed(&self) -> Result<(), CheckpointerError> {
        match self.interrupter {
            Some(_) => Ok(()),
            None => self.check(),
        }
    }

    fn send_save(&self, access: Access<R>, epoch: usize, record: R) -> Pending {
        self.send(access, |interrupter, completion| {
            Message::Save(epoch, record, interrupter, completion)
        })
    }

    fn send_delete(&self, access: Access<R>, epoch: usize) -> Pending {
        self.send(access, |interrupter, completion| {
            Message::Delete(epoch, interrupter, completion)
        })
    }

    fn send_restore<T, F>(&self, access: Access<R>, epoch: usize, then: F) -> Reply<T>
    where
        T: Send + 'static,
        F: FnOnce(Result<R, CheckpointerError>) -> Result<T, CheckpointerError> + Send + 'static,
    {
        let (callback, answer) = reply::channel(then);
        let pending = self.send(access, |interrupter, completion| {
            Message::Restore(epoch, callback, interrupter, completion)
        });
        Reply::new(answer, pending)
    }

    /// The hand-over. It takes moments, for whoever holds the turn sends to a worker that is free.
    fn send(
        &self,
        access: Access<R>,
        message: impl FnOnce(Option<Interrupter>, Completion) -> Message<R>,
    ) -> Pending {
        let outcome = Arc::new(OnceLock::new());
        let pending = Pending::new(&access.turn, &self.lane, &self.ledger, &outcome);
        let completion = Completion::new(outcome, access.turn);
        // If the worker were gone, the message would be dropped unsettled: an error in `Pending`.
        let _ = access
            .sender
            .send(message(self.interrupter.clone(), completion));
        pending
    }
}

impl<R> AsyncCheckpointer<R> {
    /// Whether no job is in the worker or waits for it. Doesn't block.
    pub fn is_idle(&self) -> bool {
        self.lane.is_idle()
    }

    /// Waits until everything that was asked for before this call has ended; false if the timeout
    /// ran out first. Claims no failure.
    pub fn wait_idle(&self, timeout: Duration) -> bool {
        self.drain(Some(timeout))
    }

    /// Claims the oldest unclaimed failure, and returns it. Doesn't block: one atomic load if there
    /// is none.
    ///
    /// # Errors
    ///
    /// [`CheckpointerError::Worker`], the failure.
    pub fn check(&self) -> Result<(), CheckpointerError> {
        let oldest = self.ledger.claim_oldest();
        oldest.map_or(Ok(()), |failure| Err(CheckpointerError::Worker(failure)))
    }

    /// Waits until everything that was asked for before this call has ended; false if the timeout
    /// ran out first (`None`: no timeout).
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check), after the wait and however that ended. Also
    /// [`CheckpointerError::Deadlock`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, CheckpointerError> {
        self.refuse_on_worker()?;
        let drained = self.drain(timeout);
        self.check()?;
        Ok(drained)
    }

    /// Waits until everything that was asked for before this call has ended, ends the worker thread,
    /// joins it, and drops the wrapped checkpointer. From then on `save`, `delete` and `restore`
    /// return [`CheckpointerError::Closed`]. Closing again is fine.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check): the checkpointer *is* closed, and an unclaimed failure is
    /// reported; close again for the next one, until there is none. [`CheckpointerError::Unknown`]
    /// if the wrapped checkpointer panicked when it was dropped. [`CheckpointerError::Deadlock`], and
    /// not closed, if called on the worker.
    pub fn close(&self) -> Result<(), CheckpointerError> {
        self.refuse_on_worker()?;
        self.shut_down()?;
        self.check()
    }

    fn drain(&self, timeout: Option<Duration>) -> bool {
        self.lane.wait_ended(self.lane.taken(), deadline(timeout))
    }

    fn refuse_on_worker(&self) -> Result<(), CheckpointerError> {
        if self.crew.is_here() {
            return Err(CheckpointerError::Deadlock);
        }
        Ok(())
    }

    /// Keeps the turn until all is gone, so that whoever closes second returns second.
    fn shut_down(&self) -> Result<(), CheckpointerError> {
        let _turn = self.lane.enter();
        self.crew.dismiss()
    }
}

impl<R: Send + 'static> Checkpointer<R> for AsyncCheckpointer<R> {
    /// [`AsyncCheckpointer::submit`], without the handle: a failure goes to the next call.
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        self.submit(epoch, record).map(drop)
    }

    /// Blocks until the worker has taken it; a failure goes to the next call.
    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        let access = self.enter()?;
        self.send_delete(access, epoch);
        Ok(())
    }

    /// Blocks until it is restored, after everything that was asked for before.
    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        self.restore_with(epoch, |restored| restored)
    }
}

impl<R> Drop for AsyncCheckpointer<R> {
    fn drop(&mut self) {
        // A closure that ran on the worker may have held the last reference. The thread can't join
        // itself; it ends by itself when the sender is gone.
        if !self.crew.is_here()
            && let Err(error) = self.shut_down()
        {
            // A logger is user code, and must not panic here either.
            let _ = catch(|| log::error!("Error when closing the checkpointer: {error}"));
        }
        self.ledger.log_unclaimed();
    }
}

impl<R> fmt::Debug for AsyncCheckpointer<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AsyncCheckpointer")
            .field("idle", &self.is_idle())
            .field("interrupter", &self.interrupter)
            .finish_non_exhaustive()
    }
}
