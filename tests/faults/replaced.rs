//! A reader, and a step that is replaced while it is being read.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use pitstop::storage::errno_of;
use pitstop::storage::simulated::{Disk, Fault};
use pitstop::{Checkpointer, RestoreError, SaveOptions, State, Watch, save_as};

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

/// All that it had found was thrown away, and the checkpoint called one that is replaced whenever it is opened.
#[test]
fn what_a_verification_has_found_is_told_though_it_cannot_look_again() {
    limited(|| {
        let disk = Disk::new();
        let step = Path::new(RUN).join("step-7");
        let files = Setting::PLAIN.open(&disk).unwrap();
        Checkpointer::<State>::save(&files, 7, state(7, 1, 200)).unwrap();
        let (manifest, model) = (step.join("manifest.json"), step.join("model.safetensors"));
        let opened = AtomicUsize::new(0);
        disk.on_call(move |_, call| {
            if call.is("open", &model) {
                return Some(Fault::Error(ENOENT));
            }
            let second =
                call.is("open", &manifest) && opened.fetch_add(1, Ordering::SeqCst) % 2 == 1;
            second.then_some(Fault::Error(EMFILE))
        });
        let found = look(&disk).verify(7, Watch::nobody()).unwrap();
        let told: Vec<String> = found.damage.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("model.safetensors: the file is missing"),
            "{told:?}"
        );
        assert!(told[1].contains("manifest.json"), "{told:?}");
    });
}

/// One that was replaced by two renames, and was looked at between them, was said to have lost its manifest.
#[test]
fn a_manifest_is_missing_only_if_it_is_at_a_second_look_too() {
    limited(|| {
        let disk = Disk::new();
        let files = Setting::PLAIN.open(&disk).unwrap();
        Checkpointer::<State>::save(&files, 7, state(7, 1, 200)).unwrap();
        let manifest = Path::new(RUN).join("step-7/manifest.json");
        // As often as one look tries it.
        for (misses, expected) in [(4, 0), (usize::MAX, 1)] {
            let (opened, watched) = (AtomicUsize::new(0), manifest.clone());
            disk.on_call(move |_, call| {
                let missed =
                    call.is("open", &watched) && opened.fetch_add(1, Ordering::SeqCst) < misses;
                missed.then_some(Fault::Error(ENOENT))
            });
            let found = look(&disk).verify(7, Watch::nobody()).unwrap();
            assert_eq!(found.damage.len(), expected, "{:?}", found.damage);
        }
    });
}

#[test]
fn a_checkpoint_that_is_removed_while_it_is_verified_is_no_damaged_one() {
    limited(|| {
        let disk = Disk::new();
        let files = Setting::PLAIN.open(&disk).unwrap();
        Checkpointer::<State>::save(&files, 7, state(7, 1, 200)).unwrap();
        drop(files);
        let model = Path::new(RUN).join("step-7/model.safetensors");
        let (writer, removed) = (disk.clone(), AtomicBool::new(false));
        disk.on_call(move |_, call| {
            if call.is("open", &model) && !removed.swap(true, Ordering::SeqCst) {
                let files = Setting::PLAIN.open(&writer).unwrap();
                Checkpointer::<State>::delete(&files, 7).unwrap();
            }
            None
        });
        match look(&disk).verify(7, Watch::nobody()) {
            Err(RestoreError::NotFound { path }) => assert!(path.ends_with("step-7")),
            other => panic!("{other:?}"),
        }
    });
}
