//! Saves that write over the files of a retired checkpoint.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use pitstop::{
    Checkpointer, FileCheckpointer, Local, Node, Options, Retention, State, Storage, Tensor,
};

use crate::run::{look, names, steps};
use crate::time_limit::limited;
use crate::watched::Watched;

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

#[test]
fn on_a_full_disk_what_waits_makes_room() {
    limited(|| {
        let Some(dir) = directory() else { return };
        let (run, full) = (dir.path().to_owned(), Arc::new(AtomicBool::new(false)));
        let is_full = Arc::clone(&full);
        let disk = Watched::new(move |_, call| {
            let room = !is_full.load(Ordering::SeqCst) || hidden_of(&run, ".del-").is_empty();
            if call.operation == "create" && !room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        });
        let files =
            FileCheckpointer::with_storage(Arc::new(disk.clone()), dir.path(), options(1)).unwrap();
        for step in 1..=2 {
            files.save(step, state(step)).unwrap();
        }
        full.store(true, Ordering::SeqCst);
        files.save(3, state(3)).unwrap();
        check(dir.path());
        assert_eq!(steps(dir.path()), [3]);
        assert!(disk.calls().iter().any(|call| call.operation == "recycle"));
    });
}

fn hidden_of(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut hidden = hidden(dir);
    hidden.retain(|path| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(prefix)
    });
    hidden
}

#[test]
fn one_failed_call_of_a_save_that_recycles_harms_no_older_checkpoint() {
    limited(|| {
        let mut recycled = false;
        for nth in 0.. {
            let Some(dir) = directory() else { return };
            let fail = Arc::new(AtomicUsize::new(usize::MAX));
            let at = Arc::clone(&fail);
            let disk = Watched::new(move |number, _| {
                if number == at.load(Ordering::SeqCst) {
                    return Err(io::Error::from_raw_os_error(5));
                }
                Ok(())
            });
            let storage = Arc::new(disk.clone());
            let files = FileCheckpointer::with_storage(storage, dir.path(), options(2)).unwrap();
            for step in 1..=3 {
                files.save(step, state(step)).unwrap();
            }
            let number = disk.calls().len() + nth;
            fail.store(number, Ordering::SeqCst);
            let saved = files.save(4, state(4)).is_ok();
            let calls = disk.calls();
            let Some(failed) = calls.get(number) else {
                assert!(saved && recycled);
                break;
            };
            recycled |= failed.operation == "recycle";
            let found = steps(dir.path());
            let expected: &[u64] = if saved { &[3, 4] } else { &[2, 3] };
            assert!(found.ends_with(expected), "{failed:?}: {found:?}");
            check(dir.path());
            files.save(5, state(5)).unwrap();
            drop(files);
            drop(FileCheckpointer::open(dir.path(), Options::default()).unwrap());
            check(dir.path());
            assert!(hidden(dir.path()).is_empty(), "{failed:?}");
        }
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
