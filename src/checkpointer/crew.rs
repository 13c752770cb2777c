//! Who does the work: the wrapped checkpointer, and the thread that runs it.

use super::ledger::Ledger;
use super::lock::lock;
use super::message::Message;
use super::panic::catch;
use super::worker::Worker;
use super::{Checkpointer, CheckpointerError};
use crate::sync::mpsc::SyncSender;
use crate::sync::{Arc, Mutex, thread};

/// The wrapped checkpointer and its worker thread.
///
/// Changed only by whoever holds the turn. The lock is for looking and swapping; nothing is sent,
/// joined or dropped under it, and no user code runs.
pub(super) struct Crew<R> {
    members: Mutex<Members<R>>,
}

struct Members<R> {
    /// `None` once dismissed, so that closing also lets go of what the checkpointer holds.
    checkpointer: Option<Arc<dyn Checkpointer<R>>>,
    /// `None` until the first job: a checkpointer that nobody uses costs no thread.
    worker: Option<Worker<R>>,
}

impl<R> Crew<R> {
    pub(super) fn new(checkpointer: Arc<dyn Checkpointer<R>>) -> Self {
        Self {
            members: Mutex::new(Members {
                checkpointer: Some(checkpointer),
                worker: None,
            }),
        }
    }

    /// The living worker's sender; starts a worker if there is none. Needs the turn.
    pub(super) fn sender(
        &self,
        ledger: &Arc<Ledger>,
    ) -> Result<SyncSender<Message<R>>, CheckpointerError>
    where
        R: Send + 'static,
    {
        let ended = lock(&self.members)
            .worker
            .take_if(|worker| worker.has_ended());
        if let Some(ended) = ended {
            ended.join();
        }
        let mut members = lock(&self.members);
        if let Some(worker) = &members.worker {
            return Ok(worker.sender());
        }
        let checkpointer = members.checkpointer.clone();
        let checkpointer = checkpointer.ok_or(CheckpointerError::Closed)?;
        let worker = Worker::start(checkpointer, Arc::clone(ledger))?;
        Ok(members.worker.insert(worker).sender())
    }

    /// Whether the caller runs on the worker thread.
    pub(super) fn is_here(&self) -> bool {
        let here = thread::current().id();
        let members = lock(&self.members);
        members
            .worker
            .as_ref()
            .is_some_and(|worker| worker.thread_id() == here)
    }

    /// Whether the checkpointer has been let go.
    pub(super) fn is_dismissed(&self) -> bool {
        lock(&self.members).checkpointer.is_none()
    }

    /// Ends and joins the thread, and lets go of the checkpointer. Needs the turn.
    pub(super) fn dismiss(&self) -> Result<(), CheckpointerError> {
        let mut members = lock(&self.members);
        let (worker, checkpointer) = (members.worker.take(), members.checkpointer.take());
        drop(members);
        if let Some(worker) = worker {
            worker.join();
        }
        catch(|| drop(checkpointer)).map_err(CheckpointerError::Unknown)
    }
}
