//! Saves that write over the files of a retired checkpoint.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pitstop::{
    Checkpointer, FileCheckpointer, Local, Node, Options, Retention, State, Storage, Tensor,
};

use crate::run::{look, steps};
use crate::time_limit::limited;

/// Not in /tmp, which may lie in memory. `None` where nothing is recycled.
fn directory() -> Option<tempfile::TempDir> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    Local::new().recycles(dir.path()).then_some(dir)
}

fn options(keep: usize) -> Options {
    Options {
        retention: Retention::keep_last(keep).unwrap(),
        ..Options::default()
    }
}

/// Some megabytes that differ from step to step, and some that never do.
fn state(step: usize) -> State {
    let mut state = State::default();
    let frozen = state.push(Tensor::from_vec(vec![7u64; 200_000], &[200_000]).unwrap());
    let trained = state.push(Tensor::from_vec(vec![step as u64; 300_001], &[300_001]).unwrap());
    state.root = Node::dict([
        ("model", Node::dict([("weight", trained)])),
        ("frozen", Node::dict([("weight", frozen)])),
    ]);
    state
}

/// Every checkpoint there is must be intact and hold its own step.
fn check(dir: &Path) {
    for step in steps(dir) {
        let state = look(dir).open(step, true).unwrap().load().unwrap();
        let weight = state.root.get("model").unwrap().get("weight").unwrap();
        let values = state.tensor(weight).unwrap().to_vec::<u64>().unwrap();
        assert!(values == vec![step; 300_001], "step {step}");
    }
}

fn inode(dir: &Path, step: usize) -> u64 {
    let file = dir.join(format!("step-{step}/model.safetensors"));
    fs::metadata(file).unwrap().ino()
}

/// The names in a directory, hidden ones included, sorted.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn hidden(dir: &Path) -> Vec<PathBuf> {
    let mut names = names(dir);
    names.retain(|name| name.starts_with('.') && name != ".lock");
    names.iter().map(|name| dir.join(name)).collect()
}

#[test]
fn the_next_save_writes_over_the_files_of_the_retired_checkpoint() {
    limited(|| {
        let Some(dir) = directory() else { return };
        let files = FileCheckpointer::open(dir.path(), options(1)).unwrap();
        let mut inodes = Vec::new();
        for step in 1..=5 {
            files.save(step, state(step)).unwrap();
            inodes.push(inode(dir.path(), step));
            assert_eq!(steps(dir.path()), [step as u64]);
            check(dir.path());
            // No more than one waits, and nothing in it that the newest one still shares.
            let waiting = hidden(dir.path());
            assert_eq!(waiting.len(), usize::from(step > 1));
        }
        // Two take turns: the one that can be seen, and the one that waits.
        assert_eq!(inodes[2..], [inodes[0], inodes[1], inodes[0]]);
        drop(files);
        assert_eq!(hidden(dir.path()), [""; 0].map(PathBuf::from));
        check(dir.path());
    });
}

#[test]
fn recycling_can_be_switched_off() {
    limited(|| {
        let Some(dir) = directory() else { return };
        let recycle = false;
        let options = Options {
            recycle,
            ..options(1)
        };
        let files = FileCheckpointer::open(dir.path(), options).unwrap();
        for step in 1..=3 {
            files.save(step, state(step)).unwrap();
            assert!(hidden(dir.path()).is_empty());
        }
    });
}

#[test]
fn what_a_user_deletes_is_gone_at_once() {
    limited(|| {
        let Some(dir) = directory() else { return };
        let files = FileCheckpointer::open(dir.path(), options(9)).unwrap();
        for step in 1..=2 {
            files.save(step, state(step)).unwrap();
        }
        Checkpointer::<State>::delete(&files, 1).unwrap();
        assert!(hidden(dir.path()).is_empty());
    });
}

#[test]
fn a_reader_of_a_retired_checkpoint_keeps_what_it_reads() {
    limited(|| {
        let Some(dir) = directory() else { return };
        let files = FileCheckpointer::open(dir.path(), options(1)).unwrap();
        files.save(1, state(1)).unwrap();
        let reader = look(dir.path()).open(1, true).unwrap();
        for step in 2..=5 {
            files.save(step, state(step)).unwrap();
        }
        let state = reader.load().unwrap();
        let weight = state.root.get("model").unwrap().get("weight").unwrap();
        let values = state.tensor(weight).unwrap().to_vec::<u64>().unwrap();
        assert!(values == vec![1; 300_001]);
    });
}

const RUN: &str = "PITSTOP_TEST_RECYCLING_RUN";

/// Not a test by itself: saves until it is killed.
#[test]
fn saves_for_ever() {
    let Some(dir) = env::var_os(RUN).map(PathBuf::from) else {
        return;
    };
    let files = FileCheckpointer::open(&dir, options(1)).unwrap();
    let from = steps(&dir).last().map_or(1, |&step| step as usize + 1);
    for step in from.. {
        files.save(step, state(step)).unwrap();
    }
}

#[test]
fn a_kill_in_the_middle_leaves_whole_checkpoints_and_nothing_else() {
    limited(|| {
        let Some(dir) = directory() else { return };
        for round in 0..8 {
            let mut child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "recycling::saves_for_ever"])
                .env(RUN, dir.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let before = steps(dir.path()).last().copied().unwrap_or(0);
            while steps(dir.path())
                .last()
                .is_none_or(|&step| step < before + 3)
            {
                assert!(
                    child.try_wait().unwrap().is_none(),
                    "it must not die by itself"
                );
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_micros(700 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            check(dir.path());
            drop(FileCheckpointer::open(dir.path(), options(1)).unwrap());
            check(dir.path());
            assert!(!steps(dir.path()).is_empty());
            assert!(hidden(dir.path()).is_empty());
        }
    });
}
