//! A reader, and a step that is replaced while it is being read.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pitstop::storage::errno_of;
use pitstop::storage::simulated::{Disk, Fault};
use pitstop::{Checkpointer, RestoreError, SaveOptions, State, save_as};

use crate::life::Setting;
use crate::time_limit::limited;
use crate::world::{RUN, look, state, version};

/// No such file or directory.
const ENOENT: i32 = 2;
/// Too many open files.
const EMFILE: i32 = 24;

/// Step 7 is replaced after its manifest was read. The next look for the manifest may be on its way through
/// the directory that was swapped out, and find nothing in it.
#[test]
fn files_of_another_checkpoint_are_never_taken_for_its_own() {
    limited(|| {
        for misses in 0..3 {
            let disk = Disk::new();
            let files = Setting::PLAIN.open(&disk).unwrap();
            Checkpointer::<State>::save(&files, 7, state(7, 1, 200)).unwrap();
            let path = Path::new(RUN).join("step-7");
            let (manifests, replaced) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let writer = disk.clone();
            disk.on_call(move |_, call| {
                if call.is("open", path.join("model.safetensors"))
                    && replaced.fetch_add(1, Ordering::SeqCst) == 0
                {
                    let overwrite = SaveOptions {
                        overwrite: true,
                        ..SaveOptions::default()
                    };
                    save_as(&writer, &path, 7, state(7, 2, 200), &overwrite).unwrap();
                }
                let missed = call.is("open", path.join("manifest.json"))
                    && (1..=misses).contains(&manifests.fetch_add(1, Ordering::SeqCst));
                missed.then_some(Fault::Error(ENOENT))
            });
            let read = look(&disk).open(7, false).unwrap().load().unwrap();
            assert_eq!(version(&read, 7), 2, "misses: {misses}");
        }
    });
}

/// Opening it was begun again for as long as that went on, and all files that it had opened stayed open.
#[test]
fn a_checkpoint_that_is_replaced_whenever_it_is_opened_is_given_up() {
    limited(|| {
        let disk = Disk::new();
        let path = Path::new(RUN).join("step-7");
        let overwrite = SaveOptions {
            overwrite: true,
            ..SaveOptions::default()
        };
        save_as(&disk, &path, 7, state(7, 0, 200), &overwrite).unwrap();
        let (writer, versions) = (disk.clone(), AtomicU64::new(1));
        disk.on_call(move |_, call| {
            if call.is("open", path.join("model.safetensors")) {
                let version = versions.fetch_add(1, Ordering::SeqCst);
                save_as(&writer, &path, 7, state(7, version, 200), &overwrite).unwrap();
            }
            None
        });
        let error = look(&disk).open(7, false).unwrap_err();
        assert!(error.to_string().contains("replaced"), "{error}");
        disk.heal();
        look(&disk).open(7, true).unwrap().verify().unwrap();
        assert_eq!(disk.open_files(), 0);
    });
}

/// It was taken for replaced, and begun again, whenever there was no file descriptor left for the second look.
#[test]
fn what_stands_in_the_way_of_the_second_look_at_a_manifest_is_told() {
    limited(|| {
        let disk = Disk::new();
        let manifest = Path::new(RUN).join("step-7/manifest.json");
        let files = Setting::PLAIN.open(&disk).unwrap();
        Checkpointer::<State>::save(&files, 7, state(7, 1, 200)).unwrap();
        let (opened, watched) = (AtomicUsize::new(0), manifest.clone());
        disk.on_call(move |_, call| {
            let second =
                call.is("open", &watched) && opened.fetch_add(1, Ordering::SeqCst) % 2 == 1;
            second.then_some(Fault::Error(EMFILE))
        });
        match look(&disk).open(7, false).unwrap_err() {
            RestoreError::Io(error) => assert_eq!(errno_of(&error), Some((EMFILE, manifest))),
            other => panic!("{other}"),
        }
    });
}
