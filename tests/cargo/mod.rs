//! Builds with the cargo that runs the tests, from what it has at hand already.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a build made.
pub(crate) struct Built {
    /// The program.
    pub(crate) program: PathBuf,
    /// The names of all that had to be compiled or was compiled before.
    #[allow(dead_code, reason = "one of the two tests does not ask")]
    pub(crate) names: Vec<String>,
}

/// Runs cargo in `dir`, offline; fails with what it says if it fails.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--offline")
        .current_dir(dir)
        // The crate must not look for an interpreter unless it is asked to.
        .env("PYO3_PYTHON", "/no/such/python")
        // As this crate's own manifest says, so that its dependencies are not compiled again.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo {arguments:?}: {said}");
    output.stdout
}

/// Builds the one program that `target` names, below `target_dir`. The library has one place there, whatever its
/// features: where others are asked for than those of the tests, it must not be the directory of the tests.
pub(crate) fn build(dir: &Path, target: &[&str], target_dir: &Path) -> Built {
    let mut arguments = vec!["build", "--message-format=json", "--target-dir"];
    arguments.push(target_dir.to_str().unwrap());
    arguments.extend(target);
    let messages: Vec<Value> = serde_json::Deserializer::from_slice(&run(dir, &arguments))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let mut programs = messages.iter().filter_map(|it| it["executable"].as_str());
    let names = messages
        .iter()
        .filter_map(|it| it["target"]["name"].as_str());
    Built {
        program: programs.next_back().unwrap().into(),
        names: names.map(str::to_owned).collect(),
    }
}

/// Where the tests are built: this one lies in `target/debug/deps`.
pub(crate) fn target_dir() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_owned()
}
