use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use pitstop::{AsyncCheckpointer, Checkpointer, FileCheckpointer, Mode, Options, Retention, State};

use crate::run::{look, names, scored, state, steps};
use crate::time_limit::limited;
use crate::watched::{Call, Watched};

fn keep_last(n: usize) -> Options {
    Options {
        retention: Retention::keep_last(n).unwrap(),
        ..Options::default()
    }
}

fn index(calls: &[Call], what: &str, found: impl Fn(&Call) -> bool) -> usize {
    let at = calls.iter().position(found);
    at.unwrap_or_else(|| panic!("{what} is not among {calls:#?}"))
}

/// When the step got its name, and when that was durable.
fn published(calls: &[Call], dir: &Path, step: usize) -> (usize, usize) {
    let path = dir.join(format!("step-{step}"));
    let renamed = index(calls, "its rename", |call| {
        ["rename", "exchange"].contains(&call.operation) && call.target.as_ref() == Some(&path)
    });
    let after = &calls[renamed..];
    let synced = index(after, "the sync", |call| call.is("sync directory", dir));
    (renamed, renamed + synced)
}

/// When the step lost its name.
fn hidden(calls: &[Call], dir: &Path, step: usize) -> usize {
    let path = dir.join(format!("step-{step}"));
    index(calls, "its removal", |call| call.is("rename", &path))
}

#[test]
fn a_checkpoint_is_durable_before_it_gets_its_name() {
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        let disk = Watched::new(|_, _| Ok(()));
        let files = open(&disk, dir.path(), Options::default());
        files.save(1, state(1)).unwrap();
        files.save(2, state(2)).unwrap();
        let calls = disk.calls();
        for step in [1, 2] {
            let (renamed, _) = published(&calls, dir.path(), step);
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
        let dir = tempfile::tempdir().unwrap();
        let disk = Watched::new(|_, _| Ok(()));
        let files = open(&disk, dir.path(), keep_last(1));
        let checkpointer = AsyncCheckpointer::<State>::new(files);
        for step in 1..=4 {
            checkpointer.save(step, state(step)).unwrap();
        }
        checkpointer.close().unwrap();
        let calls = disk.calls();
        for step in 1..4 {
            let (_, durable) = published(&calls, dir.path(), step + 1);
            assert!(durable < hidden(&calls, dir.path(), step), "step {step}");
        }
        assert_eq!(steps(dir.path()), [4]);
    });
}

/// The model for this crate deletes the old best one before the new one is saved.
#[test]
fn the_old_best_goes_only_after_the_new_best_is_durable() {
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        let disk = Watched::new(|_, _| Ok(()));
        let retention = Retention::keep_best("loss", Mode::Min, 1).unwrap();
        let options = Options {
            retention,
            ..Options::default()
        };
        let files = open(&disk, dir.path(), options);
        files.save(1, scored(1, 0.5)).unwrap();
        files.save(2, scored(2, 0.4)).unwrap();
        let calls = disk.calls();
        let (_, durable) = published(&calls, dir.path(), 2);
        assert!(durable < hidden(&calls, dir.path(), 1));
        assert_eq!(steps(dir.path()), [2]);
    });
}

#[test]
fn what_is_replaced_goes_only_after_its_replacement_is_durable() {
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        let disk = Watched::new(|_, _| Ok(()));
        let files = open(&disk, dir.path(), Options::default());
        files.save(1, state(1)).unwrap();
        let before = disk.calls().len();
        let mut again = scored(1, 0.5);
        again.options.overwrite = true;
        files.save(1, again).unwrap();
        let calls = &disk.calls()[before..];
        let (swapped, durable) = published(calls, dir.path(), 1);
        let removed = index(calls, "a removal", |call| call.operation == "remove");
        assert!(durable < removed);
        assert!(calls[removed].path.starts_with(&calls[swapped].path));
        assert_eq!(names(dir.path()), [".lock", "step-1"]);
    });
}

/// Stops at one call until it is let go.
fn hold_at(
    stop: impl Fn(&Call) -> bool + Send + Sync + 'static,
) -> (Watched, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (arrived, arrival) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let (arrived, gate) = (Mutex::new(arrived), Mutex::new(gate));
    let disk = Watched::new(move |_, call| {
        if stop(call) {
            arrived.lock().unwrap().send(()).unwrap();
            // An error: the test has ended.
            let _ = gate.lock().unwrap().recv();
        }
        Ok(())
    });
    (disk, arrival, go)
}

#[test]
fn nobody_sees_a_checkpoint_before_its_rename() {
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        let second = dir.path().join("step-2");
        let (disk, arrival, go) = hold_at(move |call| {
            call.operation == "rename" && call.target.as_ref() == Some(&second)
        });
        let files = Arc::new(open(&disk, dir.path(), Options::default()));
        let checkpointer = AsyncCheckpointer::<State>::new(Arc::clone(&files));
        checkpointer.save(1, state(1)).unwrap();
        checkpointer.save(2, state(2)).unwrap();
        arrival.recv().unwrap();
        for run in [&look(dir.path()), files.run()] {
            assert_eq!(run.latest().unwrap().unwrap().step, 1);
            assert_eq!(run.candidates().unwrap(), [1]);
        }
        let visible = names(dir.path());
        assert!(
            visible
                .iter()
                .all(|name| name == "step-1" || name.starts_with('.'))
        );
        go.send(()).unwrap();
        checkpointer.wait(None).unwrap();
        for run in [&look(dir.path()), files.run()] {
            assert_eq!(run.latest().unwrap().unwrap().step, 2);
        }
    });
}

/// Between its rename and the sync of the directory a checkpoint has its name, and a power cut would
/// take it away again.
#[test]
fn the_writer_does_not_show_a_checkpoint_before_its_name_is_durable() {
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        let (parent, second) = (dir.path().to_owned(), dir.path().join("step-2"));
        let (disk, arrival, go) =
            hold_at(move |call| call.is("sync directory", &parent) && second.exists());
        let files = Arc::new(open(&disk, dir.path(), Options::default()));
        files.save(1, state(1)).unwrap();
        let saving = {
            let files = Arc::clone(&files);
            thread::spawn(move || files.save(2, state(2)))
        };
        arrival.recv().unwrap();
        assert!(dir.path().join("step-2").exists());
        let run = files.run();
        assert_eq!(run.latest().unwrap().unwrap().step, 1);
        assert_eq!(run.checkpoints().unwrap().len(), 1);
        assert!(run.info(2).is_err());
        assert_eq!(files.restore_newest().unwrap().unwrap().0, 1);
        go.send(()).unwrap();
        saving.join().unwrap().unwrap();
        assert_eq!(run.latest().unwrap().unwrap().step, 2);
    });
}

fn open(disk: &Watched, dir: &Path, options: Options) -> FileCheckpointer {
    FileCheckpointer::with_storage(Arc::new(disk.clone()), dir, options).unwrap()
}
