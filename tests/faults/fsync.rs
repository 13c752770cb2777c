//! A failed fsync is final for the save that it hits.
//!
//! After it the system may have thrown away what it could not write, and a second fsync of the same file answers
//! that all is well.

use pitstop::storage::errno_of;
use pitstop::storage::simulated::{Call, Disk, Fault, Outcome};
use pitstop::{Checkpointer, CheckpointerError, FileCheckpointer, State, Storage};

use crate::life::Setting;
use crate::time_limit::limited;
use crate::world::{World, look, state, world};

/// Input/output error.
const EIO: i32 = 5;

fn is_sync(call: &Call) -> bool {
    call.operation == "sync" || call.operation == "sync directory"
}

fn save(files: &FileCheckpointer, step: u64) -> Result<(), CheckpointerError> {
    Checkpointer::<State>::save(files, step as usize, state(step, 1, 200))
}

/// The second save, whose `nth` sync fails. Returns the calls from that one on; none if there are fewer syncs.
fn fail_sync(disk: &Disk, files: &FileCheckpointer, nth: usize) -> Vec<Call> {
    let before = disk.calls().len();
    let (syncs, count) = (disk.clone(), nth + 1);
    disk.on_call(move |number, call| {
        let count_so_far = || {
            syncs.calls()[before..=number]
                .iter()
                .filter(|it| is_sync(it))
                .count()
        };
        (is_sync(call) && count_so_far() == count).then_some(Fault::Error(EIO))
    });
    let saved = save(files, 2);
    disk.heal();
    let calls = disk.calls()[before..].to_vec();
    let syncs = calls.iter().enumerate().filter(|(_, call)| is_sync(call));
    let Some((at, failed)) = syncs.clone().nth(nth) else {
        saved.unwrap();
        return Vec::new();
    };
    let CheckpointerError::IOError(error) = saved.unwrap_err() else {
        panic!("{failed}: another error");
    };
    assert_eq!(errno_of(&error).unwrap(), (EIO, failed.path.clone()));
    calls[at..].to_vec()
}

#[test]
fn a_failed_fsync_is_never_tried_again_and_never_reported_as_committed() {
    limited(|| {
        let (mut files_hit, mut directories_hit) = (0, 0);
        for nth in 0.. {
            let disk = Disk::new();
            let files = Setting::PLAIN.open(&disk).unwrap();
            save(&files, 1).unwrap();
            let calls = fail_sync(&disk, &files, nth);
            let Some((failed, later)) = calls.split_first() else {
                break;
            };
            let before = World::from([(1, 1)]);
            assert_eq!(world(&look(&disk)), before, "{failed}");
            if failed.operation == "sync" {
                files_hit += 1;
                let touched = |call: &&Call| {
                    call.path == failed.path || call.target.as_ref() == Some(&failed.path)
                };
                let again: Vec<&Call> = later.iter().filter(touched).collect();
                // It is removed, and nothing else.
                assert!(
                    again.iter().all(|call| call.operation == "remove"),
                    "{again:?}"
                );
            } else {
                directories_hit += 1;
            }
            for outcome in disk.outcomes(9, 1) {
                let woken = disk.wake(outcome);
                drop(Setting::PLAIN.open(&woken).unwrap());
                assert_eq!(world(&look(&woken)), before, "{failed}, {outcome:?}");
            }
            // Other files are written, and they are committed.
            save(&files, 2).unwrap();
            let both = World::from([(1, 1), (2, 1)]);
            assert_eq!(world(&look(&disk.wake(Outcome::Nothing))), both, "{failed}");
        }
        // The manifest and three files of tensors; the checkpoint's directory and the run's.
        assert!(files_hit >= 3, "{files_hit}");
        assert_eq!(directories_hit, 2);
    });
}

/// What the test above relies on: the disk does keep from a later sync what an earlier one has lost.
#[test]
fn the_disk_does_not_make_up_for_a_failed_sync() {
    let disk = Disk::new();
    let file = disk.create("/a".as_ref(), 4).unwrap();
    disk.sync_dir("/".as_ref()).unwrap();
    file.write_at(0, b"lost").unwrap();
    disk.on_call(|_, _| Some(Fault::Error(EIO)));
    file.sync().unwrap_err();
    disk.heal();
    file.sync().unwrap();
    let woken = disk.wake(Outcome::Nothing);
    assert_eq!(woken.open("/a".as_ref()).unwrap().len(), 0);
}
