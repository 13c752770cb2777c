//! The real file system, seen call by call: each is recorded, and may be held up or fail.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pitstop::storage::Entry;
use pitstop::storage::EntryKind;
use pitstop::{Local, Lock, LockError, NewFile, PathError, Storage, StoredFile};

/// One call that changes something, makes it durable, or looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) operation: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) target: Option<PathBuf>,
}

impl Call {
    pub(crate) fn is(&self, operation: &str, path: &Path) -> bool {
        self.operation == operation && self.path == path
    }
}

/// Runs before each call, with its number; its error is the call's.
type Before = dyn Fn(usize, &Call) -> io::Result<()> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Watched {
    disk: Local,
    watch: Arc<Watch>,
}

struct Watch {
    calls: Mutex<Vec<Call>>,
    before: Box<Before>,
}

impl Watched {
    pub(crate) fn new(
        before: impl Fn(usize, &Call) -> io::Result<()> + Send + Sync + 'static,
    ) -> Watched {
        Watched {
            // The order of the syncs is what is looked at; that they reach the disk would take long.
            disk: Local::new().fsync(false),
            watch: Arc::new(Watch {
                calls: Mutex::default(),
                before: Box::new(before),
            }),
        }
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.watch.calls.lock().unwrap().clone()
    }

    fn watched(&self, file: Box<dyn NewFile>, path: &Path) -> Box<dyn NewFile> {
        Box::new(WatchedFile {
            file,
            path: path.to_owned(),
            watch: Arc::clone(&self.watch),
        })
    }
}

impl Watch {
    fn see(&self, operation: &'static str, path: &Path, target: Option<&Path>) -> io::Result<()> {
        let call = Call {
            operation,
            path: path.to_owned(),
            target: target.map(Path::to_owned),
        };
        let number = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(call.clone());
            calls.len() - 1
        };
        (self.before)(number, &call).map_err(|error| PathError::wrap(operation, path, error))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Watched")
    }
}

impl Storage for Watched {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.watch.see("create directory", path, None)?;
        self.disk.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.watch.see("list", dir, None)?;
        self.disk.list(dir)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        self.watch.see("look at", path, None)?;
        self.disk.kind(path)
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Box<dyn NewFile>> {
        self.watch.see("create", path, None)?;
        Ok(self.watched(self.disk.create(path, size)?, path))
    }

    fn recycles(&self, dir: &Path) -> bool {
        self.disk.recycles(dir)
    }

    fn recycle(&self, from: &Path, to: &Path, size: u64) -> io::Result<Option<Box<dyn NewFile>>> {
        self.watch.see("recycle", from, Some(to))?;
        let file = self.disk.recycle(from, to, size)?;
        Ok(file.map(|file| self.watched(file, to)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoredFile>> {
        self.watch.see("open", path, None)?;
        self.disk.open(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch.see("link", from, Some(to))?;
        self.disk.hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch.see("rename", from, Some(to))?;
        self.disk.rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.watch.see("exchange", one, Some(other))?;
        self.disk.exchange(one, other)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.watch.see("sync directory", dir, None)?;
        self.disk.sync_dir(dir)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.watch.see("remove", path, None)?;
        self.disk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.watch.see("remove directory", path, None)?;
        self.disk.remove_dir(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.disk.lock(path)
    }
}

struct WatchedFile {
    file: Box<dyn NewFile>,
    path: PathBuf,
    watch: Arc<Watch>,
}

impl NewFile for WatchedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.watch.see("write", &self.path, None)?;
        self.file.write_at(offset, bytes)
    }

    fn alignment(&self) -> usize {
        self.file.alignment()
    }

    fn sync(&self) -> io::Result<()> {
        self.watch.see("sync", &self.path, None)?;
        self.file.sync()
    }
}
