use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::Call;
use super::image::{Change, Image, Inode, Name, Node, ROOT};
use super::outcome::{Fate, Outcome};

/// A change that a power cut may undo.
#[derive(Debug, Clone)]
struct Unsynced {
    change: Change,
    /// The call that made it.
    call: Arc<Call>,
    /// A sync of it has failed. It may be on the disk; if it is not, no sync will put it there.
    doomed: bool,
}

/// Both images of a disk, and what is between them.
pub(super) struct State {
    /// What a process sees.
    pub(super) live: Image,
    /// What has survived any power cut to come.
    durable: Image,
    /// What leads from one to the other, in order.
    unsynced: Vec<Unsynced>,
    next_inode: Inode,
    /// Whoever has a file open holds one of these.
    users: HashMap<Inode, Arc<()>>,
    pub(super) locked: HashSet<Inode>,
    pub(super) stopped: bool,
    pub(super) exchanges: bool,
    pub(super) recycles: bool,
    pub(super) calls: Vec<Arc<Call>>,
}

impl State {
    pub(super) fn new() -> State {
        State {
            live: Image::new(),
            durable: Image::new(),
            unsynced: Vec::new(),
            next_inode: ROOT + 1,
            users: HashMap::new(),
            locked: HashSet::new(),
            stopped: false,
            exchanges: true,
            recycles: true,
            calls: Vec::new(),
        }
    }

    /// Counts a call, and returns its number.
    pub(super) fn note(&mut self, call: &Arc<Call>) -> usize {
        self.calls.push(Arc::clone(call));
        self.calls.len() - 1
    }

    pub(super) fn unsynced(&self) -> impl Iterator<Item = &Call> {
        self.unsynced.iter().map(|unsynced| unsynced.call.as_ref())
    }

    pub(super) fn may_tear(&self) -> Vec<bool> {
        let changes = self.unsynced.iter();
        changes.map(|it| it.change.may_tear()).collect()
    }

    pub(super) fn wake(&self, outcome: Outcome) -> State {
        let (mut found, mut chance) = (self.durable.clone(), outcome.chance());
        for (number, Unsynced { change, .. }) in self.unsynced.iter().enumerate() {
            match outcome.fate(number, &mut chance) {
                Fate::Kept => found.apply(change),
                Fate::Lost => {}
                Fate::Torn => {
                    let keep = || chance.next().is_multiple_of(2);
                    change.tear(keep).iter().for_each(|part| found.apply(part));
                }
            }
        }
        let mut state = State {
            live: found.clone(),
            durable: found,
            ..self.next_life()
        };
        state.forget_the_lost();
        state
    }

    pub(super) fn restart(&self) -> State {
        State {
            live: self.live.clone(),
            durable: self.durable.clone(),
            unsynced: self.unsynced.clone(),
            ..self.next_life()
        }
    }

    /// The same disk, empty, in a machine that was just started.
    fn next_life(&self) -> State {
        State {
            next_inode: self.next_inode,
            exchanges: self.exchanges,
            recycles: self.recycles,
            ..State::new()
        }
    }

    /// Adds a file or directory, to which names are to be given.
    pub(super) fn add(&mut self, node: Node) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        // Where no name that is durable leads to it, it may be there as well.
        self.durable.add(inode, node.clone());
        self.live.add(inode, node);
        inode
    }

    /// Changes what a process sees, as part of the latest call.
    pub(super) fn change(&mut self, call: &Arc<Call>, change: Change) {
        self.live.apply(&change);
        self.unsynced.push(Unsynced {
            change,
            call: Arc::clone(call),
            doomed: false,
        });
    }

    /// Makes names stand for something else, all at once.
    pub(super) fn name<const N: usize>(
        &mut self,
        call: &Arc<Call>,
        names: [((Inode, OsString), Option<Inode>); N],
    ) {
        let names = names.map(|((dir, text), inode)| Name { dir, text, inode });
        self.change(call, Change::Names(names.into()));
    }

    pub(super) fn sync_file(&mut self, file: Inode) {
        self.settle(&self.of_file(file));
    }

    pub(super) fn fail_sync_file(&mut self, file: Inode) {
        self.doom(&self.of_file(file));
    }

    pub(super) fn sync_dir(&mut self, dir: Inode) {
        self.settle(&self.of_dir(dir));
    }

    pub(super) fn fail_sync_dir(&mut self, path: &Path) {
        if let Ok(dir) = self.live.find(path) {
            self.doom(&self.of_dir(dir));
        }
    }

    fn of_file(&self, file: Inode) -> Vec<bool> {
        let is_of = |it: &Unsynced| it.change.file() == Some(file);
        self.unsynced.iter().map(is_of).collect()
    }

    /// The changes in a directory; with a rename out of another one, also what was done to the old name before.
    fn of_dir(&self, dir: Inode) -> Vec<bool> {
        let mut settled = HashSet::new();
        let mut is_of = |it: &Unsynced| {
            let names = || it.change.names().iter();
            let concerned = names()
                .any(|name| name.dir == dir || settled.contains(&(name.dir, name.text.clone())));
            if concerned {
                settled.extend(names().map(|name| (name.dir, name.text.clone())));
            }
            concerned
        };
        let mut picked: Vec<bool> = self.unsynced.iter().rev().map(&mut is_of).collect();
        picked.reverse();
        picked
    }

    /// Makes these changes durable, except those that are lost already.
    fn settle(&mut self, picked: &[bool]) {
        let mut rest = Vec::new();
        for (unsynced, &picked) in std::mem::take(&mut self.unsynced).into_iter().zip(picked) {
            match (picked, unsynced.doomed) {
                (false, _) => rest.push(unsynced),
                (true, false) => self.durable.apply(&unsynced.change),
                (true, true) => {}
            }
        }
        self.unsynced = rest;
        self.forget_the_lost();
    }

    fn doom(&mut self, picked: &[bool]) {
        for (unsynced, &picked) in self.unsynced.iter_mut().zip(picked) {
            unsynced.doomed |= picked;
        }
    }

    /// Says that somebody has a file open, until what it returns is dropped.
    pub(super) fn use_file(&mut self, file: Inode) -> Arc<()> {
        Arc::clone(self.users.entry(file).or_default())
    }

    pub(super) fn is_used(&self, file: Inode) -> bool {
        let users = self.users.get(&file);
        users.is_some_and(|users| Arc::strong_count(users) > 1)
    }

    pub(super) fn open_files(&self) -> usize {
        let open = |&&inode: &&Inode| self.is_used(inode);
        self.users.keys().filter(open).count()
    }

    /// Fails if there is something at that place.
    pub(super) fn must_be_free(&self, place: &(Inode, OsString)) -> io::Result<()> {
        if self.live.entries(place.0)?.contains_key(&place.1) {
            return Err(super::system_error(io::ErrorKind::AlreadyExists));
        }
        Ok(())
    }

    /// Frees the memory of what nobody can find any more, whatever a power cut leaves.
    fn forget_the_lost(&mut self) {
        self.users.retain(|_, users| Arc::strong_count(users) > 1);
        let mut found = HashSet::new();
        let mut next: Vec<Inode> = self.users.keys().copied().chain([ROOT]).collect();
        while !next.is_empty() {
            while let Some(inode) = next.pop() {
                if found.insert(inode) {
                    let images = [&self.live, &self.durable].into_iter();
                    let dirs = images.filter_map(|image| image.entries(inode).ok());
                    next.extend(dirs.flat_map(|entries| entries.values().copied()));
                }
            }
            let changes = self.unsynced.iter().map(|it| it.change.names());
            let within = changes.filter(|names| names.iter().any(|it| found.contains(&it.dir)));
            let named = within.flatten().filter_map(|name| name.inode);
            next.extend(named.filter(|inode| !found.contains(inode)));
        }
        self.live.retain(&found);
        self.durable.retain(&found);
        self.unsynced.retain(|it| match it.change.file() {
            Some(file) => found.contains(&file),
            None => it.change.names().iter().any(|it| found.contains(&it.dir)),
        });
    }
}
