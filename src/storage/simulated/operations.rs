use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process;
use std::sync::Arc;

use super::super::{Entry, EntryKind, Lock, LockError, NewFile, Storage, StoredFile};
use super::file::{HeldLock, OpenFile};
use super::image::{Change, Node};
use super::state::State;
use super::{Call, Disk, system_error};

impl Disk {
    /// A call that does nothing when it fails.
    fn plain<T>(
        &self,
        operation: &'static str,
        path: &Path,
        target: Option<&Path>,
        perform: impl FnOnce(&mut State, &Arc<Call>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.step(operation, path, target, perform, |_, _, _| ())
    }

    fn new_file(&self, state: &mut State, inode: u64, path: &Path) -> Box<dyn NewFile> {
        Box::new(OpenFile::new(self, state, inode, path))
    }
}

impl Storage for Disk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.plain("create directory", path, None, |state, call| {
            if state.live.find(path).is_ok() {
                return Err(system_error(ErrorKind::AlreadyExists));
            }
            let place = state.live.place(path)?;
            let inode = state.add(Node::Dir(BTreeMap::new()));
            state.name(call, [(place, Some(inode))]);
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.plain("list", dir, None, |state, _| {
            let entries = state.live.entries(state.live.find(dir)?)?;
            let entry = |(name, &inode)| Entry {
                name: std::ffi::OsString::clone(name),
                kind: kind_of(state, inode),
            };
            Ok(entries.iter().map(entry).collect())
        })
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        self.plain("look at", path, None, |state, _| {
            match state.live.find(path) {
                Ok(inode) => Ok(Some(kind_of(state, inode))),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Box<dyn NewFile>> {
        self.plain("create", path, None, |state, call| {
            let place = state.live.place(path)?;
            state.must_be_free(&place)?;
            let inode = state.add(Node::File(Arc::default()));
            state.name(call, [(place, Some(inode))]);
            if size > 0 {
                state.change(call, Change::Length(inode, size as usize));
            }
            Ok(self.new_file(state, inode, path))
        })
    }

    fn recycles(&self, _dir: &Path) -> bool {
        self.state().recycles
    }

    fn recycle(&self, from: &Path, to: &Path, size: u64) -> io::Result<Option<Box<dyn NewFile>>> {
        self.plain("recycle", from, Some(to), |state, call| {
            let (Ok(old), Ok(new)) = (state.live.place(from), state.live.place(to)) else {
                return Ok(None);
            };
            let Ok(inode) = state.live.find(from) else {
                return Ok(None);
            };
            let Ok(len) = state.live.bytes(inode).map(|bytes| bytes.len()) else {
                return Ok(None);
            };
            if state.must_be_free(&new).is_err() {
                return Ok(None);
            }
            if state.live.links(inode) > 1 || state.is_used(inode) {
                state.name(call, [(old, None)]);
                return Ok(None);
            }
            state.name(call, [(old, None), (new, Some(inode))]);
            if len != size as usize {
                state.change(call, Change::Length(inode, size as usize));
            }
            Ok(Some(self.new_file(state, inode, to)))
        })
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoredFile>> {
        self.plain("open", path, None, |state, _| {
            let inode = state.live.find(path)?;
            state.live.bytes(inode)?;
            let file: Arc<dyn StoredFile> = Arc::new(OpenFile::new(self, state, inode, path));
            Ok(file)
        })
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plain("link", from, Some(to), |state, call| {
            let inode = state.live.find(from)?;
            state.live.bytes(inode)?;
            let place = state.live.place(to)?;
            state.must_be_free(&place)?;
            state.name(call, [(place, Some(inode))]);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plain("rename", from, Some(to), |state, call| {
            let inode = state.live.find(from)?;
            let (old, new) = (state.live.place(from)?, state.live.place(to)?);
            if let Ok(there) = state.live.find(to) {
                let gives_way = |inode| state.live.entries(inode).is_ok_and(BTreeMap::is_empty);
                if state.live.entries(inode).is_err() || !gives_way(there) {
                    return Err(system_error(ErrorKind::AlreadyExists));
                }
            }
            state.name(call, [(old, None), (new, Some(inode))]);
            Ok(())
        })
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.plain("exchange", one, Some(other), |state, call| {
            let inodes = (state.live.find(one)?, state.live.find(other)?);
            if !state.exchanges {
                return Err(system_error(ErrorKind::Unsupported));
            }
            let (first, second) = (state.live.place(one)?, state.live.place(other)?);
            state.name(call, [(first, Some(inodes.1)), (second, Some(inodes.0))]);
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let perform = |state: &mut State, _: &Arc<Call>| {
            let inode = state.live.find(dir)?;
            state.live.entries(inode)?;
            state.sync_dir(inode);
            Ok(())
        };
        let failing = |state: &mut State, _: &Arc<Call>, _| state.fail_sync_dir(dir);
        self.step("sync directory", dir, None, perform, failing)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.plain("remove", path, None, |state, call| {
            state.live.bytes(state.live.find(path)?)?;
            let place = state.live.place(path)?;
            state.name(call, [(place, None)]);
            Ok(())
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.plain("remove directory", path, None, |state, call| {
            if !state.live.entries(state.live.find(path)?)?.is_empty() {
                return Err(system_error(ErrorKind::DirectoryNotEmpty));
            }
            let place = state.live.place(path)?;
            state.name(call, [(place, None)]);
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        let taken = self.plain("lock", path, None, |state, call| {
            let found = state.live.find(path);
            let inode = if let Ok(inode) = found {
                state.live.bytes(inode)?;
                inode
            } else {
                let place = state.live.place(path)?;
                let inode = state.add(Node::File(Arc::default()));
                state.name(call, [(place, Some(inode))]);
                inode
            };
            if !state.locked.insert(inode) {
                return Ok(None);
            }
            let line = format!("{}\n", process::id()).into_bytes();
            state.change(call, Change::Length(inode, line.len()));
            state.change(call, Change::Bytes(inode, 0, line.into()));
            let disk = self.clone();
            Ok(Some(Box::new(HeldLock { disk, inode })))
        })?;
        match taken {
            Some(lock) => Ok(lock),
            None => Err(LockError::Held {
                pid: Some(process::id()),
                path: path.to_owned(),
            }),
        }
    }
}

fn kind_of(state: &State, inode: u64) -> EntryKind {
    match state.live.node(inode) {
        Some(Node::Dir(_)) => EntryKind::Dir,
        _ => EntryKind::File,
    }
}
