use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pitstop::storage::errno_of;
use pitstop::{
    AsyncCheckpointer, Checkpointer, CheckpointerError, FileCheckpointer, Interrupter, Options,
    Retention, Transfer,
};

use crate::run::{content, names, scored, state, steps};
use crate::time_limit::limited;
use crate::watched::Watched;

/// No space left on device.
const ENOSPC: i32 = 28;
/// Input/output error.
const EIO: i32 = 5;

/// A run with two checkpoints, whose disk fails when told to.
struct Scene {
    dir: tempfile::TempDir,
    disk: Watched,
    fail_from: Arc<AtomicUsize>,
    fail_until: Arc<AtomicUsize>,
    checkpointer: AsyncCheckpointer<Transfer>,
}

impl Scene {
    fn new(errno: i32) -> Scene {
        Scene::with(errno, |checkpointer| checkpointer)
    }

    fn with(
        errno: i32,
        change: impl FnOnce(AsyncCheckpointer<Transfer>) -> AsyncCheckpointer<Transfer>,
    ) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let never = || Arc::new(AtomicUsize::new(usize::MAX));
        let (fail_from, fail_until) = (never(), never());
        let (from, until) = (Arc::clone(&fail_from), Arc::clone(&fail_until));
        let disk = Watched::new(move |number, _| {
            let failing = from.load(Ordering::SeqCst)..until.load(Ordering::SeqCst);
            if failing.contains(&number) {
                return Err(io::Error::from_raw_os_error(errno));
            }
            Ok(())
        });
        let options = Options {
            retention: Retention::keep_last(2).unwrap(),
            ..Options::default()
        };
        let storage = Arc::new(disk.clone());
        let files = FileCheckpointer::with_storage(storage, dir.path(), options).unwrap();
        let checkpointer = change(AsyncCheckpointer::new(files));
        let scene = Scene {
            dir,
            disk,
            fail_from,
            fail_until,
            checkpointer,
        };
        for step in [1, 2] {
            scene.save(step).unwrap();
        }
        scene
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Saves, waits, and says what the caller is told.
    fn save(&self, step: usize) -> Result<(), CheckpointerError> {
        self.checkpointer.save(step, Transfer::from(state(step)))?;
        self.checkpointer.wait(None).map(drop)
    }

    /// The next `count` calls from the `nth` on fail.
    fn fail(&self, nth: usize, count: usize) {
        let from = self.disk.calls().len() + nth;
        self.fail_until
            .store(from.saturating_add(count), Ordering::SeqCst);
        self.fail_from.store(from, Ordering::SeqCst);
    }

    fn heal(&self) {
        self.fail_from.store(usize::MAX, Ordering::SeqCst);
    }

    /// Whether the disk has come to the calls that fail.
    fn struck(&self) -> bool {
        self.disk.calls().len() > self.fail_from.load(Ordering::SeqCst)
    }

    fn hidden(&self) -> Vec<String> {
        let mut names = names(self.dir());
        names.retain(|name| name.starts_with('.') && name != ".lock");
        names
    }
}

/// The original message, with the number and the path of the system underneath.
fn check_message(scene: &Scene, error: &CheckpointerError, errno: i32, case: &str) {
    let message = error.to_string();
    let start = "Error when saving the state: I/O Error: `cannot ";
    assert!(message.starts_with(start), "{case}: {message}");
    let system = io::Error::from_raw_os_error(errno).to_string();
    assert!(
        message.ends_with(&format!("{system}`")),
        "{case}: {message}"
    );
    let CheckpointerError::Worker(failure) = error else {
        panic!("{case}: {error:?}");
    };
    let root = failure.source().unwrap().source().unwrap();
    let (found, path) = errno_of(root.downcast_ref().unwrap()).unwrap();
    assert_eq!(found, errno, "{case}");
    assert!(path.starts_with(scene.dir()), "{case}: {}", path.display());
}

/// Lets each call of one save fail in turn, `count` calls at a time, until none is left to fail.
fn for_each_failure(
    errno: i32,
    count: usize,
    save: impl Fn(&Scene) -> Result<(), CheckpointerError>,
    check: impl Fn(&Scene, bool, &str),
) {
    let mut failures = 0;
    for nth in 0.. {
        let scene = Scene::new(errno);
        scene.fail(nth, count);
        let result = save(&scene);
        let struck = scene.struck();
        let first = scene.fail_from.load(Ordering::SeqCst);
        scene.heal();
        if !struck {
            result.unwrap();
            break;
        }
        let case = format!("{:?} failed", scene.disk.calls()[first]);
        if let Err(error) = &result {
            failures += 1;
            check_message(&scene, error, errno, &case);
            // Told once.
            assert!(scene.checkpointer.wait(None).unwrap(), "{case}");
        }
        check(&scene, result.is_err(), &case);
        // The cause is gone: it works again, in this process and in the next.
        scene.save(4).unwrap();
        assert_eq!(content(scene.dir(), 4), 4, "{case}");
        scene.checkpointer.close().unwrap();
        let Scene {
            dir, checkpointer, ..
        } = scene;
        drop(checkpointer);
        drop(FileCheckpointer::open(dir.path(), Options::default()).unwrap());
        let left = names(dir.path());
        let visible = |name: &String| name == ".lock" || name.starts_with("step-");
        assert!(left.iter().all(visible), "{case}: {left:?}");
    }
    assert!(failures >= 10, "only {failures} calls made the save fail");
}

#[test]
fn one_failed_call_fails_the_save_and_leaves_everything_as_it_was() {
    limited(|| {
        for errno in [ENOSPC, EIO] {
            for_each_failure(
                errno,
                1,
                |scene| scene.save(3),
                |scene, failed, case| {
                    let expected: &[u64] = if failed { &[1, 2] } else { &[2, 3] };
                    let found = steps(scene.dir());
                    // A save that got through may have failed to prune; it does so after the next one.
                    assert!(found.ends_with(expected), "{case}: {found:?}");
                    for step in found {
                        assert_eq!(content(scene.dir(), step), step as i64, "{case}");
                    }
                    if failed {
                        assert_eq!(scene.hidden(), [""; 0], "{case}");
                    }
                },
            );
        }
    });
}

#[test]
fn a_disk_that_stays_full_harms_no_older_checkpoint() {
    limited(|| {
        for_each_failure(
            ENOSPC,
            usize::MAX,
            |scene| scene.save(3),
            |scene, failed, case| {
                let found = steps(scene.dir());
                assert!(found.contains(&2), "{case}: {found:?}");
                assert!(!failed || found.contains(&1), "{case}: {found:?}");
                // The third may have got its name before the disk refused to take it back: then it is whole.
                for step in found {
                    assert_eq!(content(scene.dir(), step), step as i64, "{case}");
                }
            },
        );
    });
}

#[test]
fn one_failed_call_of_an_overwriting_save_leaves_the_old_one() {
    let overwrite = |scene: &Scene| {
        let mut third = scored(3, 0.5);
        third.options.overwrite = true;
        scene.checkpointer.save(2, third)?;
        scene.checkpointer.wait(None).map(drop)
    };
    limited(move || {
        for_each_failure(EIO, 1, overwrite, |scene, failed, case| {
            assert_eq!(steps(scene.dir()), [1, 2], "{case}");
            assert_eq!(content(scene.dir(), 1), 1, "{case}");
            assert_eq!(
                content(scene.dir(), 2),
                if failed { 2 } else { 3 },
                "{case}"
            );
            if failed {
                assert_eq!(scene.hidden(), [""; 0], "{case}");
            }
        });
    });
}

#[test]
fn without_a_wait_the_next_save_tells_of_the_failure_once() {
    limited(|| {
        let scene = Scene::new(ENOSPC);
        scene.fail(0, usize::MAX);
        let save = |step| scene.checkpointer.save(step, Transfer::from(state(step)));
        save(3).unwrap();
        check_message(&scene, &save(4).unwrap_err(), ENOSPC, "the next save");
        scene.heal();
        save(5).unwrap();
        scene.checkpointer.close().unwrap();
        assert_eq!(steps(scene.dir()), [2, 5]);
    });
}

#[test]
fn with_an_interrupter_the_loop_is_told_and_saving_goes_on() {
    limited(|| {
        let interrupter = Interrupter::new();
        let told = interrupter.clone();
        let scene = Scene::with(ENOSPC, |it| it.with_interrupter(interrupter));
        scene.fail(0, usize::MAX);
        let save = |step| scene.checkpointer.save(step, Transfer::from(state(step)));
        save(3).unwrap();
        assert!(scene.checkpointer.wait_idle(Duration::from_secs(9)));
        scene.heal();
        save(4).unwrap();
        assert!(told.should_stop());
        let message = told.get_message().unwrap();
        let error = scene.checkpointer.close().unwrap_err();
        check_message(&scene, &error, ENOSPC, "close");
        assert_eq!(message, error.to_string());
        scene.checkpointer.close().unwrap();
        assert_eq!(steps(scene.dir()), [2, 4]);
    });
}

#[test]
fn a_failed_delete_leaves_the_checkpoint_or_nothing() {
    limited(|| {
        for nth in 0.. {
            let scene = Scene::new(EIO);
            scene.fail(nth, 1);
            scene.checkpointer.delete(1).unwrap();
            let result = scene.checkpointer.wait(None);
            let struck = scene.struck();
            scene.heal();
            if !struck {
                break;
            }
            let message = result.unwrap_err().to_string();
            let start = "Error when deleting the state: I/O Error: `cannot ";
            assert!(message.starts_with(start), "call {nth}: {message}");
            let found = steps(scene.dir());
            assert!(
                [&[1, 2][..], &[2]].contains(&&*found),
                "call {nth}: {found:?}"
            );
            for step in found {
                assert_eq!(content(scene.dir(), step), step as i64, "call {nth}");
            }
        }
    });
}
