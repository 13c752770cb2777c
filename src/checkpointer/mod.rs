//! The worker that carries records to a [`Checkpointer`] while training goes on.
//!
//! This room knows no other: it is generic over the record `R`, and it never looks inside one.
//!
//! ```text
//!  training thread                         worker thread ("pitstop-worker")
//!  ───────────────                         ───────────────────────────────
//!  save(epoch, record) ── sync_channel(0) ──▶ checkpointer.save(epoch, record)
//!  check() / next call ◀──── failure ──────── kept until somebody has seen it
//!  interrupter.should_stop() ◀── stop(reason) (if there is one)
//! ```
//!
//! # What is promised
//!
//! - **Back-pressure.** One operation is in the worker at a time. A second [`save`] waits until the
//!   first has ended, in order of arrival, so at most one record is in flight. [`try_submit`] says
//!   `Busy` instead of waiting, and says so only if an operation really is in flight.
//! - **No failure is lost, none is told twice.** Each is kept until it is *claimed*: by the
//!   [`Pending`] handle of the operation that failed, or else by the next call. See [`Failure`].
//! - **A failure is no dead end.** Without an [`Interrupter`] the worker thread ends with a panic, as
//!   its model does; the next call returns the original message, and a new worker takes over.
//! - **Panics stay inside.** A checkpointer that panics has failed, nothing more. The worker's own
//!   panic prints no report.
//! - **User code runs under no lock.**
//!
//! # Example
//!
//! Any type can be the record, and anything that saves it the checkpointer:
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::Mutex;
//!
//! use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError};
//!
//! struct Weights(Vec<f32>);
//!
//! #[derive(Default)]
//! struct InMemory(Mutex<BTreeMap<usize, Vec<f32>>>);
//!
//! impl Checkpointer<Weights> for InMemory {
//!     fn save(&self, epoch: usize, record: Weights) -> Result<(), CheckpointerError> {
//!         self.0.lock().unwrap().insert(epoch, record.0);
//!         Ok(())
//!     }
//!
//!     fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
//!         self.0.lock().unwrap().remove(&epoch);
//!         Ok(())
//!     }
//!
//!     fn restore(&self, epoch: usize) -> Result<Weights, CheckpointerError> {
//!         let kept = self.0.lock().unwrap().get(&epoch).cloned();
//!         kept.map(Weights)
//!             .ok_or_else(|| CheckpointerError::Unknown(format!("no epoch {epoch}")))
//!     }
//! }
//!
//! let checkpointer = AsyncCheckpointer::new(InMemory::default());
//! checkpointer.save(1, Weights(vec![0.5, 0.25]))?; // returns as soon as the worker has it
//! checkpointer.save(2, Weights(vec![0.75, 1.0]))?; // waits for the first one
//! checkpointer.delete(1)?;
//! assert_eq!(checkpointer.restore(2)?.0, [0.75, 1.0]);
//!
//! let error = checkpointer.restore(1).err().unwrap();
//! assert_eq!(error.to_string(), "Unknown error: `no epoch 1`");
//! checkpointer.close()?; // ends the worker; reports what nobody has seen yet
//! # Ok::<(), CheckpointerError>(())
//! ```
//!
//! [`save`]: Checkpointer::save
//! [`try_submit`]: AsyncCheckpointer::try_submit

mod async_checkpointer;
mod crew;
mod error;
mod failure;
mod interrupter;
mod lane;
mod ledger;
mod lock;
mod message;
pub(crate) mod panic;
mod pending;
mod reply;
mod worker;

use std::sync::Arc;

pub use async_checkpointer::AsyncCheckpointer;
pub use error::{CheckpointerError, TrySubmitError};
pub use failure::{Failure, Operation};
pub use interrupter::Interrupter;
pub use pending::Pending;
pub use reply::Reply;

/// Saves, deletes and restores the records of a training run, one per epoch.
///
/// An epoch is whatever the run counts in: epochs or steps.
///
/// Implement it for your own storage and hand that to [`AsyncCheckpointer::new`]; the methods then
/// run on the worker thread, one at a time, and under no lock.
pub trait Checkpointer<R>: Send + Sync {
    /// Saves the record of an epoch.
    ///
    /// # Errors
    ///
    /// When the record couldn't be saved. Whatever was saved before must still be there.
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError>;

    /// Deletes the record of an epoch.
    ///
    /// # Errors
    ///
    /// When it couldn't be deleted. Whether deleting what isn't there is an error is up to the
    /// implementation.
    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError>;

    /// Gives back the record of an epoch.
    ///
    /// # Errors
    ///
    /// When there is none, or when it can't be read.
    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError>;
}

/// Lets the worker share a checkpointer with others that still want to look at it.
impl<R, C: Checkpointer<R> + ?Sized> Checkpointer<R> for Arc<C> {
    fn save(&self, epoch: usize, record: R) -> Result<(), CheckpointerError> {
        (**self).save(epoch, record)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        (**self).delete(epoch)
    }

    fn restore(&self, epoch: usize) -> Result<R, CheckpointerError> {
        (**self).restore(epoch)
    }
}
