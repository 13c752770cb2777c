//! Checkpointers to play against.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use pitstop::{Checkpointer, CheckpointerError};

/// The epoch that never works: the disk is full.
pub(crate) const FULL: usize = 900;
/// The epoch at which the checkpointer itself panics.
pub(crate) const PANICS: usize = 901;
/// The epoch whose record the recorder refuses.
pub(crate) const REFUSED: usize = 902;

/// ENOSPC.
pub(crate) const FULL_ERRNO: i32 = 28;

pub(crate) fn full_disk() -> io::Error {
    io::Error::from_raw_os_error(FULL_ERRNO)
}

pub(crate) fn full_message() -> String {
    format!("Error when saving the state: I/O Error: `{}`", full_disk())
}

/// The name and the id of the thread that something happened on.
type Place = (Option<String>, ThreadId);

/// Keeps records in memory and what happened in a log; clones share both.
#[derive(Clone, Default)]
pub(crate) struct Store {
    pub(crate) records: Arc<Mutex<BTreeMap<usize, String>>>,
    pub(crate) threads: Arc<Mutex<Vec<Place>>>,
    pub(crate) saved: Arc<Mutex<Vec<usize>>>,
    inside: Arc<AtomicUsize>,
    pub(crate) most_inside: Arc<AtomicUsize>,
}

impl Store {
    pub(crate) fn epochs(&self) -> Vec<usize> {
        self.records.lock().unwrap().keys().copied().collect()
    }

    fn act(&self, epoch: usize) -> Result<(), CheckpointerError> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_inside.fetch_max(inside, Ordering::SeqCst);
        let here = thread::current();
        let name = here.name().map(str::to_owned);
        self.threads.lock().unwrap().push((name, here.id()));
        thread::yield_now();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        match epoch {
            FULL => Err(full_disk().into()),
            PANICS => panic!("the checkpointer lost its mind"),
            REFUSED => Err(CheckpointerError::RecorderError("no such dtype".into())),
            _ => Ok(()),
        }
    }
}

impl Checkpointer<String> for Store {
    fn save(&self, epoch: usize, record: String) -> Result<(), CheckpointerError> {
        self.act(epoch)?;
        self.saved.lock().unwrap().push(epoch);
        self.records.lock().unwrap().insert(epoch, record);
        Ok(())
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        self.act(epoch)?;
        self.records.lock().unwrap().remove(&epoch);
        Ok(())
    }

    fn restore(&self, epoch: usize) -> Result<String, CheckpointerError> {
        self.act(epoch)?;
        let found = self.records.lock().unwrap().get(&epoch).cloned();
        found.ok_or_else(|| CheckpointerError::Unknown(format!("no epoch {epoch}")))
    }
}

/// A store whose every operation says that it has begun, and then waits for a word.
pub(crate) struct Gated {
    store: Store,
    begun: Sender<usize>,
    go: Mutex<Receiver<()>>,
}

/// The other side of a [`Gated`] store. Once dropped, the gate stands open.
pub(crate) struct Gate {
    pub(crate) store: Store,
    pub(crate) begun: Receiver<usize>,
    pub(crate) go: Sender<()>,
}

pub(crate) fn gated() -> (Gated, Gate) {
    let store = Store::default();
    let (begun_sender, begun) = mpsc::channel();
    let (go, go_receiver) = mpsc::channel();
    let gated = Gated {
        store: store.clone(),
        begun: begun_sender,
        go: Mutex::new(go_receiver),
    };
    (gated, Gate { store, begun, go })
}

impl Gated {
    fn pass(&self, epoch: usize) {
        let _ = self.begun.send(epoch);
        let _ = self.go.lock().unwrap().recv();
    }
}

impl Checkpointer<String> for Gated {
    fn save(&self, epoch: usize, record: String) -> Result<(), CheckpointerError> {
        self.pass(epoch);
        self.store.save(epoch, record)
    }

    fn delete(&self, epoch: usize) -> Result<(), CheckpointerError> {
        self.pass(epoch);
        self.store.delete(epoch)
    }

    fn restore(&self, epoch: usize) -> Result<String, CheckpointerError> {
        self.pass(epoch);
        self.store.restore(epoch)
    }
}

pub(crate) fn record() -> String {
    "weights".to_owned()
}
