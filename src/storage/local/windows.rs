use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::direct::Alignment;

/// Opens a symbolic link itself, which is then refused for not being a regular file.
const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;

pub(super) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

pub(super) fn open_no_follow(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
        .open(path)
}

pub(super) fn open_direct(_path: &Path) -> Option<(File, Alignment)> {
    None
}

pub(super) fn refuses_direct(_error: &io::Error) -> bool {
    false
}

pub(super) fn not_a_file(is_dir: bool) -> io::Error {
    if is_dir {
        return io::ErrorKind::IsADirectory.into();
    }
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// One write, which may be cut short.
pub(super) fn write_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<usize> {
    file.seek_write(bytes, offset)
}

pub(super) fn write_all_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_write(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn read_exact_at(file: &File, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match file.seek_read(into, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                into = &mut into[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Setting the length reserves the room: files are not sparse unless asked to be.
pub(super) fn preallocate(file: &File, size: u64) -> io::Result<()> {
    file.set_len(size)
}

pub(super) fn sync_data(file: &File) -> io::Result<()> {
    file.sync_data()
}

/// Nothing to do: NTFS writes names through its journal, and gives directories no handle to flush.
#[expect(
    clippy::unnecessary_wraps,
    reason = "the same signature on every system"
)]
pub(super) fn sync_dir(_dir: &Path) -> io::Result<()> {
    Ok(())
}

/// Renames without replacing anything but an empty directory; the check is safe under the lock of the writer.
#[expect(
    clippy::disallowed_methods,
    reason = "this is what Storage::rename is made of"
)]
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if let Ok(metadata) = fs::symlink_metadata(to) {
        let both = metadata.is_dir() && fs::symlink_metadata(from)?.is_dir();
        if !both || fs::read_dir(to)?.next().is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::remove_dir(to)?;
    }
    fs::rename(from, to)
}

pub(super) fn exchange(_one: &Path, _other: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
