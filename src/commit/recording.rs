//! A disk for tests that keeps the order of the calls, and fails when told to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::storage::{
    Entry, EntryKind, Local, Lock, LockError, NewFile, PathError, Storage, StoredFile,
};

/// The real file system, with a record of every call that changes or syncs something.
#[derive(Debug)]
pub(super) struct Recording {
    root: PathBuf,
    calls: Mutex<Vec<String>>,
    /// Numbers of the calls that fail, counted from 0: the first one, and the one after the last.
    fail_from: AtomicU64,
    fail_until: AtomicU64,
    /// What they fail with. With `NotFound`, somebody else was faster to remove it.
    pub(super) fault: io::ErrorKind,
    pub(super) exchange_supported: bool,
}

impl Recording {
    /// Paths are recorded relative to `root`.
    pub(super) fn new(root: &Path) -> Recording {
        Recording {
            root: root.to_owned(),
            calls: Mutex::default(),
            fail_from: u64::MAX.into(),
            fail_until: u64::MAX.into(),
            fault: io::ErrorKind::Other,
            exchange_supported: true,
        }
    }

    /// The `nth` recorded call fails, and only that one.
    pub(super) fn fail_call(&self, nth: u64) {
        self.fail_from.store(nth, Ordering::Relaxed);
        self.fail_until.store(nth + 1, Ordering::Relaxed);
    }

    /// All calls from the `nth` on fail.
    pub(super) fn fail_from(&self, nth: u64) {
        self.fail_from.store(nth, Ordering::Relaxed);
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn record(&self, operation: &'static str, paths: &[&Path]) -> io::Result<()> {
        let mut call = operation.to_owned();
        for path in paths {
            let name = path.strip_prefix(&self.root).unwrap().to_str().unwrap();
            call.push(' ');
            call.push_str(if name.is_empty() { "." } else { name });
        }
        let mut calls = self.calls.lock().unwrap();
        let nth = calls.len() as u64;
        calls.push(call);
        let from = self.fail_from.load(Ordering::Relaxed);
        if (from..self.fail_until.load(Ordering::Relaxed)).contains(&nth) {
            let error = io::Error::new(self.fault, "injected");
            return Err(PathError::wrap(operation, paths[0], error));
        }
        Ok(())
    }

    fn remove(
        &self,
        operation: &'static str,
        path: &Path,
        remove: impl Fn(&Local) -> io::Result<()>,
    ) -> io::Result<()> {
        let answer = self.record(operation, &[path]);
        if answer.is_ok() || self.fault == io::ErrorKind::NotFound {
            remove(&Local::new())?;
        }
        answer
    }
}

impl Storage for Recording {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.record("mkdir", &[path])?;
        Local::new().create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        Local::new().list(dir)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        Local::new().kind(path)
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Box<dyn NewFile>> {
        self.record("create", &[path])?;
        Local::new().create(path, size)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoredFile>> {
        Local::new().open(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.record("link", &[from, to])?;
        Local::new().hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.record("rename", &[from, to])?;
        Local::new().rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.record("exchange", &[one, other])?;
        if !self.exchange_supported {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Local::new().exchange(one, other)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.record("sync", &[dir])?;
        Local::new().sync_dir(dir)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.remove("remove", path, |disk| disk.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.remove("rmdir", path, |disk| disk.remove_dir(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        Local::new().lock(path)
    }
}
