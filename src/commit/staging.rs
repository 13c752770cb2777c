use std::fmt;
use std::io;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::storage::{EntryKind, Storage};

/// Why a directory has a hidden name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// Being written, or replaced by what was written: may always be removed once its writer is gone.
    Staged,
    /// Moved aside for another of the same name: goes back if its place is empty.
    Replaced,
    /// On its way out: may always be removed.
    Deleted,
}

impl Purpose {
    const ALL: [Purpose; 3] = [Purpose::Staged, Purpose::Replaced, Purpose::Deleted];

    fn prefix(self) -> &'static str {
        match self {
            Purpose::Staged => ".tmp-",
            Purpose::Replaced => ".old-",
            Purpose::Deleted => ".del-",
        }
    }
}

/// A hidden name, such as `.tmp-step-500-4711-18ab65b9f00dbeef`: purpose, target, process, nonce.
///
/// It tells all that a recovery needs to know, so that nothing has to be read or can be lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Hidden {
    /// Why it is hidden.
    pub(crate) purpose: Purpose,
    /// The visible name it belongs to, such as `step-500`.
    pub(crate) target: String,
    /// The process that made it.
    pub(crate) pid: u32,
    /// Unlike any other of that process; the later, the greater.
    pub(crate) nonce: u64,
}

impl Hidden {
    /// A name that nobody has used before.
    pub(crate) fn new(purpose: Purpose, target: &str) -> Hidden {
        Hidden {
            purpose,
            target: target.to_owned(),
            pid: process::id(),
            nonce: next_nonce(),
        }
    }

    /// Reads a name back; `None` for every name that [`Hidden`] does not write itself.
    pub(crate) fn parse(name: &str) -> Option<Hidden> {
        let of = |purpose: &Purpose| Some((*purpose, name.strip_prefix(purpose.prefix())?));
        let (purpose, rest) = Purpose::ALL.iter().find_map(of)?;
        let (rest, nonce) = rest.rsplit_once('-')?;
        let (target, pid) = rest.rsplit_once('-')?;
        let hidden = Hidden {
            purpose,
            target: target.to_owned(),
            pid: pid.parse().ok()?,
            nonce: u64::from_str_radix(nonce, 16).ok()?,
        };
        // A user's directory that merely looks alike is not ours to remove.
        (hidden.to_string() == name && !target.is_empty()).then_some(hidden)
    }
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hidden {
            purpose,
            target,
            pid,
            nonce,
        } = self;
        write!(f, "{}{target}-{pid}-{nonce:016x}", purpose.prefix())
    }
}

/// Nanoseconds of the clock, moved on where the clock stands still or goes back.
fn next_nonce() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64);
    let after = |last: u64| now.max(last + 1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
        Some(after(last))
    });
    last.map_or(now, after)
}

/// Creates an empty hidden directory in which `target` is to be written, and returns its name.
///
/// # Errors
///
/// Whatever the disk reports.
pub(crate) fn stage(storage: &dyn Storage, run_dir: &Path, target: &str) -> io::Result<String> {
    let name = Hidden::new(Purpose::Staged, target).to_string();
    storage.create_dir(&run_dir.join(&name))?;
    Ok(name)
}

/// Removes a directory and all in it, or a file; that nothing is there is fine, and so is somebody else who
/// removes it at the same time. Symbolic links are removed themselves, not followed. Goes on after an error, to
/// free what it can.
///
/// # Errors
///
/// The first error.
pub(crate) fn remove_tree(storage: &dyn Storage, path: &Path) -> io::Result<()> {
    match storage.kind(path)? {
        Some(kind) => remove(storage, path, kind),
        None => Ok(()),
    }
}

fn remove(storage: &dyn Storage, path: &Path, kind: EntryKind) -> io::Result<()> {
    if kind != EntryKind::Dir {
        return unless_gone(storage.remove_file(path));
    }
    let mut first_error = None;
    let entries = unless_gone(storage.list(path))?;
    for entry in entries {
        if let Err(error) = remove(storage, &path.join(&entry.name), entry.kind) {
            first_error.get_or_insert(error);
        }
    }
    match first_error {
        Some(error) => Err(error),
        None => unless_gone(storage.remove_dir(path)),
    }
}

/// What is not there any more is removed.
fn unless_gone<T: Default>(result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::Scene;
    use super::*;
    use crate::storage::Local;
    use proptest::prelude::*;
    use std::fs;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[test]
    fn a_name_tells_purpose_target_process_and_nonce() {
        let hidden = Hidden {
            purpose: Purpose::Staged,
            target: "step-500".into(),
            pid: 4711,
            nonce: 0xbeef,
        };
        let name = ".tmp-step-500-4711-000000000000beef";
        assert_eq!(hidden.to_string(), name);
        assert_eq!(Hidden::parse(name), Some(hidden));
    }

    #[test]
    fn names_that_merely_look_alike_are_not_ours() {
        for name in [
            ".tmp",
            ".tmp-",
            ".tmp-step-500",
            ".tmp-step-500-4711",
            ".tmp-step-500-4711-beef",
            ".tmp-step-500-04711-000000000000beef",
            ".tmp-step-500-+4711-000000000000beef",
            ".tmp-step-500-4711-000000000000BEEF",
            ".tmp-step-500-4711-0000000000000beef",
            ".tmp--4711-000000000000beef",
            ".bak-step-500-4711-000000000000beef",
            "tmp-step-500-4711-000000000000beef",
            "step-500",
        ] {
            assert_eq!(Hidden::parse(name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn every_name_is_read_back(target in "[a-z0-9-]{1,12}", pid: u32, nonce: u64) {
            for purpose in Purpose::ALL {
                let hidden = Hidden { purpose, target: target.clone(), pid, nonce };
                prop_assert_eq!(Hidden::parse(&hidden.to_string()), Some(hidden));
            }
        }

        #[test]
        fn any_name_is_read_without_a_panic(name in "\\.(tmp|old|del)-.{0,40}") {
            let _ = Hidden::parse(&name);
        }
    }

    #[test]
    fn later_names_have_greater_nonces() {
        let nonces: Vec<u64> = (0..1000).map(|_| next_nonce()).collect();
        assert!(nonces.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn staging_creates_a_directory_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let name = stage(&Local::new(), dir.path(), "step-7").unwrap();
        assert!(dir.path().join(&name).is_dir());
        assert_eq!(Hidden::parse(&name).unwrap().target, "step-7");
    }

    #[test]
    #[cfg(unix)]
    fn removing_a_tree_does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        remove_tree(&Local::new(), &tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("precious").exists());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        remove_tree(&Local::new(), &link).unwrap();
        assert!(outside.join("precious").exists());
        remove_tree(&Local::new(), &link).unwrap();
    }

    #[test]
    fn one_file_that_stays_does_not_keep_the_others() {
        let scene = Scene::new();
        scene.checkpoint("tree", "x");
        scene.file("tree/d", "x");
        scene.file("tree/e", "x");
        scene.disk.on_call(|_, call| {
            let stays = call.is("remove", Scene::path("tree/d"));
            stays.then_some(crate::storage::simulated::Fault::Error(5))
        });
        let error = remove_tree(&scene.disk, &Scene::path("tree")).unwrap_err();
        assert!(error.to_string().contains("tree/d"), "{error}");
        assert_eq!(scene.disk.list(&Scene::path("tree")).unwrap().len(), 1);
    }

    /// One file that an `rm -r` of the user had removed first kept the whole directory in place.
    #[test]
    fn somebody_else_who_removes_the_same_tree_is_no_reason_to_leave_it() {
        let tree = Scene::path("tree");
        let removals = 5;
        for nth in 0..removals {
            let scene = Scene::new();
            scene.checkpoint("tree", "x");
            scene.file("tree/b", "x");
            scene.checkpoint("tree/inner", "x");
            let (disk, seen, somebody) = (
                scene.disk.clone(),
                AtomicUsize::new(0),
                AtomicBool::new(false),
            );
            scene.disk.on_call(move |_, call| {
                if call.operation.starts_with("remove") && !somebody.swap(true, Ordering::SeqCst) {
                    if seen.fetch_add(1, Ordering::SeqCst) == nth {
                        let removed = match call.operation {
                            "remove" => disk.remove_file(&call.path),
                            _ => disk.remove_dir(&call.path),
                        };
                        removed.unwrap();
                    }
                    somebody.store(false, Ordering::SeqCst);
                }
                None
            });
            remove_tree(&scene.disk, &tree).unwrap();
            scene.disk.heal();
            assert_eq!(scene.disk.kind(&tree).unwrap(), None);
            let calls = scene.disk.calls();
            let removes = calls
                .iter()
                .filter(|call| call.operation.starts_with("remove"));
            // One of them was made twice, by somebody else first.
            assert_eq!(removes.count(), removals + 1);
            remove(&scene.disk, &tree, EntryKind::Dir).unwrap();
        }
    }
}
