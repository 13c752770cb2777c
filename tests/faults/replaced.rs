//! A reader, and a step that is replaced while it is being read.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use pitstop::storage::simulated::{Disk, Fault};
use pitstop::{Checkpointer, SaveOptions, State, save_as};

use crate::life::Setting;
use crate::time_limit::limited;
use crate::world::{RUN, look, state, version};

/// No such file or directory.
const ENOENT: i32 = 2;

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
