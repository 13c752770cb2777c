use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::super::{NewFile, PathError, StoredFile};
use super::direct::Direct;
use super::{Local, system};

/// From this size on, what direct writes save is more than a second descriptor costs.
const DIRECT_FROM: u64 = 1 << 20;

/// A file being written.
pub(super) struct Written {
    file: File,
    /// The same file, past the page cache.
    direct: Option<Direct>,
    path: PathBuf,
    fsync: bool,
}

impl Written {
    pub(super) fn create(path: &Path, size: u64, options: &Local) -> io::Result<Written> {
        let wrap = |e| PathError::wrap("create", path, e);
        let file = system::create_new(path).map_err(wrap)?;
        if let Err(error) = system::preallocate(&file, size) {
            // A full disk must not be left fuller, and the name is free for another try.
            let _ = fs::remove_file(path);
            return Err(PathError::wrap("reserve room for", path, error));
        }
        Ok(Written::new(file, path, size, options))
    }

    /// `file` is open for writing, has its size, and lies at `path`.
    pub(super) fn new(file: File, path: &Path, size: u64, options: &Local) -> Written {
        let direct = options.direct_io && size >= DIRECT_FROM;
        Written {
            file,
            direct: direct.then(|| Direct::open(path)).flatten(),
            path: path.to_owned(),
            fsync: options.fsync,
        }
    }
}

impl NewFile for Written {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let written = match &self.direct {
            Some(direct) => direct.write_at(offset, bytes),
            None => Ok(0),
        };
        written
            .and_then(|n| system::write_all_at(&self.file, offset + n as u64, &bytes[n..]))
            .map_err(|e| PathError::wrap("write", &self.path, e))
    }

    fn alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, Direct::alignment)
    }

    fn sync(&self) -> io::Result<()> {
        if !self.fsync {
            return Ok(());
        }
        system::sync_data(&self.file).map_err(|e| PathError::wrap("sync", &self.path, e))
    }
}

/// A file open for reading.
pub(super) struct Read {
    file: File,
    path: PathBuf,
    len: u64,
    fsync: bool,
}

impl Read {
    pub(super) fn open(path: &Path, options: &Local) -> io::Result<Read> {
        let opened = system::open_no_follow(path).and_then(|file| {
            let metadata = file.metadata()?;
            if metadata.is_file() {
                return Ok((file, metadata.len()));
            }
            Err(system::not_a_file(metadata.is_dir()))
        });
        let (file, len) = opened.map_err(|e| PathError::wrap("open", path, e))?;
        Ok(Read {
            file,
            path: path.to_owned(),
            len,
            fsync: options.fsync,
        })
    }
}

impl StoredFile for Read {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        system::read_exact_at(&self.file, offset, into)
            .map_err(|e| PathError::wrap("read", &self.path, e))
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn sync(&self) -> io::Result<()> {
        if !self.fsync {
            return Ok(());
        }
        system::sync_data(&self.file).map_err(|e| PathError::wrap("sync", &self.path, e))
    }
}
