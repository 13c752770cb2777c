//! The one seam to the disk: a few primitive operations, and the real file system behind them.
//!
//! Everything that pitstop does to a disk is a call of [`Storage`], [`NewFile`] or [`StoredFile`]. Each call
//! is one step that can fail or be the last one before a power cut, so that a simulated disk behind the
//! same trait can try them all.

mod error;
mod fill;
mod local;
mod lock;
#[cfg(feature = "test-util")]
pub mod simulated;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

pub use error::{PathError, errno_of};
pub use fill::{Content, Fill, Segment, Timing, fill};
pub use local::Local;
pub use lock::{Lock, LockError};

/// A file system. All calls block, and may come from several threads at once.
///
/// Unless a method says otherwise, what it did survives a crash of the process but not a power cut:
/// bytes are durable after [`NewFile::sync`], names after [`Storage::sync_dir`] of their directory.
///
/// # Errors
///
/// Each [`io::Error`] carries a [`PathError`]: operation, path, and the number of the system.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Creates an empty directory; `AlreadyExists` if there is anything at `path`.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory and its missing parents. One that exists is fine. On return all names that lead there
    /// are durable, as far as they lie in the path.
    ///
    /// # Errors
    ///
    /// Whatever the system reports, with the path of the directory that could not be made or synced.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let made = make_missing(self, path)?;
        sync_names(self, path, made).inspect_err(|_| {
            // The next try makes them anew: of these it cannot be found out any more whether they are durable.
            for dir in path.ancestors().take(made) {
                let _ = self.remove_dir(dir);
            }
        })
    }

    /// What lies in a directory, in the order of the names. `dir` itself may be a symbolic link to one.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;

    /// What lies at `path`, without following a symbolic link there; `None` if nothing does.
    ///
    /// # Errors
    ///
    /// Whatever the system reports, other than that there is nothing.
    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>>;

    /// What the file at `path` is, whatever its name: two hard links are the same. `None` where nobody can tell.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        let _ = path;
        Ok(None)
    }

    /// The file at `path` as it is now: the same again only if nobody has put another one there or written to it
    /// since. Giving it another name is no change. `None` where nobody can tell.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn version(&self, path: &Path) -> io::Result<Option<FileVersion>> {
        let _ = path;
        Ok(None)
    }

    /// Creates a file of `size` bytes, all of them zero, and reserves their room on disk where the file
    /// system can. `AlreadyExists` if there is anything at `path`. On error no file is left.
    ///
    /// # Errors
    ///
    /// Whatever the system reports; a full disk shows here, not halfway through the writes.
    fn create(&self, path: &Path, size: u64) -> io::Result<Box<dyn NewFile>>;

    /// Whether files that lie in `dir` may be given to [`recycle`](Self::recycle) with some hope.
    fn recycles(&self, dir: &Path) -> bool {
        let _ = dir;
        false
    }

    /// Makes the file `from`, whose content nobody needs any more, the new file `to` of `size` bytes, with the
    /// blocks it has on disk: writing over those is faster than allocating others. Every byte is to be written;
    /// until then they are any. As after [`create`](Self::create), nobody can tell what the file was before.
    ///
    /// `None` if that cannot be: above all if `from` has another hard link, or anyone has it open or mapped, in
    /// this process or another. Then nothing lies at `to`, and `from` may be gone. Both names must be hidden
    /// ones, which nobody else opens.
    ///
    /// # Errors
    ///
    /// If there is something at `to` that cannot be removed.
    fn recycle(&self, from: &Path, to: &Path, size: u64) -> io::Result<Option<Box<dyn NewFile>>> {
        let _ = (from, to, size);
        Ok(None)
    }

    /// Opens a regular file for reading; it stays readable after it is renamed or removed.
    ///
    /// # Errors
    ///
    /// Whatever the system reports; also if `path` is a symbolic link or anything else but a regular file.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoredFile>>;

    /// Gives the file `from` a second name. `AlreadyExists` if there is anything at `to`.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Renames, atomically. Replaces nothing but an empty directory by a directory; `AlreadyExists` if
    /// there is anything else at `to`.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Swaps what two names stand for, atomically. Both must exist.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the file system can't, with nothing changed; else whatever the system reports.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable: what was created, renamed and removed in it.
    ///
    /// # Errors
    ///
    /// Whatever the system reports. Then nothing is known of what is durable, and asking again tells nothing.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Removes a name of a file, or a symbolic link itself.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// Whatever the system reports.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Takes the lock whose file is `path`, without waiting. The file is made if need be, holds the number
    /// of the process, and is never removed.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] if anyone holds it, this process included; else whatever the system reports.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError>;
}

/// A file being written, from any number of threads.
pub trait NewFile: Send + Sync {
    /// Writes all of `bytes` from `offset` (bytes) on. Any order, each byte once, within the size given
    /// at creation.
    ///
    /// # Errors
    ///
    /// Whatever the system reports; then any part may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// What the address of the bytes should be a multiple of: others are written too, but may be copied on
    /// the way.
    fn alignment(&self) -> usize {
        1
    }

    /// Makes what was written durable. The name of the file is made so by [`Storage::sync_dir`].
    ///
    /// # Errors
    ///
    /// Whatever the system reports. Then the file is lost: asking again would answer for other bytes.
    fn sync(&self) -> io::Result<()>;
}

/// A file open for reading, from any number of threads.
pub trait StoredFile: Send + Sync {
    /// Its length in bytes when it was opened.
    fn len(&self) -> u64;

    /// It held no bytes when it was opened.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` from `offset` (bytes) on.
    ///
    /// # Errors
    ///
    /// Whatever the system reports; `UnexpectedEof` if there are not as many bytes.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// The file of the system, to be mapped; `None` if there is none.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Makes its bytes durable, whoever wrote them and however long ago.
    ///
    /// # Errors
    ///
    /// Whatever the system reports. Then nobody knows what is durable, and asking again tells nothing.
    fn sync(&self) -> io::Result<()>;
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name, without the directory.
    pub name: OsString,
    /// What it stands for.
    pub kind: EntryKind,
}

/// Tells a file from all others that are there at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64, pub u64);

/// Tells a file, as it is, from others and from what it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// Which file it is. When it is gone, another may get the same.
    pub file: FileId,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written to.
    pub modified: SystemTime,
}

/// What a name stands for. Symbolic links are not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link, a pipe, a device.
    Other,
}

/// The directory that holds `path`, in a form that can be opened.
pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        None => path,
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    }
}

/// Creates a directory and its missing parents, and returns how many it made.
fn make_missing<S: Storage + ?Sized>(storage: &S, path: &Path) -> io::Result<usize> {
    let made = storage.create_dir(path).map(|()| 1).or_else(|error| {
        let parent = parent_of(path);
        if error.kind() != io::ErrorKind::NotFound || parent == path || parent == Path::new(".") {
            return Err(error);
        }
        let above = make_missing(storage, parent)?;
        storage.create_dir(path).map(|()| above + 1)
    });
    let Err(error) = made else { return made };
    match storage.list(path) {
        Ok(_) => Ok(0),
        // "Not a directory" says more than "exists".
        Err(listing) if error.kind() == io::ErrorKind::AlreadyExists => Err(listing),
        Err(_) => Err(error),
    }
}

/// Makes the names durable that lead to a directory, of which the last `made` are new. Whoever made the others may
/// not have done so, or have died before.
fn sync_names<S: Storage + ?Sized>(storage: &S, path: &Path, made: usize) -> io::Result<()> {
    let dirs = path.ancestors().take_while(|dir| dir.parent().is_some());
    for (number, dir) in dirs.enumerate() {
        match storage.sync_dir(parent_of(dir)) {
            // A parent such as `/scratch` is often closed to its users.
            Err(error) if number >= made && error.kind() == io::ErrorKind::PermissionDenied => {}
            result => result?,
        }
    }
    Ok(())
}
