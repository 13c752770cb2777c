//! Python objects that are kept alive while saves read their memory.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;

use crate::checkpointer::Pending;
use crate::file_checkpointer::{Reads, Ticket};

/// A save, and the objects whose memory it reads.
pub(super) struct Lent {
    pub(super) pending: Arc<Pending>,
    pub(super) ticket: Arc<Ticket>,
    /// Needed until it is copied.
    pub(super) owners: Vec<Py<PyAny>>,
    /// Needed until the save is done.
    pub(super) lenders: Vec<Py<PyAny>>,
}

/// What is lent to the saves of one checkpointer; its handles know of it too, since they wait for saves.
#[derive(Default)]
pub(super) struct Loans(Mutex<Vec<Lent>>);

impl Loans {
    pub(super) fn add(&self, lent: Lent) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(lent);
    }

    /// Lets go of what is no longer read. Called by threads of Python only.
    pub(super) fn reap(&self) {
        let mut free = Vec::new();
        let mut loans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loans.retain_mut(|lent| {
            if lent.ticket.reads() == Reads::Nothing {
                free.append(&mut lent.owners);
            }
            if lent.pending.done() {
                free.append(&mut lent.owners);
                free.append(&mut lent.lenders);
            }
            !(lent.owners.is_empty() && lent.lenders.is_empty())
        });
        drop(loans);
        // Their finalizers may call anything, this checkpointer included, so no lock is held here.
        drop(free);
    }
}
