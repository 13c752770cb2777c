//! A run looked at as a whole, while a writer goes on or the disk fails.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pitstop::storage::simulated::{Call, Disk, Fault};
use pitstop::{Checkpointer, Mode, RestoreError, Retention, Watch};

use crate::life::Setting;
use crate::time_limit::limited;
use crate::world::{RUN, look, transfer};

/// Input/output error.
const EIO: i32 = 5;
/// Permission denied.
const EACCES: i32 = 13;

/// A run with steps 1 to `last`.
fn run_with(last: u64, setting: Setting) -> Disk {
    let disk = Disk::new();
    let files = setting.open(&disk).unwrap();
    for step in 1..=last {
        files
            .save(step as usize, transfer(step, 1, 200, false))
            .unwrap();
    }
    disk
}

/// The last step was replaced by the next between the look at the directory and the look into it, and the listing
/// was empty, as at no moment the run was.
#[test]
fn a_run_that_always_holds_a_checkpoint_is_never_listed_as_empty() {
    limited(|| {
        let keep_one = Setting {
            keep: Some(1),
            ..Setting::PLAIN
        };
        let disk = run_with(1, keep_one);
        let (writer, saved) = (disk.clone(), AtomicBool::new(false));
        disk.on_call(move |_, call| {
            let path = Path::new(RUN).join("step-1/manifest.json");
            if call.is("open", path) && !saved.swap(true, Ordering::SeqCst) {
                let files = keep_one.open(&writer).unwrap();
                files.save(2, transfer(2, 1, 200, false)).unwrap();
            }
            None
        });
        let listing = look(&disk).listing().unwrap();
        let steps: Vec<u64> = listing.checkpoints.iter().map(|it| it.info.step).collect();
        assert_eq!(steps, [2]);
        assert!(listing.damaged.is_empty());
    });
}

/// One step of somebody else's, closed to everybody, and the whole run could neither be listed nor restored.
#[test]
fn a_step_that_may_not_be_read_does_not_hide_the_others() {
    limited(|| {
        for name in ["manifest.json", "model.safetensors"] {
            let disk = run_with(3, Setting::PLAIN);
            let closed = Path::new(RUN).join("step-3").join(name);
            disk.on_call(move |_, call| call.is("open", &closed).then_some(Fault::Error(EACCES)));
            let run = look(&disk);
            let (found, passed_over) = run
                .newest_intact(|step| Ok((step, run.open(step, true)?)))
                .unwrap();
            assert_eq!(found.unwrap().0, 2);
            let passed_over: Vec<_> = passed_over
                .iter()
                .map(|it| (it.step, it.error.is_damage()))
                .collect();
            assert_eq!(passed_over, [(3, false)]);
            // Tensors are not looked at for a list.
            let listed = if name == "manifest.json" { 2 } else { 3 };
            let steps: Vec<u64> = (1..=listed).collect();
            let infos = run.checkpoints().unwrap();
            assert_eq!(infos.iter().map(|it| it.step).collect::<Vec<_>>(), steps);
            assert_eq!(run.latest().unwrap().unwrap().step, listed);
            let listing = run.listing().unwrap();
            assert_eq!(listing.checkpoints.len() as u64, listed);
            assert_eq!(listing.damaged.len() as u64, 3 - listed);
            assert!(matches!(run.open(3, true), Err(RestoreError::Io(_))));
        }
    });
}

/// It had no checkpoints then, and a script that asked for the latest began from zero.
#[test]
fn a_run_of_which_nothing_may_be_read_is_not_taken_for_an_empty_one() {
    limited(|| {
        let disk = run_with(2, Setting::PLAIN);
        disk.on_call(|_, call| {
            let closed = call.operation == "open" && call.path.ends_with("manifest.json");
            closed.then_some(Fault::Error(EACCES))
        });
        let run = look(&disk);
        assert!(matches!(run.latest(), Err(RestoreError::Io(_))));
        assert!(matches!(run.checkpoints(), Err(RestoreError::Io(_))));
        let best = run.best("loss", Mode::Min);
        assert!(matches!(best, Err(RestoreError::Io(_))));
        let newest = run.newest_intact(|step| run.open(step, true));
        assert!(matches!(newest, Err(RestoreError::Io(_))));
        // That says nothing of the steps before, which are not looked into.
        assert_eq!(run.latest_after(1).unwrap(), None);
    });
}

/// What the rule keeps of three steps, while the tensors of these cannot be read.
fn kept_without(unreadable: &'static [u64]) -> Result<Vec<u64>, RestoreError> {
    let disk = run_with(3, Setting::PLAIN);
    let is_unreadable = |call: &Call, step: &u64| {
        let path = Path::new(RUN).join(format!("step-{step}/model.safetensors"));
        call.is("read", path)
    };
    disk.on_call(move |_, call| {
        let fails = unreadable.iter().any(|step| is_unreadable(call, step));
        fails.then_some(Fault::Error(EIO))
    });
    let rule = Retention::keep_last(1).unwrap();
    let plan = look(&disk).plan(&rule, Watch::nobody())?;
    let kept = plan.iter().filter(|it| it.keep);
    Ok(kept.map(|it| it.step).collect())
}

/// With a disk that read nothing, all that no rule keeps was to be deleted, though nothing was found to be damaged.
#[test]
fn what_cannot_be_read_is_not_taken_for_damaged_when_it_is_the_last_hope() {
    limited(|| {
        assert_eq!(kept_without(&[]).unwrap(), [3]);
        assert_eq!(kept_without(&[3]).unwrap(), [2, 3]);
        assert!(matches!(kept_without(&[1, 2, 3]), Err(RestoreError::Io(_))));
    });
}
