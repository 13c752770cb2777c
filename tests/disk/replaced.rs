//! A reader, and a step that is replaced while it is being read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pitstop::save_as;
use pitstop::{Checkpointer, FileCheckpointer, Local, Options, Run, SaveOptions, State};

use crate::run::{content, state};
use crate::watched::Watched;

/// Step 7 is replaced after its manifest was read. The next look for the manifest may be on its way through
/// the directory that was swapped out, and find nothing in it.
#[test]
fn files_of_another_checkpoint_are_never_taken_for_its_own() {
    for misses in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let files = FileCheckpointer::open(dir.path(), Options::default()).unwrap();
        Checkpointer::<State>::save(&files, 7, state(7)).unwrap();
        let path = files.run().path(7);
        let (manifests, replaced) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let disk = Watched::new(move |_, call| {
            if call.is("open", &path.join("model.safetensors"))
                && replaced.fetch_add(1, Ordering::SeqCst) == 0
            {
                let overwrite = SaveOptions {
                    overwrite: true,
                    ..SaveOptions::default()
                };
                save_as(&Local::new(), &path, 7, state(8), &overwrite)?;
            }
            let look = call.is("open", &path.join("manifest.json"))
                && (1..=misses).contains(&manifests.fetch_add(1, Ordering::SeqCst));
            if look {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(())
        });
        let opened = Run::new(Arc::new(disk), dir.path()).open(7, false).unwrap();
        let read = opened.load().unwrap();
        let weight = read.root.get("model").unwrap().get("weight").unwrap();
        let weight = read.tensor(weight).unwrap().to_vec::<u64>().unwrap();
        let step = read.root.get("step").unwrap().as_int().unwrap();
        assert_eq!(weight, [step as u64; 100], "misses: {misses}");
        assert_eq!(content(dir.path(), 7), 8);
    }
}
