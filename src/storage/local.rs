//! The real file system.

mod direct;
mod file;
#[cfg(target_os = "linux")]
mod lease;
mod lock;
#[cfg(target_os = "linux")]
mod recycle;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use super::{Entry, EntryKind, Lock, LockError, NewFile, PathError, Storage, StoredFile};
#[cfg(unix)]
use super::{FileId, FileVersion};

/// The file system of the machine. Modes of what it creates respect the umask.
///
/// Large files are written past the page cache (`O_DIRECT`) where the file system takes that; see
/// [`direct_io`](Local::direct_io).
///
/// # Example
///
/// ```
/// use pitstop::storage::{Local, Storage};
///
/// let (dir, disk) = (tempfile::tempdir()?, Local::new());
/// let file = disk.create(&dir.path().join("a"), 5)?;
/// file.write_at(0, b"hello")?;
/// file.sync()?; // the bytes are durable
/// disk.sync_dir(dir.path())?; // and so is the name
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Local {
    fsync: bool,
    direct_io: bool,
}

impl Local {
    /// The file system, with syncs and direct I/O.
    pub fn new() -> Local {
        Local {
            fsync: true,
            direct_io: *DIRECT_IO,
        }
    }

    /// With `false`, [`NewFile::sync`], [`StoredFile::sync`] and [`Storage::sync_dir`] do nothing: what is written survives the
    /// death of the process, but not a power cut.
    #[must_use]
    pub fn fsync(self, fsync: bool) -> Local {
        Local { fsync, ..self }
    }

    /// With `false`, everything goes through the page cache: for file systems that take `O_DIRECT` and are
    /// slow with it. So does the environment variable `PITSTOP_DIRECT_IO=0`, for the whole process.
    #[must_use]
    pub fn direct_io(self, direct_io: bool) -> Local {
        Local {
            direct_io: direct_io && *DIRECT_IO,
            ..self
        }
    }
}

/// Whether the environment allows direct I/O. Read once: worker threads must not read the environment while
/// others may be changing it.
static DIRECT_IO: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("PITSTOP_DIRECT_IO").is_none_or(|value| value != "0"));

impl Default for Local {
    fn default() -> Local {
        Local::new()
    }
}

impl Storage for Local {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path).map_err(|e| PathError::wrap("create directory", path, e))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        list(dir).map_err(|e| PathError::wrap("list", dir, e))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(kind_of(metadata.file_type()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(PathError::wrap("look at", path, e)),
        }
    }

    #[cfg(unix)]
    fn identity(&self, path: &Path) -> io::Result<Option<FileId>> {
        use std::os::unix::fs::MetadataExt;
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(FileId(metadata.dev(), metadata.ino()))),
            Err(e) => Err(PathError::wrap("look at", path, e)),
        }
    }

    #[cfg(unix)]
    fn version(&self, path: &Path) -> io::Result<Option<FileVersion>> {
        let version = version_of(path).map_err(|e| PathError::wrap("look at", path, e))?;
        Ok(Some(version))
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Box<dyn NewFile>> {
        Ok(Box::new(file::Written::create(path, size, self)?))
    }

    #[cfg(target_os = "linux")]
    fn recycles(&self, dir: &Path) -> bool {
        recycle::is_offered(dir)
    }

    #[cfg(target_os = "linux")]
    fn recycle(&self, from: &Path, to: &Path, size: u64) -> io::Result<Option<Box<dyn NewFile>>> {
        let file = recycle::recycle(from, to, size)?;
        Ok(file.map(|file| Box::new(file::Written::new(file, to, size, self)) as _))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoredFile>> {
        Ok(Arc::new(file::Read::open(path, self)?))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to).map_err(|e| PathError::wrap_pair("link", from, to, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        system::rename(from, to).map_err(|e| PathError::wrap_pair("rename", from, to, e))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        system::exchange(one, other).map_err(|e| PathError::wrap_pair("exchange", one, other, e))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        if !self.fsync {
            return Ok(());
        }
        system::sync_dir(dir).map_err(|e| PathError::wrap("sync", dir, e))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path).map_err(|e| PathError::wrap("remove", path, e))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path).map_err(|e| PathError::wrap("remove", path, e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        Ok(Box::new(lock::FileLock::take(path)?))
    }
}

fn list(dir: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = match entry.file_type() {
            Ok(kind) => kind_of(kind),
            // Removed since the directory was read.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let name = entry.file_name();
        entries.push(Entry { name, kind });
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

#[cfg(unix)]
fn version_of(path: &Path) -> io::Result<FileVersion> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::symlink_metadata(path)?;
    Ok(FileVersion {
        file: FileId(metadata.dev(), metadata.ino()),
        len: metadata.len(),
        modified: metadata.modified()?,
    })
}

fn kind_of(kind: fs::FileType) -> EntryKind {
    if kind.is_dir() {
        EntryKind::Dir
    } else if kind.is_file() {
        EntryKind::File
    } else {
        EntryKind::Other
    }
}
