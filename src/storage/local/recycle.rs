//! Giving the blocks of an old file to a new one.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FsWord, OFlags, StatFs, flistxattr, fstatfs, statfs};

use super::super::{PathError, parent_of};
use super::{lease, system};

/// File systems that write over the blocks of a file in place, and whose leases know of everybody: ext2 to 4,
/// XFS.
///
/// Left out are those that write elsewhere anyway (btrfs, F2FS, ZFS), those where other machines may have a
/// file open (NFS, Lustre, …), and overlayfs, where a mapping is one of another file than the one opened.
const IN_PLACE: [FsWord; 2] = [0xef53, 0x5846_5342];

/// Whether it is worth a try in this directory.
pub(super) fn is_offered(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|system| writes_in_place(&system))
}

fn writes_in_place(system: &StatFs) -> bool {
    IN_PLACE.contains(&system.f_type)
}

/// The file `from`, moved to `to`, open for writing and `size` bytes long; `None` if it cannot be used, and is
/// gone then.
pub(super) fn recycle(from: &Path, to: &Path, size: u64) -> io::Result<Option<File>> {
    // First of all: under the name it had, nobody can open it any more, so what is found out next stays true.
    if let Err(error) = system::rename(from, to) {
        log::debug!("{} cannot be moved: {error}", from.display());
        return Ok(None);
    }
    match prepare(to, size) {
        Ok(file) => Ok(Some(file)),
        Err(error) => {
            log::debug!("{} is not written over: {error}", from.display());
            fs::remove_file(to).map_err(|e| PathError::wrap("remove", to, e))?;
            Ok(None)
        }
    }
}

fn prepare(path: &Path, size: u64) -> io::Result<File> {
    // NONBLOCK: a pipe is refused, and so is a file on which somebody holds a lease.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
        .and_then(system::beyond_standard_streams)?;
    let metadata = file.metadata()?;
    let refusal = if !metadata.is_file() {
        Some("it is not a regular file")
    } else if metadata.nlink() != 1 {
        Some("it has another hard link")
    } else if !is_like_new(&metadata, &fs::metadata(parent_of(path))?) {
        Some("a new file would have another owner or mode")
    } else if has_attributes(&file)? {
        Some("it has extended attributes")
    } else if !writes_in_place(&fstatfs(&file)?) {
        Some("the file system does not write in place")
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return Err(io::Error::other(refusal));
    }
    lease::is_ours_alone(&file)?;
    if metadata.len() > size {
        file.set_len(size)?;
    }
    system::preallocate(&file, size)?;
    Ok(file)
}

/// Whether a file made now would look the same. The directory it lies in was made just now, by the same rules.
fn is_like_new(file: &Metadata, dir: &Metadata) -> bool {
    let mode = |metadata: &Metadata| metadata.mode() & 0o7777;
    mode(file) == mode(dir) & 0o666 && (file.uid(), file.gid()) == (dir.uid(), dir.gid())
}

/// Whether somebody has attached something: an access list, a capability, a note. A label of `SELinux` is the
/// same on all files of a directory.
fn has_attributes(file: &File) -> io::Result<bool> {
    let mut names = [0; 256];
    let length = match flistxattr(file, &mut names[..]) {
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(false),
        result => result?,
    };
    let mut names = names[..length].split(|&byte| byte == 0);
    Ok(names.any(|name| !name.is_empty() && name != b"security.selinux"))
}
