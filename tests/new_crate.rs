//! Somebody else's crate, with nothing but `cargo add pitstop`: it builds without Python, and its own
//! record is saved, restored and deleted by its own checkpointer.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod cargo;
#[path = "worker/time_limit.rs"]
mod time_limit;

use std::fs;
use std::path::Path;
use std::process::Command;

use time_limit::limited;

#[test]
fn a_new_crate_saves_restores_and_deletes_a_record_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (here, new) = (
        Path::new(env!("CARGO_MANIFEST_DIR")),
        dir.path().join("trainer"),
    );
    cargo::run(dir.path(), &["new", "--quiet", "--vcs=none", "trainer"]);
    cargo::run(&new, &["add", "pitstop", "--path", here.to_str().unwrap()]);
    // The versions that are here already: a crate made on the network would look for newer ones.
    fs::copy(here.join("Cargo.lock"), new.join("Cargo.lock")).unwrap();
    fs::write(
        new.join("src/main.rs"),
        include_str!("new_crate/my_record.rs"),
    )
    .unwrap();

    let built = cargo::build(
        &new,
        &["--bin", "trainer"],
        &cargo::target_dir().join("new_crate"),
    );
    assert!(built.names.iter().any(|name| name == "pitstop"));
    let python = built.names.iter().find(|name| name.starts_with("py"));
    assert_eq!(python, None);

    limited(move || {
        let output = Command::new(built.program)
            .env("TMPDIR", dir.path())
            .env("TMP", dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout.trim_ascii(), b"saved, restored, deleted");
    });
}
