use std::io;
use std::path::Path;

use super::staging::{Hidden, Purpose};
use crate::storage::Storage;

/// What is to become visible, or not any more. All names are relative to the run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// The directory `staged` gets the name `name`, which is free or an empty directory.
    Appear {
        /// Its hidden name.
        staged: &'a str,
        /// The name that readers look for.
        name: &'a str,
    },
    /// The directory `staged` takes the place of `name`; the one replaced is `staged` afterwards.
    Replace {
        /// Its hidden name.
        staged: &'a str,
        /// The name that readers look for.
        name: &'a str,
    },
    /// The synced file `staged`, in a hidden directory, gets the name `name`, which is free; if `replaces`, what
    /// has that name gets the name `staged`.
    File {
        /// Where it lies.
        staged: &'a str,
        /// The name that it gets.
        name: &'a str,
        /// Whether there is something of that name.
        replaces: bool,
    },
    /// The directory `name` gets the hidden name `hidden`, and can be removed then.
    Vanish {
        /// The name that readers look for.
        name: &'a str,
        /// Its hidden name afterwards.
        hidden: &'a str,
    },
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub(crate) struct PublishError {
    /// What the disk said.
    pub(crate) source: io::Error,
    /// Nothing has changed, neither in memory nor on disk: what was staged may be removed. If false, the
    /// disk may wake up after a power cut with the change made; both directories must then be left alone, for
    /// the next [`sweep`](super::sweep) to judge.
    pub(crate) unchanged: bool,
}

impl From<PublishError> for io::Error {
    fn from(error: PublishError) -> io::Error {
        error.source
    }
}

/// Makes one change to what readers see, durably. The only function that renames.
///
/// Before: every file of `staged` is synced; this function syncs the directory `staged` itself.
/// On return: the change has survived any power cut to come.
/// On error: readers see what they saw before.
///
/// # Errors
///
/// What the disk said, and whether anything may have reached it.
pub(crate) fn publish(
    storage: &dyn Storage,
    run_dir: &Path,
    change: Change<'_>,
) -> Result<(), PublishError> {
    let directory = Directory { storage, run_dir };
    match change {
        Change::Appear { staged, name } => {
            directory.settle(staged)?;
            directory.rename(staged, name)
        }
        Change::Replace { staged, name } => {
            directory.settle(staged)?;
            directory.replace(staged, name)
        }
        Change::File {
            staged,
            name,
            replaces: false,
        } => directory.rename(staged, name),
        Change::File { staged, name, .. } => directory.replace(staged, name),
        Change::Vanish { name, hidden } => directory.rename(name, hidden),
    }
}

struct Directory<'a> {
    storage: &'a dyn Storage,
    run_dir: &'a Path,
}

impl Directory<'_> {
    /// Makes the names of the files in `staged` durable: a checkpoint is whole before it gets its name.
    fn settle(&self, staged: &str) -> Result<(), PublishError> {
        self.storage
            .sync_dir(&self.run_dir.join(staged))
            .map_err(unchanged)
    }

    /// Renames, then syncs the parent: only then may anyone be told. Goes back if that fails.
    fn rename(&self, from: &str, to: &str) -> Result<(), PublishError> {
        self.move_name(from, to).map_err(unchanged)?;
        self.sync()
            .map_err(|error| undone(error, || self.move_back(to, from)))
    }

    /// Swaps, then syncs the parent: only then may the old one be removed. Goes back if that fails.
    fn replace(&self, staged: &str, name: &str) -> Result<(), PublishError> {
        match self.exchange(staged, name) {
            Ok(()) => self.sync().map_err(|error| {
                undone(error, || {
                    self.exchange(staged, name)?;
                    self.sync()
                })
            }),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.replace_in_two_steps(staged, name)
            }
            Err(error) => Err(unchanged(error)),
        }
    }

    /// Where two names can't be swapped at once there is a moment without `name`. The hidden name of the old
    /// one says what it was: if it is found with its place empty, the sweep puts it back.
    fn replace_in_two_steps(&self, staged: &str, name: &str) -> Result<(), PublishError> {
        let old = Hidden::new(Purpose::Replaced, name).to_string();
        // Synced before the next step: else the disk could make the second rename and not the first.
        self.rename(name, &old)?;
        if let Err(error) = self.rename(staged, name) {
            let back = self.move_back(&old, name);
            return Err(PublishError {
                unchanged: error.unchanged && back.is_ok(),
                ..error
            });
        }
        // From here on the new one is durable, and nothing may be reported as failed. The old one must lose
        // the name that calls for putting it back, before somebody deletes the new one.
        if let Err(error) = self.rename(&old, staged) {
            log::warn!("the replaced checkpoint stays as {old}: {error}");
        }
        Ok(())
    }

    fn move_back(&self, to: &str, from: &str) -> io::Result<()> {
        self.move_name(to, from)?;
        self.sync()
    }

    fn move_name(&self, from: &str, to: &str) -> io::Result<()> {
        self.storage
            .rename(&self.run_dir.join(from), &self.run_dir.join(to))
    }

    fn exchange(&self, one: &str, other: &str) -> io::Result<()> {
        self.storage
            .exchange(&self.run_dir.join(one), &self.run_dir.join(other))
    }

    fn sync(&self) -> io::Result<()> {
        self.storage.sync_dir(self.run_dir)
    }
}

fn unchanged(source: io::Error) -> PublishError {
    PublishError {
        source,
        unchanged: true,
    }
}

/// The change was made but not made durable: takes it back, so that memory and disk agree again.
fn undone(source: io::Error, undo: impl FnOnce() -> io::Result<()>) -> PublishError {
    let undo = undo();
    if let Err(error) = &undo {
        log::warn!(
            "a change that could not be made durable could not be taken back either: {error}"
        );
    }
    PublishError {
        source,
        unchanged: undo.is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::*;

    const APPEAR: Change<'_> = Change::Appear {
        staged: ".new",
        name: "step-1",
    };
    const REPLACE: Change<'_> = Change::Replace {
        staged: ".new",
        name: "step-1",
    };
    const VANISH: Change<'_> = Change::Vanish {
        name: "step-1",
        hidden: ".gone",
    };

    /// A run directory with a staged checkpoint `.new`, and these besides.
    fn scene(others: &[&str]) -> Scene {
        let mut scene = Scene::new();
        for name in [&[".new"], others].concat() {
            scene.checkpoint(name, name);
        }
        scene.begin();
        scene
    }

    impl Scene {
        fn publish(&self, change: Change<'_>) -> Result<(), PublishError> {
            publish(&self.disk, Scene::dir(), change)
        }
    }

    #[test]
    fn a_checkpoint_is_whole_before_it_appears_and_durable_before_anyone_is_told() {
        let scene = scene(&[]);
        scene.publish(APPEAR).unwrap();
        let order = [
            "sync directory .new",
            "rename .new to step-1",
            "sync directory /run",
        ];
        assert_eq!(scene.calls(), order);
        assert_eq!(scene.content("step-1").unwrap(), ".new");
        assert_eq!(scene.names(), ["step-1"]);
    }

    #[test]
    fn an_empty_directory_gives_way_to_a_checkpoint() {
        let scene = scene(&[]);
        scene.disk.create_dir(&Scene::path("step-1")).unwrap();
        scene.publish(APPEAR).unwrap();
        assert_eq!(scene.content("step-1").unwrap(), ".new");
    }

    #[test]
    fn a_checkpoint_does_not_give_way_to_one_that_appears() {
        let scene = scene(&["step-1"]);
        let error = scene.publish(APPEAR).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.unchanged);
        assert_eq!(scene.content("step-1").unwrap(), "step-1");
        assert_eq!(scene.content(".new").unwrap(), ".new");
    }

    #[test]
    fn the_replaced_one_ends_under_the_staged_name() {
        for supported in [true, false] {
            let scene = scene(&["step-1"]);
            scene.disk.set_exchanges(supported);
            scene.publish(REPLACE).unwrap();
            assert_eq!(scene.content("step-1").unwrap(), ".new");
            assert_eq!(scene.content(".new").unwrap(), "step-1");
            assert_eq!(scene.names(), [".new", "step-1"]);
        }
    }

    #[test]
    fn replacing_is_one_swap_between_two_syncs() {
        let scene = scene(&["step-1"]);
        scene.publish(REPLACE).unwrap();
        let order = [
            "sync directory .new",
            "exchange .new to step-1",
            "sync directory /run",
        ];
        assert_eq!(scene.calls(), order);
    }

    #[test]
    fn every_step_of_a_slow_replacement_is_durable_before_the_next() {
        let scene = scene(&["step-1"]);
        scene.disk.set_exchanges(false);
        scene.publish(REPLACE).unwrap();
        let calls = scene.calls();
        let calls: Vec<&str> = calls.iter().filter_map(|c| c.split(' ').next()).collect();
        let order = [
            "sync", "exchange", "rename", "sync", "rename", "sync", "rename", "sync",
        ];
        assert_eq!(calls, order);
    }

    #[test]
    fn a_file_gets_its_name_or_takes_the_place_of_another() {
        for replaces in [false, true] {
            let mut scene = scene(&[]);
            if replaces {
                scene.file("out", "old");
            }
            scene.begin();
            let staged = ".new/content";
            let name = "out";
            let change = Change::File {
                staged,
                name,
                replaces,
            };
            scene.publish(change).unwrap();
            let verb = if replaces { "exchange" } else { "rename" };
            let order = [
                format!("{verb} .new/content to out"),
                "sync directory /run".to_owned(),
            ];
            assert_eq!(scene.calls(), order);
            assert_eq!(scene.text("out").unwrap(), ".new");
            assert_eq!(scene.content(".new").as_deref(), replaces.then_some("old"));
        }
    }

    #[test]
    fn a_file_does_not_give_way_to_one_that_appears() {
        let scene = scene(&[]);
        scene.file("out", "old");
        let change = Change::File {
            staged: ".new/content",
            name: "out",
            replaces: false,
        };
        let error = scene.publish(change).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(scene.text("out").unwrap(), "old");
    }

    #[test]
    fn the_parent_is_synced_after_it_vanished() {
        let scene = scene(&["step-1"]);
        scene.publish(VANISH).unwrap();
        let order = ["rename step-1 to .gone", "sync directory /run"];
        assert_eq!(scene.calls(), order);
        assert_eq!(scene.content(".gone").unwrap(), "step-1");
    }

    /// Publishes with the Nth call failing, for every N; whatever failed, readers see what they saw before.
    fn fail_each_call(change: Change<'_>, others: &[&str], exchanges: bool) {
        for nth in 0.. {
            let scene = scene(others);
            scene.disk.set_exchanges(exchanges);
            let before = others.first().map(|name| (*name).to_owned());
            scene.fail(nth..nth + 1);
            let result = scene.publish(change);
            let calls = scene.calls().len();
            let Err(error) = result else {
                assert!(nth > 1, "no failing call is overlooked");
                assert_ne!(scene.content("step-1"), before);
                // Syncs of the last, optional rename of a slow replacement may fail unnoticed.
                if calls <= nth {
                    break;
                }
                continue;
            };
            assert!(error.unchanged, "only one call fails, so going back works");
            assert_eq!(scene.content("step-1"), before);
            assert!(!matches!(change, Change::Vanish { .. }) || scene.content(".gone").is_none());
            assert_eq!(scene.content(".new").unwrap(), ".new");
        }
    }

    #[test]
    fn a_failed_change_leaves_everything_as_it_was() {
        fail_each_call(APPEAR, &[], true);
        fail_each_call(REPLACE, &["step-1"], true);
        fail_each_call(REPLACE, &["step-1"], false);
        fail_each_call(VANISH, &["step-1"], true);
    }

    #[test]
    fn when_going_back_fails_too_nothing_may_be_removed() {
        for (change, others) in [(REPLACE, &["step-1"][..]), (APPEAR, &[])] {
            let scene = scene(others);
            scene.fail(2..usize::MAX); // sync, exchange or rename, then nothing works
            assert!(!scene.publish(change).unwrap_err().unchanged);
        }
    }
}
