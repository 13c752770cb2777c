//! The program `pitstop`: what it prints and how it ends. What it does is tested where it is done, in `tests/look`.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pitstop::{
    Checkpointer, FileCheckpointer, Node, Options, SaveOptions, State, Tensor, Transfer,
};
use serde_json::Value;
use tempfile::TempDir;

/// A run of three steps, 10, 20 and 30; the loss is best at 20, and NaN at 30.
struct Scene {
    directory: TempDir,
}

fn state(n: i64) -> State {
    let mut state = State::default();
    let weight = state.push(Tensor::from_vec(vec![n as f32; 6], &[2, 3]).unwrap());
    let hostile = state.push(Tensor::from_vec(vec![1u8], &[1]).unwrap());
    let model = Node::dict([("weight", weight), ("a\u{1b}[31m\nb\u{9b}", hostile)]);
    state.root = Node::dict([("model", model), ("epoch", Node::Int(n))]);
    state
}

impl Scene {
    fn new() -> Scene {
        let directory = tempfile::tempdir().unwrap();
        let files =
            FileCheckpointer::open(directory.path().join("run"), Options::default()).unwrap();
        for (n, loss) in [(1, 3.0), (2, 1.5), (3, f64::NAN)] {
            let transfer = Transfer {
                options: SaveOptions {
                    metrics: [("loss".to_owned(), loss)].into(),
                    metadata: Node::from("a \u{1b}]0;note"),
                    ..SaveOptions::default()
                },
                ..Transfer::from(state(n))
            };
            files.save(n as usize * 10, transfer).unwrap();
        }
        Scene { directory }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pitstop"));
        command
            .current_dir(self.directory.path())
            .args(arguments.split(' '))
            .stdin(Stdio::null());
        command
    }

    /// Exit code, output, errors.
    fn run(&self, arguments: &str) -> (i32, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(stdout), text(stderr));
        assert!(!stderr.contains("panicked"), "{stderr}");
        // Into a pipe go no colours, and never anything hidden.
        for c in stdout.chars().chain(stderr.chars()) {
            assert!(c == '\n' || !c.is_control(), "{c:?} in {stdout}{stderr}");
        }
        (status.code().unwrap(), stdout, stderr)
    }

    /// What it prints, if all goes well.
    fn text(&self, arguments: &str) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!((code, stderr.as_str()), (0, ""), "{arguments}: {stdout}");
        stdout
    }

    fn json(&self, arguments: &str, expected: i32) -> Value {
        let (code, stdout, stderr) = self.run(&format!("{arguments} --json"));
        assert_eq!(
            (code, stderr.as_str()),
            (expected, ""),
            "{arguments}: {stdout}"
        );
        serde_json::from_str(&stdout).unwrap()
    }

    /// Why it fails.
    fn fails(&self, arguments: &str, expected: i32) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!(
            (code, stdout.as_str()),
            (expected, ""),
            "{arguments}: {stderr}"
        );
        assert!(!stderr.is_empty(), "{arguments}");
        stderr
    }

    fn steps(&self) -> Vec<u64> {
        let listed = self.json("ls run", 0);
        let steps = listed["checkpoints"].as_array().unwrap().iter();
        steps.map(|it| it["step"].as_u64().unwrap()).collect()
    }

    fn damage(&self, step: u64) {
        flip(
            &self.at(&format!("run/step-{step}/model.safetensors")),
            4096,
        );
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn ls_lists_what_is_committed() {
    let scene = Scene::new();
    let text = scene.text("ls run");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with("STEP  SAVED (UTC)"), "{text}");
    assert!(
        lines[2].starts_with("  20  20") && lines[2].ends_with("loss 1.5"),
        "{text}"
    );
    let json = scene.json("ls run", 0);
    let first = &json["checkpoints"][0];
    assert_eq!(
        (&first["step"], &first["metrics"]["loss"]),
        (&10.into(), &3.0.into())
    );
    assert_eq!(first["path"], "run/step-10");
    assert!(first["created"].as_str().unwrap().ends_with('Z'));
    assert!(
        json["checkpoints"][2]["metrics"]["loss"]
            .as_str()
            .unwrap()
            .starts_with("nan:")
    );
    if cfg!(unix) {
        assert_eq!(
            (&first["new_bytes"], &first["linked_bytes"]),
            (&first["bytes"], &0.into())
        );
    }
    assert_eq!(
        scene.json("ls run/step-20", 0)["checkpoints"][0]["step"],
        20
    );

    flip(&scene.at("run/step-20/manifest.json"), 100);
    let json = scene.json("ls run", 1);
    assert_eq!(
        (
            json["checkpoints"].as_array().unwrap().len(),
            &json["damaged"][0]["step"]
        ),
        (2, &20.into())
    );
    let (code, stdout, stderr) = scene.run("ls run");
    assert!(
        code == 1 && stdout.contains("DAMAGED") && stderr.contains("step-20"),
        "{stdout}{stderr}"
    );
}

#[test]
fn show_tells_what_a_checkpoint_holds() {
    let scene = Scene::new();
    for arguments in ["show run 20", "show run/step-20", "show run/step-20 20"] {
        let text = scene.text(arguments);
        assert!(
            text.contains("step 20\n") && text.contains("loss 1.5"),
            "{text}"
        );
        let weight = text
            .lines()
            .find(|line| line.contains("    weight"))
            .unwrap();
        assert!(weight.ends_with("F32    [2, 3]  24 B  tensor"), "{text}");
        assert!(text.contains("a\\u{1b}[31m\\nb\\u{9b}"), "{text}");
        assert!(text.contains("metadata  \"a \\u001b]0;note\""), "{text}");
    }
    assert!(scene.text("show run").starts_with("step 30\n"));
    let json = scene.json("show run 20", 0);
    assert_eq!(json["tree"]["dict"]["epoch"], 2);
    assert_eq!(json["metadata"], "a \u{1b}]0;note");
    let weight = &json["tensors"]["model.weight"];
    assert_eq!(
        (&weight["dtype"], &weight["bytes"]),
        (&"F32".into(), &24.into())
    );
    assert_eq!(
        (&weight["shape"], &weight["files"]),
        (&[2, 3].into(), &["model.safetensors"].into())
    );
}

#[test]
fn show_stays_readable_however_long_a_value_is() {
    let scene = Scene::new();
    let losses: Vec<Node> = (0..400).map(Node::Int).collect();
    let mut long = state(4);
    long.root = Node::dict([
        ("rng", Node::Str("x".repeat(3000))),
        ("losses", Node::List(losses)),
        ("betas", Node::Tuple(vec![Node::Float(0.5), Node::None])),
        ("nothing", Node::List(Vec::new())),
        ("rest", long.root),
    ]);
    let files = FileCheckpointer::open(scene.at("run"), Options::default()).unwrap();
    files.save(40, Transfer::from(long)).unwrap();
    let text = scene.text("show run");
    let long = text.lines().filter(|line| line.len() > 1000);
    assert_eq!(long.count(), 1, "{text}");
    for end in [
        "  list of 400: 0, 1, 2, 3, 4, 5, 6, 7, …\n",
        "  tuple of 2: 0.5, null\n",
        "  list of 0\n",
    ] {
        assert!(text.contains(end), "{text}");
    }
}

#[test]
fn the_newest_intact_one_is_meant_where_no_step_is_given() {
    let scene = Scene::new();
    flip(&scene.at("run/step-30/manifest.json"), 100);
    let (code, stdout, stderr) = scene.run("show run");
    assert!(
        code == 0 && stdout.starts_with("step 20\n"),
        "{stdout}{stderr}"
    );
    assert!(
        stderr.contains("passed over: run/step-30/manifest.json"),
        "{stderr}"
    );
    scene.damage(20);
    let (code, stdout, stderr) = scene.run("export run out");
    assert!(
        code == 0 && stdout.starts_with("step 10: exported"),
        "{stdout}{stderr}"
    );
    scene.damage(10);
    let stderr = scene.fails("export run other", 1);
    assert!(
        stderr.contains("step-20/model.safetensors") || stderr.contains("step-30"),
        "{stderr}"
    );
    assert!(!scene.at("other").exists());
}

#[test]
fn verify_names_what_is_damaged_and_says_so_by_its_exit_code() {
    let scene = Scene::new();
    let text = scene.text("verify run");
    assert_eq!(
        text.matches(": intact (2 files, 2 tensors").count(),
        3,
        "{text}"
    );
    assert_eq!(scene.json("verify run", 0)["intact"], true);
    scene.damage(20);
    let (code, stdout, stderr) = scene.run("verify run");
    assert_eq!((code, stderr.as_str()), (1, ""));
    assert!(
        stdout.contains("step 10: intact") && stdout.contains("step 20: DAMAGED"),
        "{stdout}"
    );
    assert!(
        stdout.contains("run/step-20/model.safetensors: tensor \"model.weight\" is damaged"),
        "{stdout}"
    );
    let json = scene.json("verify run", 1);
    assert_eq!(json["intact"], false);
    let damaged = &json["checkpoints"][1];
    assert_eq!(
        (&damaged["step"], &damaged["intact"]),
        (&20.into(), &false.into())
    );
    let damage = &damaged["damage"][0];
    assert_eq!(
        (&damage["file"], &damage["tensor"]),
        (&"model.safetensors".into(), &"model.weight".into())
    );
    assert!(damage["problem"].as_str().unwrap().contains("is damaged"));
    // Others can be asked for.
    scene.text("verify run 10 30");
    scene.text("verify run/step-30");
    assert_eq!(scene.run("verify run 10 20").0, 1);
    assert_eq!(scene.run("verify run/step-20").0, 1);
    fs::write(scene.at("run/step-10/note"), "").unwrap();
    assert_eq!(
        scene.json("verify run 10", 0)["checkpoints"][0]["unexpected"][0],
        "note"
    );
    assert!(
        scene
            .text("verify run 10")
            .contains("step-10/note: not part of the checkpoint")
    );
    fs::remove_file(scene.at("run/step-30/manifest.json")).unwrap();
    for arguments in ["verify run 30", "verify run/step-30"] {
        let (code, stdout, _) = scene.run(arguments);
        assert!(
            code == 1 && stdout.contains("manifest.json: the file is missing"),
            "{stdout}"
        );
    }
}

#[test]
fn diff_tells_what_changed() {
    let scene = Scene::new();
    for arguments in ["diff run 10 20", "diff run/step-10 run/step-20"] {
        let text = scene.text(arguments);
        assert!(
            text.contains("model.weight  F32 [2, 3]      6 of 6                1.0"),
            "{text}"
        );
        assert!(
            text.contains("1 tensor changed, 1 the same; 2 other values changed"),
            "{text}"
        );
        let json = scene.json(arguments, 0);
        assert_eq!(
            (&json["same"], &json["same_tensors"]),
            (&false.into(), &1.into())
        );
        let weight = &json["tensors"]["model.weight"];
        assert_eq!(
            (&weight["change"], &weight["differing"]),
            (&"elements".into(), &6.into())
        );
        assert_eq!(weight["max_abs_difference"], 1.0);
        assert_eq!(
            json["values"],
            serde_json::json!([{"path": "epoch", "before": "1", "after": "2"}])
        );
        assert_eq!(json["metrics"][0]["path"], "loss");
    }
    // Options may stand anywhere.
    assert_eq!(
        scene.text("diff run --json 10 20"),
        scene.text("diff run 10 20 --json")
    );
    assert_eq!(scene.json("diff run 30 30", 0)["same"], true);
    assert_eq!(scene.json("diff run run/step-30", 0)["same"], true);
}

#[test]
fn rm_deletes_what_is_named_and_only_if_it_may() {
    let scene = Scene::new();
    let stderr = scene.fails("rm run 10 20", 2);
    assert!(
        stderr.contains("delete 2 checkpoints (steps 10, 20)?") && stderr.contains("--yes"),
        "{stderr}"
    );
    assert!(
        scene
            .fails("rm run 10 25 --yes", 1)
            .contains("there is no step 25; there are steps 10, 20, 30")
    );
    assert!(
        scene
            .fails("rm run/step-10 10 --yes", 2)
            .contains("name the directory of its run")
    );
    assert_eq!(scene.steps(), [10, 20, 30]);
    let files = FileCheckpointer::open(scene.at("run"), Options::default()).unwrap();
    let stderr = scene.fails("rm run 10 --yes", 1);
    let pid = std::process::id().to_string();
    assert!(
        stderr.contains("is locked by process") && stderr.contains(&pid),
        "{stderr}"
    );
    drop(files);
    assert_eq!(
        scene.text("rm run 20 10 --yes"),
        "step 10: deleted\nstep 20: deleted\n"
    );
    assert_eq!(scene.steps(), [30]);
    assert!(
        scene
            .fails("show run 1", 1)
            .contains("there is no step 1; there is only step 30")
    );
    // A damaged one goes too.
    flip(&scene.at("run/step-30/manifest.json"), 100);
    assert_eq!(
        scene.json("rm run 30 -y", 0)["deleted"],
        serde_json::json!([30])
    );
    // It is a run all the same.
    assert!(scene.steps().is_empty());
    assert_eq!(scene.text("ls run").lines().count(), 1);
}

#[test]
fn prune_says_what_it_would_do_and_does_it_when_told_so() {
    let scene = Scene::new();
    let files = FileCheckpointer::open(scene.at("run"), Options::default()).unwrap();
    let rules = "prune run --keep-last 1 --keep-best loss:min --dry-run";
    let text = scene.text(rules);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].starts_with("  10  delete  no rule"), "{text}");
    assert_eq!(
        lines[2],
        "  20  keep    KeepBest(\"loss\", mode=\"min\"): 1.5"
    );
    assert_eq!(lines[3], "  30  keep    KeepLast(1)");
    let json = scene.json(rules, 0);
    assert_eq!(
        json["retention"],
        "KeepLast(1) | KeepBest(\"loss\", mode=\"min\")"
    );
    assert_eq!(
        json["decisions"][0],
        serde_json::json!({"step": 10, "keep": false, "reasons": []})
    );
    assert_eq!(json["deleted"], serde_json::json!([]));
    assert!(
        scene
            .fails("prune run --keep-last 1 --yes", 1)
            .contains("is locked by process")
    );
    drop(files);
    assert_eq!(scene.run("prune run --keep-last 1").0, 2);
    assert_eq!(scene.steps(), [10, 20, 30]);
    let json = scene.json("prune run --keep-every 20 --keep-best loss:max --yes", 0);
    assert_eq!(json["deleted"], serde_json::json!([30]));
    scene.damage(20);
    // All of them are younger than an hour; which is older by a millisecond, the machine's pace decides.
    let json = scene.json("prune run --keep-for 1h --dry-run", 0);
    for decision in json["decisions"].as_array().unwrap() {
        assert_eq!(decision["reasons"], serde_json::json!(["KeepFor(3600)"]));
    }
    let text = scene.text("prune run --keep-last 1 --yes");
    assert!(
        text.contains("none of those that the rule keeps is intact"),
        "{text}"
    );
    assert_eq!(scene.steps(), [10, 20]);
}

#[test]
fn export_writes_a_file_or_a_directory() {
    let scene = Scene::new();
    let text = scene.text("export run 20 out.safetensors");
    assert!(
        text.starts_with("step 20: exported to out.safetensors ("),
        "{text}"
    );
    let bytes = fs::read(scene.at("out.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("model.weight").unwrap().shape(), [2, 3]);
    assert!(
        scene
            .fails("export run out.safetensors", 1)
            .contains("--force")
    );
    for arguments in [
        "run out.safetensors --force",
        "run --force 20 out.safetensors",
        "run 20 -f out.safetensors",
    ] {
        scene.text(&format!("export {arguments}"));
    }
    scene.text("export run ./20");
    scene.text("export run -d files");
    assert!(scene.at("files/checkpoint.json").exists());
    let json = scene.json("export run/step-10 out --directory", 0);
    assert_eq!(
        (&json["step"], &json["directory"]),
        (&10.into(), &true.into())
    );
    assert!(scene.at("out/checkpoint.json").exists());
    scene.damage(20);
    assert!(
        scene
            .fails("export run 20 other", 1)
            .contains("model.weight")
    );
}

#[test]
fn what_makes_no_sense_is_told_apart_from_what_fails() {
    let scene = Scene::new();
    fs::create_dir(scene.at("empty")).unwrap();
    fs::write(scene.at("file"), "").unwrap();
    for arguments in [
        "",
        "list run",
        "show",
        "show run twenty",
        "verify run -1",
        "diff run",
        "diff run 10 x",
        "diff run 1 2 3",
        "rm run",
        "prune run",
        "prune run --keep-last 0",
        "prune run --keep-last few",
        "prune run --keep-best loss:best",
        "prune run --keep-for soon",
        "show run/step-10 20",
        "export run",
        "export run ten out",
        // Not a file of that name with the newest in it.
        "export run 20",
        "export run 20 --force",
    ] {
        scene.fails(arguments, 2);
    }
    for arguments in [
        "show run abc",
        "verify run 10 abc",
        "rm run abc",
        "diff run 10 abc",
        "export run abc out",
    ] {
        let stderr = scene.fails(arguments, 2);
        let why = "a step is a whole number, not \"abc\"";
        assert!(stderr.contains(why), "{arguments}: {stderr}");
    }
    for (arguments, why) in [
        ("ls none", "there is no such directory"),
        ("ls file", "this is a file"),
        ("ls .", "there are no checkpoints here"),
        ("verify empty", "there are no checkpoints here"),
        ("verify empty 5", "there is no step 5; there are none"),
        ("show empty", "there is no intact checkpoint here"),
        (
            "show run 25",
            "there is no step 25; there are steps 10, 20, 30",
        ),
        ("verify run 25", "there is no step 25"),
        ("export run 25 out", "there is no step 25"),
        ("export run none/out", "none: there is no such directory"),
        ("rm none 5 --yes", "there is no such directory"),
        (
            "prune empty --keep-last 1 --yes",
            "there are no checkpoints here",
        ),
    ] {
        let stderr = scene.fails(arguments, 1);
        assert!(stderr.contains(why), "{arguments}: {stderr}");
    }
    let listed = scene.json("ls empty", 0);
    assert_eq!(listed["checkpoints"], serde_json::json!([]));
    // Looking makes nothing.
    assert!(fs::read_dir(scene.at("empty")).unwrap().next().is_none());
    let help = scene.text("--help");
    for command in [
        "ls", "show", "verify", "diff", "rm", "prune", "export", "watch",
    ] {
        assert!(help.contains(command), "{help}");
        assert!(
            scene
                .text(&format!("{command} --help"))
                .contains("Usage: pitstop")
        );
    }
    assert!(scene.text("--version").starts_with("pitstop "));
}

#[test]
#[cfg(unix)]
fn a_reader_that_goes_away_ends_it_quietly() {
    let scene = Scene::new();
    for arguments in ["ls run", "show run --json", "verify run", "diff run 10 20"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = scene
            .command(arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(141), "{arguments}");
        assert!(output.stderr.is_empty(), "{arguments}: {output:?}");
    }
}

#[test]
#[cfg(unix)]
fn links_out_of_a_checkpoint_are_not_followed() {
    let scene = Scene::new();
    let file = scene.at("run/step-20/model.safetensors");
    fs::copy(&file, scene.at("elsewhere")).unwrap();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(scene.at("elsewhere"), &file).unwrap();
    let (code, stdout, _) = scene.run("verify run 20");
    assert!(
        code == 1 && stdout.contains("it is a symbolic link"),
        "{stdout}"
    );
    assert!(scene.fails("show run 20", 1).contains("symbolic link"));
    assert!(
        scene
            .fails("export run 20 out", 1)
            .contains("symbolic link")
    );
}
