use std::io;
use std::path::Path;

use super::publish::{Change, publish};
use super::staging::{Hidden, Purpose, remove_tree};
use crate::storage::{EntryKind, Storage};

/// The name of the directory of a checkpoint.
pub(crate) fn step_name(step: u64) -> String {
    format!("step-{step}")
}

/// The step that a name stands for; `None` for every name that [`step_name`] does not give.
pub(crate) fn parse_step(name: &str) -> Option<u64> {
    let step = name.strip_prefix("step-")?.parse().ok()?;
    (step_name(step) == name).then_some(step)
}

/// The steps that have a directory, in ascending order. Whether it holds a checkpoint is for its manifest to say.
///
/// # Errors
///
/// Whatever the disk reports; `NotFound` if there is no run directory.
pub(crate) fn steps(storage: &dyn Storage, run_dir: &Path) -> io::Result<Vec<u64>> {
    let mut steps = Vec::new();
    for name in directories(storage, run_dir)? {
        steps.extend(parse_step(&name));
    }
    steps.sort_unstable();
    Ok(steps)
}

/// Puts right what earlier writers left in the run directory, and makes durable what they did.
///
/// The caller holds the lock: every hidden directory of a step belongs to a writer that is gone. Everything
/// else in the directory is somebody's own, and stays.
///
/// # Errors
///
/// If what is there can't be made durable, or a checkpoint can't be put back. A leftover that can't be
/// removed is no reason to stop a run: it's logged, and tried again the next time.
pub(crate) fn sweep(storage: &dyn Storage, run_dir: &Path) -> io::Result<()> {
    // A writer killed between a rename and its sync leaves names that only memory knows. Nothing may be
    // removed on the strength of those.
    storage.sync_dir(run_dir)?;
    let is_ours = |hidden: &Hidden| parse_step(&hidden.target).is_some();
    clear(storage, run_dir, leftovers(storage, run_dir, is_ours)?)
}

/// As [`sweep`], for one checkpoint that lies by itself and has no lock: what processes left that are gone.
pub(crate) fn sweep_target(storage: &dyn Storage, parent: &Path, target: &str) -> io::Result<()> {
    let left = leftovers(storage, parent, |hidden| {
        hidden.target == target && !is_running(hidden.pid)
    })?;
    if left.is_empty() {
        return Ok(());
    }
    storage.sync_dir(parent)?;
    clear(storage, parent, left)
}

/// Removes what the checkpoint `name` replaced, if it is still there under the name that calls for putting it back.
/// To be done before `name` goes: the next sweep would find its place empty.
///
/// # Errors
///
/// Whatever the disk reports; then the replaced one may still be there.
pub(crate) fn forget_replaced(storage: &dyn Storage, run_dir: &Path, name: &str) -> io::Result<()> {
    let is_replaced =
        |hidden: &Hidden| hidden.purpose == Purpose::Replaced && hidden.target == name;
    let replaced = leftovers(storage, run_dir, is_replaced)?;
    // With nothing in its place it is all that there is.
    if replaced.is_empty() || storage.kind(&run_dir.join(name))?.is_none() {
        return Ok(());
    }
    for hidden in replaced {
        let name = hidden.to_string();
        let hidden = Hidden::new(Purpose::Deleted, &hidden.target).to_string();
        let change = Change::Vanish {
            name: &name,
            hidden: &hidden,
        };
        publish(storage, run_dir, change)?;
        remove_tree(storage, &run_dir.join(hidden))?;
    }
    Ok(())
}

fn clear(storage: &dyn Storage, run_dir: &Path, left: Vec<Hidden>) -> io::Result<()> {
    for hidden in left {
        if hidden.purpose == Purpose::Replaced && put_back(storage, run_dir, &hidden)? {
            continue;
        }
        let path = run_dir.join(hidden.to_string());
        if let Err(error) = remove_tree(storage, &path) {
            log::warn!("a leftover stays: {error}");
        }
    }
    Ok(())
}

/// Whether there is a process of that number, as far as can be told from here.
fn is_running(pid: u32) -> bool {
    #[cfg(unix)]
    {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        // "Not permitted" is an answer of somebody who lives.
        pid.is_some_and(|pid| {
            rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
        })
    }
    #[cfg(not(unix))]
    {
        let _ = pid;
        true
    }
}

/// Hidden directories of writers that are gone; among several replaced ones, the latest first.
fn leftovers(
    storage: &dyn Storage,
    run_dir: &Path,
    is_left: impl Fn(&Hidden) -> bool,
) -> io::Result<Vec<Hidden>> {
    let names = directories(storage, run_dir)?;
    let parsed = names.iter().filter_map(|name| Hidden::parse(name));
    let mut ours: Vec<Hidden> = parsed.filter(is_left).collect();
    // What is to be put back comes before anything is removed.
    ours.sort_by_key(|hidden| (hidden.purpose != Purpose::Replaced, u64::MAX - hidden.nonce));
    Ok(ours)
}

/// Undoes a replacement that was interrupted halfway. False if it got through, and the old one can go.
fn put_back(storage: &dyn Storage, run_dir: &Path, hidden: &Hidden) -> io::Result<bool> {
    let change = Change::Appear {
        staged: &hidden.to_string(),
        name: &hidden.target,
    };
    match publish(storage, run_dir, change) {
        Ok(()) => Ok(true),
        Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn directories(storage: &dyn Storage, run_dir: &Path) -> io::Result<Vec<String>> {
    let entries = storage.list(run_dir)?.into_iter();
    let directories = entries.filter(|entry| entry.kind == EntryKind::Dir);
    // A name that is not UTF-8 is none of ours.
    Ok(directories
        .filter_map(|entry| entry.name.into_string().ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::super::stage;
    use super::*;
    use crate::storage::Local;
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn only_the_plain_decimal_form_is_a_step() {
        assert_eq!(parse_step("step-0"), Some(0));
        assert_eq!(parse_step("step-18446744073709551615"), Some(u64::MAX));
        for name in [
            "step-",
            "step-01",
            "step-+1",
            "step--1",
            "step-1.0",
            "step-1 ",
            "Step-1",
            "step_1",
            "step-18446744073709551616",
            ".step-1",
            "step-1-old",
            "step-\u{661}",
        ] {
            assert_eq!(parse_step(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_step_is_read_back_from_its_name(step: u64) {
            prop_assert_eq!(parse_step(&step_name(step)), Some(step));
        }
    }

    #[test]
    fn steps_are_listed_by_number_and_only_directories() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["step-100", "step-20", "step-3", "step-04", "other"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("step-7"), "a file").unwrap();
        assert_eq!(steps(&Local::new(), dir.path()).unwrap(), [3, 20, 100]);
    }

    #[test]
    fn no_run_directory_is_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = steps(&Local::new(), &dir.path().join("none")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    fn sweep_all(scene: &Scene) -> io::Result<()> {
        sweep(&scene.disk, Scene::dir())
    }

    #[test]
    fn leftovers_go_and_everything_else_stays() {
        let scene = Scene::new();
        let staged = stage(&scene.disk, Scene::dir(), "step-1").unwrap();
        scene.file(&format!("{staged}/half"), "x");
        scene.checkpoint(".del-step-2-99-00000000000000ff", "deleted");
        let theirs = [
            ".lock",
            ".tmp-final-99-00000000000000ff",
            ".tmp-mine",
            ".tmp-step-3-99-00000000000000fe",
            "notes",
            "step-1",
        ];
        scene.file(".lock", "");
        scene.file(theirs[3], "a file, not a directory");
        for name in [theirs[1], theirs[2], theirs[4], theirs[5]] {
            scene.checkpoint(name, name);
        }
        sweep_all(&scene).unwrap();
        assert_eq!(scene.names(), theirs);
    }

    #[test]
    fn names_are_durable_before_anything_is_removed() {
        let mut scene = Scene::new();
        scene.checkpoint(".tmp-step-1-99-00000000000000ff", "x");
        scene.begin();
        sweep_all(&scene).unwrap();
        assert_eq!(scene.calls()[0], "sync directory /run");
        assert_eq!(scene.names(), [""; 0]);
        scene.checkpoint(".tmp-step-1-99-00000000000000ff", "x");
        scene.begin();
        scene.fail(0..usize::MAX);
        sweep_all(&scene).unwrap_err();
        assert_eq!(scene.calls().len(), 1, "nothing was removed");
    }

    #[test]
    fn a_replacement_interrupted_in_the_middle_is_undone() {
        let scene = Scene::new();
        scene.checkpoint(".old-step-1-99-00000000000000fe", "older");
        scene.checkpoint(".old-step-1-99-00000000000000ff", "old");
        scene.checkpoint(".tmp-step-1-99-00000000000000fd", "new");
        sweep_all(&scene).unwrap();
        assert_eq!(scene.names(), ["step-1"]);
        assert_eq!(scene.content("step-1").unwrap(), "old");
    }

    #[test]
    fn a_replacement_that_got_through_stays() {
        let scene = Scene::new();
        scene.checkpoint(".old-step-1-99-00000000000000ff", "old");
        scene.checkpoint("step-1", "new");
        sweep_all(&scene).unwrap();
        assert_eq!(scene.names(), ["step-1"]);
        assert_eq!(scene.content("step-1").unwrap(), "new");
    }

    #[test]
    fn a_leftover_that_stays_does_not_stop_a_run() {
        let scene = Scene::new();
        scene.checkpoint(".tmp-step-1-99-00000000000000ff", "x");
        scene.disk.on_call(|_, call| {
            let removes = call.operation.starts_with("remove");
            removes.then_some(crate::storage::simulated::Fault::Error(5))
        });
        sweep_all(&scene).unwrap();
        assert_eq!(scene.names().len(), 1);
    }

    /// Stops a replacement after each of its calls, as a kill would; the sweep finds one of the two whole.
    #[test]
    fn a_crash_anywhere_in_a_replacement_keeps_one_checkpoint_whole() {
        for exchanges in [true, false] {
            for stop in 0..9 {
                let mut scene = Scene::new();
                scene.disk.set_exchanges(exchanges);
                scene.checkpoint("step-1", "old");
                let staged = stage(&scene.disk, Scene::dir(), "step-1").unwrap();
                scene.file(&format!("{staged}/content"), "new");
                scene.begin();
                scene.fail(stop..usize::MAX);
                let change = Change::Replace {
                    staged: &staged,
                    name: "step-1",
                };
                let done = publish(&scene.disk, Scene::dir(), change).is_ok();
                scene.disk.heal();
                sweep_all(&scene).unwrap();
                assert_eq!(scene.names(), ["step-1"]);
                let found = scene.content("step-1").unwrap();
                assert!(
                    found == "new" || (found == "old" && !done),
                    "{stop}: {found}"
                );
            }
        }
    }
}
