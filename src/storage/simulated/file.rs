use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{Lock, NewFile, StoredFile};
use super::image::{Change, Inode};
use super::state::State;
use super::{Call, Disk};

/// A file that somebody has open.
pub(super) struct OpenFile {
    disk: Disk,
    inode: Inode,
    path: PathBuf,
    /// In bytes, when it was opened.
    len: u64,
    /// Tells that it is open.
    _user: Arc<()>,
}

impl OpenFile {
    pub(super) fn new(disk: &Disk, state: &mut State, inode: Inode, path: &Path) -> OpenFile {
        OpenFile {
            disk: disk.clone(),
            inode,
            path: path.to_owned(),
            len: state
                .live
                .bytes(inode)
                .map_or(0, |bytes| bytes.len() as u64),
            _user: state.use_file(inode),
        }
    }

    fn write(
        &self,
        state: &mut State,
        call: &Arc<Call>,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "a write beyond the size that the file was created with",
            ));
        }
        let change = Change::Bytes(self.inode, offset as usize, bytes.into());
        state.change(call, change);
        Ok(())
    }

    fn make_durable(&self) -> io::Result<()> {
        let perform = |state: &mut State, _: &Arc<Call>| {
            state.sync_file(self.inode);
            Ok(())
        };
        let failing = |state: &mut State, _: &Arc<Call>, _| state.fail_sync_file(self.inode);
        self.disk.step("sync", &self.path, None, perform, failing)
    }
}

impl NewFile for OpenFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let perform = |state: &mut State, call: &Arc<Call>| self.write(state, call, offset, bytes);
        let short = |state: &mut State, call: &Arc<Call>, short: bool| {
            if short {
                // It fails in any case.
                let _ = self.write(state, call, offset, &bytes[..bytes.len() / 2]);
            }
        };
        self.disk.step("write", &self.path, None, perform, short)
    }

    fn sync(&self) -> io::Result<()> {
        self.make_durable()
    }
}

impl StoredFile for OpenFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let perform = |state: &mut State, _: &Arc<Call>| {
            let bytes = state.live.bytes(self.inode)?;
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            let to = from.saturating_add(into.len());
            let found = bytes.get(from..to).ok_or(ErrorKind::UnexpectedEof)?;
            into.copy_from_slice(found);
            Ok(())
        };
        self.disk
            .step("read", &self.path, None, perform, |_, _, _| ())
    }

    fn sync(&self) -> io::Result<()> {
        self.make_durable()
    }
}

/// A lock on a simulated disk: gone when it is dropped, and with the process.
#[derive(Debug)]
pub(super) struct HeldLock {
    pub(super) disk: Disk,
    pub(super) inode: Inode,
}

impl Lock for HeldLock {
    /// There are no children here.
    fn abandon_in_child(&self) {}

    fn guards(&self, path: &Path) -> bool {
        self.disk.state().live.find(path).ok() == Some(self.inode)
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.inode);
    }
}
