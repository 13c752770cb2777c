//! Checkpoints in memory, to read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pitstop::storage::{Entry, EntryKind, Lock, LockError, NewFile, Storage, StoredFile};

/// Files in memory; nothing can be written.
#[derive(Debug, Default)]
pub(crate) struct Shelf(BTreeMap<PathBuf, Arc<Vec<u8>>>);

impl Shelf {
    pub(crate) fn put(&mut self, path: impl Into<PathBuf>, bytes: Vec<u8>) {
        self.0.insert(path.into(), Arc::new(bytes));
    }
}

struct Open(Arc<Vec<u8>>);

impl StoredFile for Open {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(into.len())?));
        let bytes = end
            .and_then(|range| self.0.get(range))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Storage for Shelf {
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut names = BTreeMap::new();
        for path in self.0.keys() {
            let Ok(rest) = path.strip_prefix(dir) else {
                continue;
            };
            let mut parts = rest.components();
            if let Some(first) = parts.next() {
                let kind = match parts.next() {
                    Some(_) => EntryKind::Dir,
                    None => EntryKind::File,
                };
                names.insert(first.as_os_str().to_owned(), kind);
            }
        }
        let entry = |(name, kind)| Entry { name, kind };
        Ok(names.into_iter().map(entry).collect())
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        if self.0.contains_key(path) {
            return Ok(Some(EntryKind::File));
        }
        let is_dir = self.0.keys().any(|file| file.starts_with(path));
        Ok(is_dir.then_some(EntryKind::Dir))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoredFile>> {
        match self.0.get(path) {
            Some(bytes) => Ok(Arc::new(Open(Arc::clone(bytes)))),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn create(&self, _: &Path, _: u64) -> io::Result<Box<dyn NewFile>> {
        read_only()
    }

    fn hard_link(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn exchange(&self, _: &Path, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_dir(&self, _: &Path) -> io::Result<()> {
        read_only()
    }

    fn lock(&self, _: &Path) -> Result<Box<dyn Lock>, LockError> {
        read_only().map_err(LockError::Io)
    }
}
