//! The example for native trainers: stopped and resumed it ends as if it had never been stopped.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod cargo;
#[path = "worker/time_limit.rs"]
mod time_limit;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock};

use pitstop::renderer::EVENTS;
use pitstop::{Local, Run, State};
use serde_json::Value;
use time_limit::limited;

static TRAINER: LazyLock<PathBuf> = LazyLock::new(|| {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let features = [
        ("cli", cfg!(feature = "cli")),
        ("tui", cfg!(feature = "tui")),
    ];
    let features = features.map(|(name, is_on)| if is_on { name } else { "" });
    let features = features.join(" ");
    let example = ["--example", "native_trainer", "--features", &features];
    cargo::build(here, &example, &cargo::target_dir()).program
});

fn train(dir: &Path, arguments: &str) -> Output {
    Command::new(&*TRAINER)
        .args(["--steps", "600", "--save-every", "50", "--dir"])
        .arg(dir)
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The steps that were done whenever the run began or went on, as its renderer was told.
fn starts(dir: &Path) -> Vec<u64> {
    let events = fs::read_to_string(dir.join(EVENTS)).unwrap();
    let events = events.lines().map(serde_json::from_str::<Value>);
    let events: Vec<Value> = events.map(Result::unwrap).collect();
    let of = |kind| events.iter().filter(move |it| it["event"] == kind);
    let starts: Vec<u64> = of("start").map(|it| it["step"].as_u64().unwrap()).collect();
    assert_eq!(of("end").count(), starts.len());
    // Whoever watched has seen the last checkpoint.
    let last = of("checkpoints").next_back().unwrap();
    assert_eq!(last["last"]["step"], newest(dir).0);
    starts
}

fn newest(dir: &Path) -> (u64, State) {
    let run = Run::new(Arc::new(Local::new()), dir);
    let (newest, damaged) = run
        .newest_intact(|step| Ok((step, run.open(step, true)?.load()?)))
        .unwrap();
    assert!(damaged.is_empty());
    newest.unwrap()
}

#[test]
fn a_resumed_run_ends_bit_identical_to_one_that_was_never_stopped() {
    LazyLock::force(&TRAINER);
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        let (whole, stopped) = (dir.path().join("whole"), dir.path().join("stopped"));
        let never_stopped = lines(&train(&whole, ""));
        // Between two saves, at one, and twice.
        for (again, stop_after) in [("", 123), (" --resume", 400)] {
            let said = lines(&train(
                &stopped,
                &format!("--stop-after {stop_after}{again}"),
            ));
            let told = format!("stopped at step {stop_after}: somebody asked for it");
            assert!(said.contains(&told), "{said:?}");
        }
        let resumed = lines(&train(&stopped, "--resume"));
        assert_eq!(resumed[0], "resumed from: step 400");
        assert!(resumed.last().unwrap().starts_with("final loss: "));
        assert_eq!(resumed.last(), never_stopped.last());
        assert_eq!(starts(&stopped), [0, 123, 400]);

        let ((step, whole), (same_step, resumed)) = (newest(&whole), newest(&stopped));
        assert_eq!((step, same_step), (600, 600));
        assert_eq!(whole.root, resumed.root);
        for (one, other) in whole.tensors.iter().zip(&resumed.tensors) {
            assert_eq!((&one.name, one.bytes()), (&other.name, other.bytes()));
        }
    });
}

#[test]
fn a_failed_save_stops_the_loop_and_is_the_error_it_ends_with() {
    LazyLock::force(&TRAINER);
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        // In the way of the third checkpoint.
        fs::write(dir.path().join("step-150"), "a file").unwrap();
        let output = train(dir.path(), "--steps 100000");
        assert!(!output.status.success());
        let said = String::from_utf8(output.stdout).unwrap();
        let message = "Error when saving the state: I/O Error: `cannot rename ";
        assert!(said.contains("stopped at step "), "{said}");
        assert!(said.contains(message), "{said}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with(&format!("error: {message}")), "{error}");
        // The loop saved once more before it ended.
        let (step, _) = newest(dir.path());
        assert!((151..100_000).contains(&step), "{step}");
    });
}

#[test]
fn it_does_not_mix_two_runs_in_one_directory() {
    LazyLock::force(&TRAINER);
    limited(|| {
        let dir = tempfile::tempdir().unwrap();
        lines(&train(dir.path(), "--steps 100"));
        let output = train(dir.path(), "--steps 100");
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("--resume"), "{error}");
    });
}
