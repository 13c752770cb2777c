//! What others keep in the run directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pitstop::{Checkpointer, FileCheckpointer, Options, Retention, State};

use crate::run::{state, steps};
use crate::time_limit::limited;

/// Every file with its content; links with what they point to.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            found.insert(path, target.into_os_string().into_encoded_bytes());
        } else if path.is_dir() {
            found.extend(tree(&path));
        } else {
            let content = fs::read(&path).unwrap();
            found.insert(path, content);
        }
    }
    found
}

#[test]
fn stray_files_in_the_run_directory_are_left_alone() {
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        for stray in [
            "notes.txt",
            "events/tensorboard.0",
            // They look like ours, and are not.
            "step-abc/manifest.json",
            "step-01/manifest.json",
            "step-7",
            "step-8/weights.bin",
            ".tmp-mine/half",
            ".tmp-final-99-00000000000000ff/half",
            ".del-step-3",
            ".old-step-4-1-0000000000000001",
        ] {
            fs::create_dir_all(run.join(stray).parent().unwrap()).unwrap();
            fs::write(run.join(stray), stray).unwrap();
        }
        #[cfg(unix)]
        {
            let outside = dir.path().join("outside");
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("precious"), "precious").unwrap();
            std::os::unix::fs::symlink(&outside, run.join("step-9")).unwrap();
        }
        let before = tree(dir.path());

        let options = || Options {
            retention: Retention::keep_last(1).unwrap(),
            ..Options::default()
        };
        let open = || FileCheckpointer::open(&run, options()).unwrap();
        for step in 1..=3 {
            // Each one opens the directory anew, which is when it is swept.
            open().save(step, state(step)).unwrap();
        }
        assert_eq!(steps(&run), [3]);
        // Where something else lies, nothing is saved over it.
        for taken in [7, 8, 9] {
            assert!(open().save(taken, state(taken)).is_err());
        }
        Checkpointer::<State>::delete(&open(), 3).unwrap();

        let mut after = tree(dir.path());
        assert!(after.remove(&run.join(".lock")).is_some());
        assert_eq!(after, before);
    });
}
