//! Files that a save links to, and that somebody else wrote.

use std::path::Path;

use pitstop::storage::simulated::{Disk, Fault, Outcome};
use pitstop::{Checkpointer, State, Storage, Tensor, Transfer};

use crate::life::Setting;
use crate::scenario::INCREMENTAL;
use crate::time_limit::limited;
use crate::world::{RUN, look, state, transfer, version};

/// A run with one checkpoint that nobody has synced, as a copy of a run has just after it was copied, or one
/// that was saved with `fsync: false`.
fn copied_run() -> Disk {
    let source = Disk::new();
    let files = Setting::PLAIN.open(&source).unwrap();
    files.save(1, transfer(1, 1, 200, false)).unwrap();
    let disk = Disk::new();
    let step = Path::new(RUN).join("step-1");
    disk.create_dir_all(Path::new(RUN)).unwrap();
    disk.create_dir(&step).unwrap();
    for entry in source.list(&step).unwrap() {
        let path = step.join(entry.name);
        let file = source.open(&path).unwrap();
        let mut content = vec![0; file.len() as usize];
        file.read_at(0, &mut content).unwrap();
        let copy = disk.create(&path, file.len()).unwrap();
        copy.write_at(0, &content).unwrap();
    }
    disk
}

fn links(disk: &Disk) -> usize {
    let calls = disk.calls();
    calls.iter().filter(|call| call.operation == "link").count()
}

/// A save that followed a restore linked to files that only memory knew, and reported them as committed.
#[test]
fn what_is_linked_is_as_durable_as_what_is_written() {
    limited(|| {
        let disk = copied_run();
        let files = INCREMENTAL.open(&disk).unwrap();
        let restored = files.restore_newest().unwrap().unwrap();
        assert_eq!(version(&restored.1, restored.0), 1);
        files.save(2, transfer(2, 1, 200, false)).unwrap();
        assert_eq!(links(&disk), 1);
        let woken = look(&disk.wake(Outcome::Nothing));
        let state = woken.open(2, true).unwrap().load().unwrap();
        assert_eq!(version(&state, 2), 1);
    });
}

#[test]
fn what_cannot_be_made_durable_is_not_linked_but_written() {
    limited(|| {
        let disk = copied_run();
        let files = INCREMENTAL.open(&disk).unwrap();
        files.restore_newest().unwrap();
        disk.on_call(|_, call| {
            let old = call.path.starts_with(format!("{RUN}/step-1"));
            (call.operation == "sync" && old).then_some(Fault::Error(5))
        });
        files.save(2, transfer(2, 1, 200, false)).unwrap();
        assert_eq!(links(&disk), 0);
        let woken = look(&disk.wake(Outcome::Nothing));
        let state = woken.open(2, true).unwrap().load().unwrap();
        assert_eq!(version(&state, 2), 1);
        Checkpointer::<Transfer>::delete(&files, 1).unwrap();
    });
}

/// The same step with another frozen part, of the same length.
fn thawed(step: u64) -> State {
    let mut state = state(step, 2, 200);
    let thawed = Tensor::from_vec(vec![8u8; 300], &[300]).unwrap();
    state.tensors[0].data = thawed.data;
    state
}

/// A writer whose lock file was removed went by what it had written, and linked to what somebody else had put in
/// its place.
#[test]
fn nothing_is_linked_to_that_was_written_before_the_lock_was_lost() {
    limited(|| {
        let disk = Disk::new();
        let files = INCREMENTAL.open(&disk).unwrap();
        files.save(1, transfer(1, 1, 200, false)).unwrap();
        disk.remove_file(&Path::new(RUN).join(".lock")).unwrap();
        let other = INCREMENTAL.open(&disk).unwrap();
        let overwrite = Transfer {
            state: thawed(1),
            ..transfer(1, 2, 200, true)
        };
        other.save(1, overwrite).unwrap();
        drop(other);
        files.save(2, transfer(2, 1, 200, false)).unwrap();
        let state = look(&disk).open(2, true).unwrap().load().unwrap();
        assert_eq!(version(&state, 2), 1);
    });
}
