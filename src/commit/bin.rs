use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::staging::remove_tree;
use crate::storage::{EntryKind, NewFile, Storage};

/// Smaller files are written as fast as they are recycled.
const WORTH_KEEPING: u64 = 1 << 20;

/// What a retired checkpoint leaves for the next save: its large files, whose blocks new ones are written over.
///
/// It holds one checkpoint at most, under a hidden name. A save says what it needs ([`sort`](Bin::sort)),
/// which removes the rest before anything is written; so no more room is taken than by a save that begins
/// with the retired checkpoint removed only at its end. What a crash leaves, the next sweep removes.
#[derive(Debug, Default)]
pub(crate) struct Bin(Mutex<Contents>);

#[derive(Debug, Default)]
struct Contents {
    /// The hidden directory; `None` if the bin is empty.
    dir: Option<PathBuf>,
    files: Vec<Old>,
    /// Who put it there. A forked child has no say in it.
    owner: u32,
}

#[derive(Debug, PartialEq, Eq)]
struct Old {
    size: u64,
    path: PathBuf,
}

impl Bin {
    /// Puts in what lies in the hidden directory `dir`, in place of what there was. What cannot be used is
    /// removed now.
    ///
    /// # Errors
    ///
    /// If something cannot be removed. It is tried again when the bin is emptied.
    pub(crate) fn put(&self, storage: &dyn Storage, dir: &Path) -> io::Result<()> {
        let mut contents = self.lock();
        contents.empty(storage);
        if !storage.recycles(dir) {
            return remove_tree(storage, dir);
        }
        (contents.dir, contents.owner) = (Some(dir.to_owned()), process::id());
        let mut removed = Ok(());
        for entry in storage.list(dir)? {
            let path = dir.join(entry.name);
            // What cannot be opened is of no use, and somebody else may be removing it.
            let size = match entry.kind {
                EntryKind::File => storage.open(&path).map_or(0, |file| file.len()),
                EntryKind::Dir | EntryKind::Other => 0,
            };
            if size >= WORTH_KEEPING {
                contents.files.push(Old { size, path });
            } else {
                removed = removed.and(remove_tree(storage, &path));
            }
        }
        if contents.files.is_empty() {
            contents.empty(storage);
        }
        removed
    }

    /// Keeps what fits files of these sizes best, one for each, and removes the rest.
    pub(crate) fn sort(&self, storage: &dyn Storage, sizes: impl IntoIterator<Item = u64>) {
        let mut contents = self.lock();
        let mut sizes: Vec<u64> = sizes.into_iter().collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let kept: Vec<Old> = sizes
            .iter()
            .filter_map(|&size| contents.take(size))
            .collect();
        for old in std::mem::replace(&mut contents.files, kept) {
            remove_or_warn(storage, &old.path);
        }
        if contents.files.is_empty() {
            contents.empty(storage);
        }
    }

    /// Creates the file `path`, out of an old one if there is one. As with [`Storage::recycle`], every byte of
    /// it is to be written. A full disk is no reason to fail while there is something in the bin.
    ///
    /// # Errors
    ///
    /// As those of [`Storage::create`] and [`Storage::recycle`].
    pub(crate) fn create(
        &self,
        storage: &dyn Storage,
        path: &Path,
        size: u64,
    ) -> io::Result<Box<dyn NewFile>> {
        let mut contents = self.lock();
        if let Some(old) = contents.take(size)
            && let Some(file) = storage.recycle(&old.path, path, size)?
        {
            return Ok(file);
        }
        match storage.create(path, size) {
            Err(error) if is_full(&error) && contents.empty(storage) => storage.create(path, size),
            result => result,
        }
    }

    /// Removes what is left.
    pub(crate) fn empty(&self, storage: &dyn Storage) {
        self.lock().empty(storage);
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    /// The smallest that is no smaller, else the largest.
    fn take(&mut self, size: u64) -> Option<Old> {
        if size < WORTH_KEEPING {
            return None;
        }
        let fit = |(_, old): &(usize, &Old)| (old.size < size, old.size.abs_diff(size));
        let (index, _) = self.files.iter().enumerate().min_by_key(fit)?;
        Some(self.files.swap_remove(index))
    }

    /// Says whether there was anything.
    fn empty(&mut self, storage: &dyn Storage) -> bool {
        self.files.clear();
        let Some(dir) = self.dir.take().filter(|_| self.owner == process::id()) else {
            return false;
        };
        remove_or_warn(storage, &dir);
        true
    }
}

fn is_full(error: &io::Error) -> bool {
    [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind())
}

fn remove_or_warn(storage: &dyn Storage, path: &Path) {
    if let Err(error) = remove_tree(storage, path) {
        log::warn!(
            "{} is left behind until the directory is opened again: {error}",
            path.display()
        );
    }
}
