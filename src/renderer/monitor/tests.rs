use std::fs;

use tempfile::TempDir;

use super::*;
use crate::file_checkpointer::{FileCheckpointer, Options, SaveOptions};
use crate::state::{Node, State, Tensor};

/// A run on a real disk, watched.
struct Scene {
    directory: TempDir,
    monitor: Arc<Monitor>,
    files: Monitored<Arc<FileCheckpointer>>,
}

impl Scene {
    fn new(retention: Retention) -> Scene {
        Scene::over(tempfile::tempdir().unwrap(), retention)
    }

    /// As another process that goes on with the run does.
    fn over(directory: TempDir, retention: Retention) -> Scene {
        let options = Options {
            retention: retention.clone(),
            fsync: false,
            ..Options::default()
        };
        let files = Arc::new(FileCheckpointer::open(directory.path(), options).unwrap());
        let monitor = Arc::new(Monitor::new(files.run().clone(), retention));
        let files = monitor.around(files);
        Scene {
            directory,
            monitor,
            files,
        }
    }

    fn save(&self, step: usize) -> Result<(), CheckpointerError> {
        self.files.save(step, transfer(10, false))
    }

    fn kept(&self) -> Vec<(u64, String)> {
        let kept = self.monitor.look().kept.into_iter();
        kept.map(|kept| (kept.step, kept.why)).collect()
    }
}

fn transfer(elements: usize, overwrite: bool) -> Transfer {
    let mut state = State::default();
    let tensor = Tensor::from_vec(vec![1.0f32; elements], &[elements as u64]).unwrap();
    let weight = state.push(tensor);
    state.root = Node::dict([("weight", weight)]);
    Transfer {
        options: SaveOptions {
            overwrite,
            ..SaveOptions::default()
        },
        ..Transfer::from(state)
    }
}

fn keep_last(n: usize) -> Retention {
    Retention::keep_last(n).unwrap()
}

#[test]
fn a_save_is_seen_from_its_beginning_to_its_end() {
    let scene = Scene::new(keep_last(1));
    let before = scene.monitor.look();
    assert_eq!(
        (before.in_flight, before.last, before.kept),
        (None, None, vec![])
    );
    assert_eq!(
        before.directory,
        scene.directory.path().display().to_string()
    );

    let transfer = transfer(1000, false);
    scene.monitor.saving(5, &transfer.ticket);
    let flying = scene.monitor.look().in_flight.unwrap();
    assert_eq!((flying.step, flying.done, flying.total), (5, 0, 0));

    transfer.ticket.timings.note_stall();
    scene.files.save(5, transfer).unwrap();
    let after = scene.monitor.look();
    assert_eq!(
        (after.in_flight.as_ref(), after.saved, after.failed),
        (None, 1, 0)
    );
    let last = after.last.unwrap();
    assert_eq!(last.step, 5);
    assert!(last.bytes > 4000);
    assert!(last.durable >= last.stall && last.stall > Some(0.0));
    assert_eq!(after.kept[0].bytes, last.bytes);
    assert_eq!(scene.kept(), [(5, "KeepLast(1)".to_owned())]);
}

#[test]
fn what_retention_keeps_is_shown_with_the_reason() {
    let scene = Scene::new(keep_last(1) | Retention::keep_every(20).unwrap());
    for step in [10, 20, 30] {
        scene.save(step).unwrap();
    }
    let kept = [
        (20, "KeepEvery(20)".to_owned()),
        (30, "KeepLast(1)".to_owned()),
    ];
    assert_eq!(scene.kept(), kept);
    assert_eq!(scene.monitor.look().saved, 3);

    scene.monitor.keeping(keep_last(1));
    assert_eq!(
        scene.kept(),
        [(20, String::new()), (30, "KeepLast(1)".to_owned())]
    );
}

#[test]
fn a_failure_is_counted_once_and_told_with_its_reason() {
    let scene = Scene::new(Retention::All);
    scene.save(1).unwrap();
    let error = scene.save(1).unwrap_err();
    let after = scene.monitor.look();
    assert_eq!((after.saved, after.failed, after.in_flight), (1, 1, None));
    assert_eq!(after.failures, [format!("step 1: {error}")]);
    assert_eq!(after.last.unwrap().step, 1);
}

#[test]
fn a_failure_that_is_seen_before_its_reason_is_known_is_counted_once() {
    let scene = Scene::new(Retention::All);
    scene.save(1).unwrap();
    let transfer = transfer(10, false);
    scene.monitor.saving(1, &transfer.ticket);
    scene.files.files.save(1, transfer).unwrap_err();
    assert_eq!(
        scene.monitor.look().failures,
        ["step 1: the save has failed"]
    );
    scene.monitor.failed(1, "the disk is full");
    let after = scene.monitor.look();
    assert_eq!(
        (after.failed, after.failures),
        (1, vec!["step 1: the disk is full".to_owned()])
    );
    // Another time, it is another failure.
    scene.monitor.failed(1, "the disk is gone");
    assert_eq!(scene.monitor.look().failed, 2);
}

#[test]
fn a_failure_that_is_told_before_it_is_seen_is_counted_once() {
    let scene = Scene::new(Retention::All);
    let ticket = Arc::default();
    scene.monitor.saving(1, &ticket);
    scene.monitor.failed(1, "the disk is full");
    scene.monitor.look();
    assert_eq!(scene.monitor.look().failed, 1);
}

#[test]
fn what_an_earlier_process_saved_is_shown() {
    let first = Scene::new(Retention::All);
    for step in [1, 2, 3] {
        first.save(step).unwrap();
    }
    let Scene {
        directory, files, ..
    } = first;
    drop(files);
    let second = Scene::over(directory, keep_last(2));
    let seen = second.monitor.look();
    assert_eq!((seen.saved, seen.kept.len()), (0, 3));
    assert_eq!(seen.kept[0].why, "");
    let last = seen.last.unwrap();
    assert_eq!((last.step, last.stall, last.durable), (3, None, None));
    assert!(last.at > 1.7e9);
}

#[test]
fn the_directory_is_read_when_a_save_has_ended_and_not_at_each_look() {
    let scene = Scene::new(Retention::All);
    scene.save(1).unwrap();
    scene.save(2).unwrap();
    assert_eq!(scene.kept().len(), 2);
    fs::remove_dir_all(scene.directory.path().join("step-1")).unwrap();
    assert_eq!(scene.kept().len(), 2);
    scene.save(3).unwrap();
    let steps: Vec<u64> = scene.kept().into_iter().map(|(step, _)| step).collect();
    assert_eq!(steps, [2, 3]);
}

#[test]
fn a_checkpoint_that_is_replaced_is_shown_as_it_is_now() {
    let scene = Scene::new(Retention::All);
    scene.save(1).unwrap();
    let before = scene.monitor.look().kept[0].bytes;
    scene.files.save(1, transfer(100_000, true)).unwrap();
    let after = scene.monitor.look();
    assert!(after.kept[0].bytes > before + 300_000);
    assert_eq!(after.last.unwrap().bytes, after.kept[0].bytes);
}

#[test]
fn a_checkpoint_that_is_deleted_is_gone_and_one_that_cannot_be_is_a_failure() {
    let scene = Scene::new(Retention::All);
    scene.save(1).unwrap();
    scene.save(2).unwrap();
    scene.monitor.look();
    scene.files.delete(1).unwrap();
    assert_eq!(scene.kept().len(), 1);
    scene.files.delete(1).unwrap_err();
    let failures = scene.monitor.look().failures;
    assert!(
        failures[0].starts_with("step 1: it could not be deleted: "),
        "{failures:?}"
    );
}

#[test]
fn saves_between_two_looks_are_all_counted() {
    let scene = Scene::new(Retention::All);
    for step in 1..=40 {
        scene.save(step).unwrap();
    }
    for _ in 0..20 {
        scene.save(7).unwrap_err();
    }
    for _ in 0..3 {
        scene.monitor.skipped();
    }
    let seen = scene.monitor.look();
    assert_eq!((seen.saved, seen.failed, seen.skipped), (40, 20, 3));
    assert_eq!(seen.failures.len(), Checkpoints::FAILURES);
    assert_eq!(seen.kept.len(), Checkpoints::KEPT);
    assert_eq!(seen.kept.last().unwrap().step, 40);
}

#[test]
fn a_run_whose_directory_is_gone_has_no_checkpoints() {
    let scene = Scene::new(Retention::All);
    let Scene {
        directory, monitor, ..
    } = scene;
    drop(directory);
    assert!(monitor.look().kept.is_empty());
}
