//! Files and directories get the modes that the umask says. A target of its own: the umask is process-wide.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pitstop::{Checkpointer, FileCheckpointer, Node, Options, State, Tensor};
use rustix::fs::Mode;
use rustix::process::umask;

#[path = "worker/time_limit.rs"]
mod time_limit;

fn check(path: &Path, umask: u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    let full = if metadata.is_dir() { 0o777 } else { 0o666 };
    let mode = metadata.permissions().mode() & 0o777;
    assert_eq!(mode, full & !umask, "{} is {mode:o}", path.display());
    if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            check(&entry.unwrap().path(), umask);
        }
    }
}

#[test]
fn files_and_directories_have_the_modes_that_the_umask_says() {
    time_limit::limited(|| {
        let dir = tempfile::tempdir().unwrap();
        for mask in [0o000, 0o002, 0o022, 0o027, 0o077] {
            let before = umask(Mode::from_raw_mode(mask));
            let runs = dir.path().join(format!("{mask:o}"));
            let files = FileCheckpointer::open(runs.join("run"), Options::default()).unwrap();
            for step in [1, 2] {
                let mut state = State::default();
                // From the second save on it is a link.
                let weight = state.push(Tensor::from_vec(vec![1.0f32; 9], &[9]).unwrap());
                state.root = Node::dict([("model", Node::dict([("weight", weight)]))]);
                files.save(step, state).unwrap();
            }
            umask(before);
            check(&runs, mask);
        }
    });
}
