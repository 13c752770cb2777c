//! Retention while somebody removes checkpoints by hand.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::checkpointer::Checkpointer;
use crate::file_checkpointer::Options;
use crate::state::{Node, State, Tensor};
use crate::storage::{Entry, EntryKind, Local, Lock, LockError, NewFile, Storage, StoredFile};

/// The real file system, on which `step-1` is removed just after anything else was taken out of sight.
#[derive(Debug)]
struct Meddled(Local);

impl Storage for Meddled {
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)?;
        if to.to_string_lossy().contains(".del-") {
            fs::remove_dir_all(to.with_file_name("step-1")).unwrap();
        }
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        self.0.list(dir)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        self.0.kind(path)
    }

    fn create(&self, path: &Path, size: u64) -> io::Result<Box<dyn NewFile>> {
        self.0.create(path, size)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn StoredFile>> {
        self.0.open(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.hard_link(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.0.exchange(one, other)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.0.sync_dir(dir)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>, LockError> {
        self.0.lock(path)
    }
}

/// A run in which only step 1 is ever kept.
fn keeping_the_first(storage: impl Storage + 'static, directory: &Path) -> FileCheckpointer {
    let options = Options {
        retention: Retention::custom("the first", |_| BTreeSet::from([1])),
        ..Options::default()
    };
    FileCheckpointer::with_storage(Arc::new(storage), directory, options).unwrap()
}

fn save(checkpointer: &FileCheckpointer, step: u8) {
    let mut state = State::default();
    let leaf = state.push(Tensor::from_vec(vec![step; 1000], &[1000]).unwrap());
    state.root = Node::dict([("w", leaf)]);
    Checkpointer::<State>::save(checkpointer, step.into(), state).unwrap();
}

fn assert_only_this_is_left(checkpointer: &FileCheckpointer, step: u64) {
    let (newest, state) = checkpointer.restore_newest().unwrap().unwrap();
    assert_eq!(newest, step);
    let values: Vec<u8> = state.tensors[0].to_vec().unwrap();
    assert_eq!(values, vec![step as u8; 1000]);
    let names = fs::read_dir(checkpointer.run.directory()).unwrap();
    let hidden = names.filter(|name| {
        let name = name.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(".del-")
    });
    assert_eq!(hidden.count(), 0);
}

/// The checkpoint to keep had been written by this very process, so it was taken for intact; but an `rm -r`
/// was on its way through it, and the only other one was pruned.
#[test]
fn a_checkpoint_that_is_half_removed_by_hand_is_no_reason_to_prune_the_rest() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = keeping_the_first(Local::new(), directory.path());
    save(&checkpointer, 1);
    fs::remove_file(directory.path().join("step-1/state.safetensors")).unwrap();
    save(&checkpointer, 2);
    assert_only_this_is_left(&checkpointer, 2);
}

#[test]
fn what_was_taken_out_of_sight_comes_back_if_the_rest_is_removed_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let checkpointer = keeping_the_first(Meddled(Local::new()), directory.path());
    save(&checkpointer, 1);
    save(&checkpointer, 2);
    assert_only_this_is_left(&checkpointer, 2);
    save(&checkpointer, 1);
    assert_only_this_is_left(&checkpointer, 2);
}
