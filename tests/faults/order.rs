//! In which order things are done, and what readers see meanwhile.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use pitstop::storage::simulated::{Call, Disk};
use pitstop::{
    AsyncCheckpointer, Checkpointer, FileCheckpointer, Mode, Options, Retention, State, Storage,
    Transfer,
};

use crate::time_limit::limited;
use crate::world::{RUN, look, state, transfer, world};

const DEFAULT: fn() -> Options = Options::default;

fn open(disk: &Disk, options: Options) -> FileCheckpointer {
    FileCheckpointer::with_storage(Arc::new(disk.clone()), RUN, options).unwrap()
}

fn save(files: &impl Checkpointer<State>, step: u64) {
    files.save(step as usize, state(step, 1, 200)).unwrap();
}

fn step_path(step: u64) -> PathBuf {
    Path::new(RUN).join(format!("step-{step}"))
}

fn steps(disk: &Disk) -> Vec<u64> {
    world(&look(disk)).into_keys().collect()
}

fn index(calls: &[Call], what: &str, found: impl Fn(&Call) -> bool) -> usize {
    let at = calls.iter().position(found);
    at.unwrap_or_else(|| panic!("{what} is not among {calls:#?}"))
}

/// When the step got its name, and when that was durable.
fn published(calls: &[Call], step: u64) -> (usize, usize) {
    let path = step_path(step);
    let renamed = index(calls, "its rename", |call| {
        ["rename", "exchange"].contains(&call.operation) && call.target.as_ref() == Some(&path)
    });
    let after = &calls[renamed..];
    let synced = index(after, "the sync", |call| call.is("sync directory", RUN));
    (renamed, renamed + synced)
}

/// When the step lost its name.
fn hidden(calls: &[Call], step: u64) -> usize {
    index(calls, "its removal", |call| {
        call.is("rename", step_path(step))
    })
}

#[test]
fn a_checkpoint_is_durable_before_it_gets_its_name() {
    limited(|| {
        let disk = Disk::new();
        let files = open(&disk, DEFAULT());
        save(&files, 1);
        save(&files, 2);
        let calls = disk.calls();
        for step in [1, 2] {
            let (renamed, _) = published(&calls, step);
            let staged = &calls[renamed].path;
            let at = |operation: &str, path: &Path| {
                let found = |call: &Call| call.is(operation, path);
                calls[..renamed].iter().rposition(found)
            };
            let settled = at("sync directory", staged).unwrap();
            let inside = |call: &&Call| call.path.parent() == Some(staged);
            let files: Vec<&PathBuf> = calls[..renamed]
                .iter()
                .filter(|call| call.operation == "create")
                .filter(inside)
                .map(|call| &call.path)
                .collect();
            for file in &files {
                let (written, synced) = (at("write", file).unwrap(), at("sync", file).unwrap());
                assert!(written < synced && synced < settled, "{}", file.display());
            }
            assert!(files.last().unwrap().ends_with("manifest.json"));
        }
        assert!(calls.iter().any(|call| call.operation == "link"));
    });
}

#[test]
fn an_older_checkpoint_goes_only_after_its_successor_is_durable() {
    limited(|| {
        let disk = Disk::new();
        let options = Options {
            retention: Retention::keep_last(1).unwrap(),
            ..Options::default()
        };
        let checkpointer = AsyncCheckpointer::<State>::new(open(&disk, options));
        for step in 1..=4 {
            save(&checkpointer, step);
        }
        checkpointer.close().unwrap();
        let calls = disk.calls();
        for step in 1..4 {
            let (_, durable) = published(&calls, step + 1);
            assert!(durable < hidden(&calls, step), "step {step}");
        }
        assert_eq!(steps(&disk), [4]);
    });
}

/// The model for this crate deletes the old best one before the new one is saved.
#[test]
fn the_old_best_goes_only_after_the_new_best_is_durable() {
    limited(|| {
        let disk = Disk::new();
        let options = Options {
            retention: Retention::keep_best("loss", Mode::Min, 1).unwrap(),
            ..Options::default()
        };
        let files = open(&disk, options);
        for (step, loss) in [(1, 0.5), (2, 0.4)] {
            let mut scored = transfer(step, 1, 200, false);
            scored.options.metrics.insert("loss".to_owned(), loss);
            files.save(step as usize, scored).unwrap();
        }
        let calls = disk.calls();
        let (_, durable) = published(&calls, 2);
        assert!(durable < hidden(&calls, 1));
        assert_eq!(steps(&disk), [2]);
    });
}

#[test]
fn a_replaced_checkpoint_is_removed_only_after_its_successor_is_durable() {
    limited(|| {
        let disk = Disk::new();
        let files = open(&disk, DEFAULT());
        save(&files, 1);
        let before = disk.calls().len();
        files.save(1, transfer(1, 2, 200, true)).unwrap();
        let calls = &disk.calls()[before..];
        let (swapped, durable) = published(calls, 1);
        let removed = index(calls, "a removal", |call| call.operation == "remove");
        assert!(durable < removed);
        assert!(calls[removed].path.starts_with(&calls[swapped].path));
        let names = disk.list(RUN.as_ref()).unwrap().into_iter();
        let names: Vec<_> = names.map(|entry| entry.name).collect();
        assert_eq!(names, [".lock", "step-1"]);
    });
}

/// Stops at one call until it is let go.
fn hold_at(
    disk: &Disk,
    stop: impl Fn(&Call) -> bool + Send + Sync + 'static,
) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrived, arrival) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let (arrived, gate) = (Mutex::new(arrived), Mutex::new(gate));
    disk.on_call(move |_, call| {
        if stop(call) {
            arrived.lock().unwrap().send(()).unwrap();
            // An error: the test has ended.
            let _ = gate.lock().unwrap().recv();
        }
        None
    });
    (arrival, go)
}

#[test]
fn nobody_sees_a_checkpoint_before_its_rename() {
    limited(|| {
        let disk = Disk::new();
        let (arrival, go) = hold_at(&disk, |call| {
            call.operation == "rename" && call.target == Some(step_path(2))
        });
        let files = Arc::new(open(&disk, DEFAULT()));
        let checkpointer = AsyncCheckpointer::<State>::new(Arc::clone(&files));
        save(&checkpointer, 1);
        save(&checkpointer, 2);
        arrival.recv().unwrap();
        for run in [&look(&disk), files.run()] {
            assert_eq!(run.latest().unwrap().unwrap().step, 1);
            assert_eq!(run.candidates().unwrap(), [1]);
        }
        go.send(()).unwrap();
        checkpointer.wait(None).unwrap();
        for run in [&look(&disk), files.run()] {
            assert_eq!(run.latest().unwrap().unwrap().step, 2);
        }
    });
}

/// Between its rename and the sync of the directory a checkpoint has its name, and a power cut would
/// take it away again.
#[test]
fn the_writer_does_not_show_a_checkpoint_before_its_name_is_durable() {
    limited(|| {
        let disk = Disk::new();
        let files = Arc::new(open(&disk, DEFAULT()));
        save(&files, 1);
        let seen = disk.clone();
        let (arrival, go) = hold_at(&disk, move |call| {
            let is_there = || seen.kind(&step_path(2)).unwrap().is_some();
            call.is("sync directory", RUN) && is_there()
        });
        let saving = {
            let files = Arc::clone(&files);
            thread::spawn(move || save(&files, 2))
        };
        arrival.recv().unwrap();
        assert_eq!(steps(&disk), [1, 2]);
        let run = files.run();
        assert_eq!(run.latest().unwrap().unwrap().step, 1);
        assert_eq!(run.checkpoints().unwrap().len(), 1);
        assert!(run.info(2).is_err());
        assert_eq!(files.restore_newest().unwrap().unwrap().0, 1);
        go.send(()).unwrap();
        saving.join().unwrap();
        assert_eq!(run.latest().unwrap().unwrap().step, 2);
        drop(Checkpointer::<Transfer>::restore(&files, 2).unwrap());
    });
}
