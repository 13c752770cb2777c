//! `pitstop watch` where there is no terminal: lines of a run that another process writes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pitstop::Interrupter;
use pitstop::renderer::{EVENTS, Renderer, STOPPING, Screen, ScreenOptions, Split};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Scene;

/// Whatever takes longer than so many seconds hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A watcher in a process of its own, which ends with the test.
struct Watching {
    process: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Watching {
    fn start(directory: &Path) -> Watching {
        let mut process = Command::new(env!("CARGO_BIN_EXE_pitstop"))
            .arg("watch")
            .arg(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in output.lines() {
                // Nobody reads on after a failed test.
                let _ = sender.send(line.unwrap());
            }
        });
        let seen = Vec::new();
        Watching {
            process,
            lines,
            seen,
        }
    }

    /// Reads lines up to one that has the text in it.
    fn until(&mut self, text: &str) {
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => self.seen.push(line),
                Err(error) => panic!("no {text:?}: {error}: {:#?}", self.seen),
            }
            if self.seen.last().unwrap().contains(text) {
                return;
            }
        }
    }

    /// Reads to the end, which must be a good one, and returns all that was printed.
    fn end(self) -> String {
        let (code, printed, stderr) = self.fate();
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{printed}");
        printed
    }

    /// Reads to the end; exit code, all that was printed, errors.
    fn fate(mut self) -> (Option<i32>, String, String) {
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.seen),
            }
        }
        let stderr = text(self.process.stderr.take().unwrap());
        let status = self.process.wait().unwrap();
        let printed = self.seen.join("\n");
        assert!(
            !printed.chars().any(|c| c.is_control() && c != '\n'),
            "{printed:?}"
        );
        (status.code(), printed, stderr)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn text(stderr: ChildStderr) -> String {
    std::io::read_to_string(stderr).unwrap()
}

/// A run that this test writes the events of.
struct Run {
    directory: TempDir,
    events: File,
}

impl Run {
    fn new() -> Run {
        let directory = tempfile::tempdir().unwrap();
        let events = File::create(directory.path().join(EVENTS)).unwrap();
        Run { directory, events }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&mut self, bytes: &str) {
        self.events.write_all(bytes.as_bytes()).unwrap();
    }

    /// Something happens just now.
    fn event(&mut self, event: &Value) {
        self.write(&line(event));
    }

    fn start(&mut self) {
        self.event(&json!({"event": "start", "epochs": 2, "epoch": 0, "step": 0}));
    }

    fn loss(&mut self, value: f64, step: u64) {
        self.event(&json!({"event": "numeric", "split": "train", "name": "loss", "value": value, "step": step}));
    }

    fn end(&mut self) {
        self.event(&json!({"event": "end", "summary": [["digest", "cafe"]]}));
    }

    /// So long ago the run showed a sign of life.
    fn silent_for(&self, time: Duration) {
        self.events.set_modified(SystemTime::now() - time).unwrap();
    }
}

fn line(event: &Value) -> String {
    let mut event = event.clone();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    event["at"] = now.as_secs_f64().into();
    format!("{event}\n")
}

#[test]
fn a_run_is_followed_until_it_is_over() {
    let mut run = Run::new();
    run.start();
    let mut watching = Watching::start(run.path());
    run.event(&json!({"event": "named", "name": "warm-up is over"}));
    watching.until("warm-up is over");
    run.loss(0.75, 1);
    run.loss(0.25, 2);
    run.event(&json!({"event": "stopping", "message": "time is up"}));
    watching.until("time is up");
    run.end();
    let printed = watching.end();
    // The summary has the last value, and what the run said in the end.
    for expected in ["loss", "0.25", "digest", "cafe"] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn a_run_that_is_over_is_summed_up() {
    let mut run = Run::new();
    run.start();
    run.loss(0.125, 1);
    run.end();
    let printed = Watching::start(run.path()).end();
    assert!(printed.contains("0.125"), "{printed}");
    assert!(printed.contains("cafe"), "{printed}");
}

#[test]
fn a_run_that_failed_says_so() {
    let mut run = Run::new();
    run.start();
    run.event(&json!({"event": "end", "error": "ValueError: too large"}));
    let printed = Watching::start(run.path()).end();
    assert!(printed.contains("ValueError: too large"), "{printed}");
}

#[test]
fn a_run_that_has_not_begun_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let mut watching = Watching::start(directory.path());
    watching.until("waiting for a run in");
    let start = line(&json!({"event": "start", "epoch": 0, "step": 0}));
    let end = line(&json!({"event": "end", "summary": [["digest", "cafe"]]}));
    fs::write(directory.path().join(EVENTS), start + &end).unwrap();
    assert!(watching.end().contains("cafe"));
}

/// Nothing but hidden files and checkpoints might be there; what a run is given to begin with often is.
#[test]
fn a_run_that_has_not_begun_may_have_other_files() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.yaml"), "").unwrap();
    let mut watching = Watching::start(directory.path());
    watching.until("no events.jsonl yet; pitstop.Renderer(checkpointer=...) writes it");
    let start = line(&json!({"event": "start", "epoch": 0, "step": 0}));
    let end = line(&json!({"event": "end", "summary": [["digest", "cafe"]]}));
    fs::write(directory.path().join(EVENTS), start + &end).unwrap();
    assert!(watching.end().contains("cafe"));
}

/// Whoever read lines waited for ever.
#[test]
fn a_run_that_died_is_given_up() {
    let mut run = Run::new();
    run.start();
    run.loss(0.125, 1);
    run.silent_for(Duration::from_secs(3600));
    let (code, printed, stderr) = Watching::start(run.path()).fate();
    assert_eq!(code, Some(1), "{printed}{stderr}");
    assert!(printed.contains("0.125"), "{printed}");
    let why = "the run has died, or hangs: no sign of life since ";
    assert!(stderr.contains(why), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn a_run_that_is_resumed_soon_is_not_given_up() {
    let mut run = Run::new();
    run.start();
    run.silent_for(Duration::from_secs(120));
    let mut watching = Watching::start(run.path());
    watching.until("no sign of life since ");
    run.event(&json!({"event": "start", "epochs": 2, "epoch": 1, "step": 7}));
    watching.until("goes on after");
    run.end();
    assert!(watching.end().contains("cafe"));
}

/// What was in flight when the run ended was committed a moment later, and missed.
#[test]
fn the_last_checkpoint_is_told_though_the_run_is_over() {
    let mut run = Run::new();
    run.start();
    let in_flight = json!({"step": 12345, "done": 1, "total": 2, "seconds": 0.5});
    run.event(&json!({"event": "checkpoints", "in_flight": in_flight}));
    run.end();
    let mut watching = Watching::start(run.path());
    watching.until("begins");
    let last = json!({"step": 12345, "at": 1.0, "bytes": 1000, "stall": null, "durable": 0.5});
    run.event(&json!({"event": "checkpoints", "saved": 1, "last": last}));
    let printed = watching.end();
    assert!(printed.contains("checkpoint: step 12,345"), "{printed}");
}

#[test]
fn events_that_somebody_removes_are_missed() {
    let mut run = Run::new();
    run.start();
    let mut watching = Watching::start(run.path());
    watching.until("begins");
    let path = run.path().join(EVENTS);
    fs::remove_file(&path).unwrap();
    watching.until("events.jsonl is gone");
    run.events = File::create(path).unwrap();
    run.start();
    run.end();
    assert!(watching.end().contains("cafe"));
}

#[test]
fn a_line_that_is_written_in_two_parts_is_read_as_one() {
    let mut run = Run::new();
    run.start();
    let whole = line(&json!({"event": "named", "name": "the half of it"}));
    let (first, second) = whole.split_at(whole.len() / 2);
    run.write(first);
    let mut watching = Watching::start(run.path());
    watching.until("begins");
    run.write(second);
    watching.until("the half of it");
    run.end();
    let printed = watching.end();
    assert!(printed.contains("the half of it: 1 time"), "{printed}");
}

#[test]
fn a_line_that_cannot_be_read_spoils_no_other() {
    let mut run = Run::new();
    run.start();
    // What a machine that lost power may leave, and what a later version may write.
    run.write("{\"at\": 1.0, \"event\": \"num\n\0\0\0\0\n");
    run.event(&json!({"event": "from_the_future", "value": 1}));
    run.loss(0.0625, 1);
    run.end();
    let printed = Watching::start(run.path()).end();
    assert!(printed.contains("0.0625"), "{printed}");
}

#[test]
fn nothing_that_a_terminal_would_obey_gets_through() {
    let mut run = Run::new();
    run.start();
    let hostile = "a\u{1b}[2Jb\rc\nd\u{9b}31me";
    run.event(&json!({"event": "named", "name": hostile, "text": hostile}));
    run.event(
        &json!({"event": "numeric", "split": "valid", "name": hostile, "value": 0.5, "step": 1}),
    );
    run.event(&json!({"event": "text", "split": "valid", "name": hostile, "text": hostile}));
    run.event(&json!({"event": "stopping", "message": hostile}));
    run.event(&json!({"event": "end", "summary": [[hostile, hostile]], "error": hostile}));
    // The end looks for control characters.
    let printed = Watching::start(run.path()).end();
    assert!(printed.contains("[2Jb"), "{printed}");
}

#[test]
fn two_watchers_see_the_same_and_leave_no_trace() {
    let mut run = Run::new();
    run.start();
    let mut watching = [Watching::start(run.path()), Watching::start(run.path())];
    run.loss(0.5, 1);
    run.event(&json!({"event": "named", "name": "halfway"}));
    for one in &mut watching {
        one.until("halfway");
    }
    let before = fs::read(run.path().join(EVENTS)).unwrap();
    assert_eq!(fs::read_dir(run.path()).unwrap().count(), 1);
    assert_eq!(fs::read(run.path().join(EVENTS)).unwrap(), before);
    run.end();
    for one in watching {
        assert!(one.end().contains("cafe"));
    }
}

#[test]
fn a_request_to_stop_reaches_the_run() {
    let directory = tempfile::tempdir().unwrap();
    let interrupter = Interrupter::new();
    let mut screen = Screen::plain(ScreenOptions {
        interrupter: interrupter.clone(),
        directory: Some(directory.path().to_owned()),
        ..ScreenOptions::default()
    });
    screen.start(Some(1), 0, 0);
    let mut watching = Watching::start(directory.path());
    watching.until("begins");
    let asked = Command::new(env!("CARGO_BIN_EXE_pitstop"))
        .args(["watch", "--stop"])
        .arg(directory.path())
        .output()
        .unwrap();
    assert!(asked.status.success(), "{asked:?}");
    let printed = String::from_utf8(asked.stdout).unwrap();
    assert_eq!(printed, "the run was asked to stop, and has heard it\n");
    assert!(interrupter.should_stop());
    assert_eq!(interrupter.get_message().as_deref(), Some(STOPPING));
    // Those who watch learn of it, and the request is gone.
    watching.until(STOPPING);
    assert_eq!(names(directory.path()), [EVENTS]);
    screen.numeric(Split::Train, "loss", 0.5, 1);
    screen.end(Vec::new());
    screen.close();
    assert!(watching.end().contains("0.5"));
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_run_that_is_over_is_not_asked_to_stop() {
    let scene = Scene::new();
    let over = line(&json!({"event": "start", "epoch": 0, "step": 0}));
    let over = over + &line(&json!({"event": "end"}));
    fs::write(scene.at("run").join(EVENTS), over).unwrap();
    let stderr = scene.fails("watch run --stop", 1);
    assert!(
        stderr.contains("run: cannot ask the run to stop: it is over"),
        "{stderr}"
    );
    assert!(!scene.at("run/.stop").exists());
}

/// All of these were asked, as it seemed.
#[test]
fn who_cannot_hear_is_not_asked_to_stop() {
    let scene = Scene::new();
    let stderr = scene.fails("watch run --stop", 1);
    assert!(stderr.contains("there is no events.jsonl"), "{stderr}");
    assert!(!scene.at("run/.stop").exists());

    let mut run = Run::new();
    run.start();
    let stop = ["watch", "--stop", run.path().to_str().unwrap()].join(" ");
    run.silent_for(Duration::from_secs(120));
    let stderr = scene.fails(&stop, 1);
    assert!(stderr.contains("no sign of life since "), "{stderr}");
    assert_eq!(names(run.path()), [EVENTS]);

    run.silent_for(Duration::ZERO);
    fs::create_dir(run.path().join(".stop")).unwrap();
    let stderr = scene.fails(&stop, 1);
    assert!(stderr.contains(".stop is a directory"), "{stderr}");
}

#[test]
fn what_cannot_be_watched_is_named() {
    let scene = Scene::new();
    fs::write(scene.at("file"), "").unwrap();
    for (arguments, why) in [
        ("watch none", "none: there is no such directory"),
        ("watch none --stop", "none: there is no such directory"),
        ("watch file", "this is a file"),
    ] {
        let stderr = scene.fails(arguments, 1);
        assert!(stderr.contains(why), "{arguments}: {stderr}");
    }
    for (arguments, why) in [
        ("watch run/step-10", "name the directory of its run"),
        ("watch run --json", "events.jsonl"),
        ("watch run --stop --plain", "cannot be used with"),
    ] {
        let stderr = scene.fails(arguments, 2);
        assert!(stderr.contains(why), "{arguments}: {stderr}");
    }
}

#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_ends_the_watching_quietly() {
    let scene = Scene::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let over = line(&json!({"event": "end", "summary": [["digest", "cafe"]]}));
    fs::write(scene.at("run").join(EVENTS), over).unwrap();
    let output = scene
        .command("watch run")
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn events_beside_checkpoints_are_nobody_elses_business() {
    let scene = Scene::new();
    let events = line(&json!({"event": "end"}));
    let files: [PathBuf; 2] = [scene.at("run").join(EVENTS), scene.at("run/.stop")];
    for file in &files {
        fs::write(file, &events).unwrap();
    }
    assert_eq!(scene.steps(), [10, 20, 30]);
    assert_eq!(scene.json("verify run", 0)["intact"], true);
    scene.text("prune run --keep-last 2 --yes");
    scene.text("rm run 20 --yes");
    assert_eq!(scene.steps(), [30]);
    for file in &files {
        assert_eq!(fs::read_to_string(file).unwrap(), events);
    }
    // A run that has events, and no checkpoint yet.
    fs::create_dir(scene.at("young")).unwrap();
    fs::write(scene.at("young").join(EVENTS), &events).unwrap();
    assert_eq!(scene.json("ls young", 0)["checkpoints"], json!([]));
}
