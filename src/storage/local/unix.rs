use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::direct::Alignment;

/// The same file under a number above those of the standard streams. Where these are closed, as in a daemon, it
/// gets one of theirs when it is opened, and what is printed goes into it.
pub(super) fn beyond_standard_streams(file: File) -> io::Result<File> {
    const FIRST: RawFd = 3;
    if file.as_raw_fd() >= FIRST {
        return Ok(file);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&file, FIRST)?.into())
}

pub(super) fn create_new(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    beyond_standard_streams(file).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

pub(super) fn open_no_follow(path: &Path) -> io::Result<File> {
    // NONBLOCK: a pipe in place of a file is refused, not waited for. Regular files take no notice of it.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .and_then(beyond_standard_streams)
}

/// Opens a file once more, for writing past the page cache; `None` where that is not to be had.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn open_direct(path: &Path) -> Option<(File, Alignment)> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let flags = OFlags::NOFOLLOW | OFlags::DIRECT;
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .and_then(beyond_standard_streams)
        .ok()?;
    let page = rustix::param::page_size().max(4096);
    let alignment = match statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(told) if told.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => Alignment {
            memory: told.stx_dio_mem_align as usize,
            offset: page.max(told.stx_dio_offset_align as usize),
        },
        // Older systems do not tell; a page has always been enough.
        _ => Alignment {
            memory: page,
            offset: page,
        },
    };
    // 0: not for this file.
    (alignment.memory > 0).then_some((file, alignment))
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn open_direct(_path: &Path) -> Option<(File, Alignment)> {
    None
}

/// The file system did not mean it when it let the file be opened for direct writes, or wants a larger
/// alignment than it said.
pub(super) fn refuses_direct(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|error| not_offered(error) || error == Errno::INVAL)
}

pub(super) fn not_a_file(is_dir: bool) -> io::Error {
    if is_dir {
        return Errno::ISDIR.into();
    }
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .and_then(beyond_standard_streams)
}

/// One write, which may be cut short.
pub(super) fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    file.write_at(bytes, offset)
}

// Both go on after a signal or a short transfer.
pub(super) fn write_all_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

pub(super) fn read_exact_at(file: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    file.read_exact_at(into, offset)
}

/// Reserves `size` bytes on disk where the file system can; gives the file that length in any case.
pub(super) fn preallocate(file: &File, size: u64) -> io::Result<()> {
    if size == 0 {
        return Ok(());
    }
    refuse_beyond_limit(size)?;
    match reserve(file, size) {
        Err(error) if not_offered(error) => file.set_len(size),
        result => Ok(result?),
    }
}

/// Trying it would bring `SIGXFSZ`, which ends every process that does not ignore it, as Python does.
fn refuse_beyond_limit(size: u64) -> io::Result<()> {
    use rustix::process::{Resource, getrlimit};
    match getrlimit(Resource::Fsize).current {
        Some(limit) if size > limit => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn reserve(file: &File, size: u64) -> rustix::io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    rustix::io::retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, size))
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn reserve(_file: &File, _size: u64) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

/// The system or the file system does not know the call or its flags.
fn not_offered(error: Errno) -> bool {
    // Not a match: some systems give OPNOTSUPP and NOTSUP one number.
    [Errno::OPNOTSUPP, Errno::NOTSUP, Errno::NOSYS].contains(&error)
}

#[cfg(not(target_vendor = "apple"))]
pub(super) fn sync_data(file: &File) -> io::Result<()> {
    file.sync_data()
}

/// On macOS only `F_FULLFSYNC` gets past the cache of the drive; network volumes offer no more than `fsync`.
#[cfg(target_vendor = "apple")]
pub(super) fn sync_data(file: &File) -> io::Result<()> {
    use rustix::fs::{fcntl_fullfsync, fsync};
    match rustix::io::retry_on_intr(|| fcntl_fullfsync(file)) {
        Err(error) if not_offered(error) || error == Errno::INVAL => {
            Ok(rustix::io::retry_on_intr(|| fsync(file))?)
        }
        result => Ok(result?),
    }
}

pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    let flags = OFlags::DIRECTORY.bits() as i32;
    let dir = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(dir)
        .and_then(beyond_standard_streams)?;
    match rustix::io::retry_on_intr(|| rustix::fs::fsync(&dir)) {
        // The file system has no such thing as syncing a directory (CIFS, some FUSE): names are its own affair.
        Err(error) if not_offered(error) || error == Errno::INVAL => Ok(()),
        result => Ok(result?),
    }
}

/// Renames without replacing anything but an empty directory.
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match rename_no_replace(from, to) {
        Err(Errno::EXIST) => rename_carefully(from, to),
        Err(error) if not_offered(error) || error == Errno::INVAL => rename_carefully(from, to),
        result => Ok(result?),
    }
}

/// The same with plain `rename`, which replaces a file by a file: that case is ruled out beforehand.
#[expect(
    clippy::disallowed_methods,
    reason = "this is what Storage::rename is made of"
)]
fn rename_carefully(from: &Path, to: &Path) -> io::Result<()> {
    let in_the_way = || fs::symlink_metadata(to).is_ok();
    if !fs::symlink_metadata(from)?.is_dir() && in_the_way() {
        return Err(Errno::EXIST.into());
    }
    fs::rename(from, to).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory if in_the_way() => {
            Errno::EXIST.into()
        }
        _ => error,
    })
}

/// Swaps two names; `Unsupported` where it can't be done in one step.
pub(super) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    match swap(one, other) {
        // `INVAL`, as some file systems say, would read as a wrong argument.
        Err(error) if not_offered(error) || error == Errno::INVAL => Err(Errno::NOSYS.into()),
        result => Ok(result?),
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
mod flagged {
    use std::path::Path;

    use rustix::fs::{CWD, RenameFlags};
    use rustix::io::Result;

    pub(super) fn rename_no_replace(from: &Path, to: &Path) -> Result<()> {
        with(from, to, RenameFlags::NOREPLACE)
    }

    pub(super) fn swap(one: &Path, other: &Path) -> Result<()> {
        with(one, other, RenameFlags::EXCHANGE)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "this is what Storage::rename and Storage::exchange are made of"
    )]
    fn with(from: &Path, to: &Path, flags: RenameFlags) -> Result<()> {
        rustix::io::retry_on_intr(|| rustix::fs::renameat_with(CWD, from, CWD, to, flags))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod flagged {
    use std::path::Path;

    use rustix::io::{Errno, Result};

    pub(super) fn rename_no_replace(_: &Path, _: &Path) -> Result<()> {
        Err(Errno::NOSYS)
    }

    pub(super) fn swap(_: &Path, _: &Path) -> Result<()> {
        Err(Errno::NOSYS)
    }
}

use flagged::{rename_no_replace, swap};
