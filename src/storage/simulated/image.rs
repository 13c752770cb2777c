use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};
use std::sync::Arc;

use super::system_error;

/// A disk writes a sector whole or not at all; so many bytes has the smallest one there is.
const SECTOR: usize = 512;

/// The number of a file or directory, whatever its names are.
pub(super) type Inode = u64;

/// The directory that all others lie in.
pub(super) const ROOT: Inode = 0;

/// What an inode holds.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Dir(BTreeMap<OsString, Inode>),
    /// Shared by copies of an image until one of them changes it.
    File(Arc<Vec<u8>>),
}

/// One thing that is done to an image: wholly, unless it is a write.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// What names stand for from now on, all of them at once.
    Names(Vec<Name>),
    /// The length of a file in bytes: cut off, or filled up with zeros.
    Length(Inode, usize),
    /// The bytes of a file from an offset on.
    Bytes(Inode, usize, Arc<[u8]>),
}

/// A name in a directory, and what it stands for; `None` if nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) dir: Inode,
    pub(super) text: OsString,
    pub(super) inode: Option<Inode>,
}

impl Change {
    /// The file whose content it changes.
    pub(super) fn file(&self) -> Option<Inode> {
        match self {
            Change::Names(_) => None,
            Change::Length(file, _) | Change::Bytes(file, ..) => Some(*file),
        }
    }

    pub(super) fn names(&self) -> &[Name] {
        match self {
            Change::Names(names) => names,
            Change::Length(..) | Change::Bytes(..) => &[],
        }
    }

    /// Whether it takes more than one sector, so that only some of them may get to the disk.
    pub(super) fn may_tear(&self) -> bool {
        matches!(self, Change::Bytes(_, offset, bytes)
            if !bytes.is_empty() && offset / SECTOR != (offset + bytes.len() - 1) / SECTOR)
    }

    /// What is left of it if only the sectors get to the disk that `keep` says yes to.
    pub(super) fn tear(&self, mut keep: impl FnMut() -> bool) -> Vec<Change> {
        let Change::Bytes(file, offset, bytes) = self else {
            return vec![self.clone()];
        };
        let (mut torn, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let end = bytes.len().min(at + SECTOR - (offset + at) % SECTOR);
            if keep() {
                torn.push(Change::Bytes(*file, offset + at, bytes[at..end].into()));
            }
            at = end;
        }
        torn
    }
}

/// A tree of directories and files, as it is in memory or on the disk.
#[derive(Debug, Clone)]
pub(super) struct Image(HashMap<Inode, Node>);

impl Image {
    /// An empty root directory.
    pub(super) fn new() -> Image {
        Image(HashMap::from([(ROOT, Node::Dir(BTreeMap::new()))]))
    }

    /// Adds what no name stands for yet.
    pub(super) fn add(&mut self, inode: Inode, node: Node) {
        self.0.insert(inode, node);
    }

    pub(super) fn retain(&mut self, inodes: &HashSet<Inode>) {
        self.0.retain(|inode, _| inodes.contains(inode));
    }

    /// Changes what is still there; what is gone needs no change.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Names(names) => names.iter().for_each(|name| self.set(name)),
            Change::Length(file, length) => {
                if let Some(content) = self.content(*file) {
                    content.resize(*length, 0);
                }
            }
            Change::Bytes(file, offset, bytes) => {
                if let Some(content) = self.content(*file) {
                    let end = offset + bytes.len();
                    content.resize(content.len().max(end), 0);
                    content[*offset..end].copy_from_slice(bytes);
                }
            }
        }
    }

    fn set(&mut self, name: &Name) {
        let Some(Node::Dir(entries)) = self.0.get_mut(&name.dir) else {
            return;
        };
        match name.inode {
            Some(inode) => entries.insert(name.text.clone(), inode),
            None => entries.remove(&name.text),
        };
    }

    fn content(&mut self, file: Inode) -> Option<&mut Vec<u8>> {
        match self.0.get_mut(&file) {
            Some(Node::File(content)) => Some(Arc::make_mut(content)),
            _ => None,
        }
    }

    pub(super) fn node(&self, inode: Inode) -> Option<&Node> {
        self.0.get(&inode)
    }

    /// What lies at a path.
    pub(super) fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = ROOT;
        for part in path.components() {
            match part {
                Component::Normal(name) => {
                    let found = self.entries(inode)?.get(name);
                    inode = *found.ok_or_else(|| system_error(ErrorKind::NotFound))?;
                }
                Component::ParentDir => return Err(ErrorKind::Unsupported.into()),
                Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
            }
        }
        Ok(inode)
    }

    /// What a directory holds.
    pub(super) fn entries(&self, dir: Inode) -> io::Result<&BTreeMap<OsString, Inode>> {
        match self.node(dir) {
            Some(Node::Dir(entries)) => Ok(entries),
            Some(Node::File(_)) => Err(system_error(ErrorKind::NotADirectory)),
            None => Err(system_error(ErrorKind::NotFound)),
        }
    }

    /// The content of a file.
    pub(super) fn bytes(&self, file: Inode) -> io::Result<&Arc<Vec<u8>>> {
        match self.node(file) {
            Some(Node::File(bytes)) => Ok(bytes),
            Some(Node::Dir(_)) => Err(system_error(ErrorKind::IsADirectory)),
            None => Err(system_error(ErrorKind::NotFound)),
        }
    }

    /// The directory that a path lies in, and its name there.
    pub(super) fn place(&self, path: &Path) -> io::Result<(Inode, OsString)> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.entries(dir)?;
        Ok((dir, name.to_owned()))
    }

    /// How many names a file has.
    pub(super) fn links(&self, file: Inode) -> usize {
        let entries = self.0.values().filter_map(|node| match node {
            Node::Dir(entries) => Some(entries),
            Node::File(_) => None,
        });
        entries
            .flat_map(BTreeMap::values)
            .filter(|&&inode| inode == file)
            .count()
    }
}
