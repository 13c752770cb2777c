//! Each target of the fuzzer, run once over what it found worth keeping, so that none of them rots.

use std::fs;
use std::path::Path;

use crate::targets::{checkpoint, header, manifest};

fn run(target: &str, body: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in fs::read_dir(&directory).expect("the corpus is there") {
        let path = entry.expect("it can be listed").path();
        let bytes = fs::read(&path).expect("it can be read");
        let passed = std::panic::catch_unwind(|| body(&bytes));
        // `fuzz/run TARGET 0 FILE` does the same.
        assert!(passed.is_ok(), "{}", path.display());
        count += 1;
    }
    assert!(count >= 20, "only {count} inputs are kept of {target}");
}

#[test]
fn manifests_of_the_corpus_are_read_or_refused() {
    run("manifest", manifest::run);
}

#[test]
fn headers_of_the_corpus_are_read_or_refused() {
    run("header", header::run);
}

#[test]
fn checkpoints_of_the_corpus_are_restored_or_refused() {
    run("checkpoint", checkpoint::run);
}
