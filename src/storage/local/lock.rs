use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::process;
use std::sync::{Mutex, PoisonError};

use super::super::{Lock, LockError, PathError};
use super::system;

/// A lock on an open file: it ends with the process, however that dies.
#[derive(Debug)]
pub(super) struct FileLock {
    /// `None` once a forked child has let go. Nobody holds the mutex while forking: only a child takes it.
    file: Mutex<Option<File>>,
    /// The process that took it.
    owner: u32,
}

impl FileLock {
    pub(super) fn take(path: &Path) -> Result<FileLock, LockError> {
        let wrap = |e| PathError::wrap("lock", path, e);
        let file = system::open_lock(path).map_err(wrap)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let (pid, path) = (read_pid(&file), path.to_owned());
                return Err(LockError::Held { pid, path });
            }
            Err(TryLockError::Error(error)) => return Err(wrap(error).into()),
        }
        let owner = process::id();
        if write_pid(&file, owner).is_err() {
            // A full disk must not keep anyone from pruning it. No number is better than that of a former holder.
            let _ = file.set_len(0);
        }
        let file = Mutex::new(Some(file));
        Ok(FileLock { file, owner })
    }

    fn is_ours(&self) -> bool {
        self.owner == process::id()
    }
}

impl Lock for FileLock {
    fn abandon_in_child(&self) {
        if self.is_ours() {
            return;
        }
        if let Ok(mut file) = self.file.try_lock() {
            // Closing one of two descriptors of an open file leaves it locked.
            file.take();
        }
    }

    #[cfg(unix)]
    fn guards(&self, path: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = file.as_ref().and_then(|file| file.metadata().ok());
        let there = std::fs::metadata(path).ok();
        let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        locked
            .map(identity)
            .is_some_and(|locked| there.map(identity) == Some(locked))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Unlocking, and not just closing, sets the directory free even if a forked child has the file open.
        // For the same reason a child must not do it.
        if self.is_ours()
            && let Ok(Some(file)) = self.file.get_mut()
        {
            let _ = file.unlock();
        }
    }
}

/// Overwrites before it cuts, so that someone refused meanwhile still reads a whole number.
fn write_pid(file: &File, pid: u32) -> io::Result<()> {
    let line = format!("{pid}\n");
    system::write_all_at(file, 0, line.as_bytes())?;
    file.set_len(line.len() as u64)
}

fn read_pid(file: &File) -> Option<u32> {
    // No number of a process is longer.
    let len = file.metadata().ok()?.len().min(16);
    let mut line = vec![0; len as usize];
    system::read_exact_at(file, 0, &mut line).ok()?;
    str::from_utf8(&line).ok()?.lines().next()?.parse().ok()
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::env;
    use std::fs;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    const DIR: &str = "PITSTOP_TEST_LOCK_DIR";
    const ABANDON: &str = "PITSTOP_TEST_LOCK_ABANDON";

    fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "waited for {what}"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Runs one test of this file in a process of its own, which takes the lock in `dir` and keeps it.
    fn start(test: &str, dir: &Path, abandon: &str) -> Child {
        let (_, module) = module_path!().split_once("::").unwrap();
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::{test}")])
            .env(DIR, dir)
            .env(ABANDON, abandon)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the lock", || dir.join("ready").exists());
        child
    }

    fn dir_given() -> Option<PathBuf> {
        env::var_os(DIR).map(PathBuf::from)
    }

    #[test]
    fn holder_process() {
        let Some(dir) = dir_given() else { return };
        let _lock = FileLock::take(&dir.join(".lock")).unwrap();
        fs::write(dir.join("ready"), "").unwrap();
        thread::sleep(Duration::from_secs(30));
    }

    /// Takes the lock and forks a child that outlives it.
    #[test]
    #[expect(
        unsafe_code,
        reason = "only a fork without an exec shows what a child inherits"
    )]
    fn forking_holder_process() {
        let Some(dir) = dir_given() else { return };
        let lock = Arc::new(FileLock::take(&dir.join(".lock")).unwrap());
        let (held, stop) = (Arc::clone(&lock), dir.join("stop"));
        let ready = dir.join("ready");
        let abandon = env::var(ABANDON).unwrap() == "yes";
        let mut command = Command::new("true");
        // SAFETY: the child takes no lock that another thread of the parent could hold at the fork: the
        // mutex of the lock is free then, and the paths were made before.
        unsafe {
            command.pre_exec(move || {
                if abandon {
                    held.abandon_in_child();
                }
                fs::write(&ready, "")?;
                wait_until("the end", || stop.exists());
                Ok(())
            });
        }
        command.status().unwrap();
    }

    #[test]
    fn a_killed_holder_is_named_before_and_gone_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let mut holder = start("holder_process", dir.path(), "no");
        match FileLock::take(&path).unwrap_err() {
            LockError::Held { pid, path: named } => {
                assert_eq!((pid, named), (Some(holder.id()), path.clone()));
            }
            LockError::Io(error) => panic!("{error}"),
        }
        holder.kill().unwrap();
        holder.wait().unwrap();
        FileLock::take(&path).unwrap();
    }

    fn fork_and_kill_the_parent(abandon: &str) -> Result<FileLock, LockError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let mut parent = start("forking_holder_process", dir.path(), abandon);
        assert!(FileLock::take(&path).is_err(), "the parent keeps its lock");
        parent.kill().unwrap();
        parent.wait().unwrap();
        let lock = FileLock::take(&path);
        fs::write(dir.path().join("stop"), "").unwrap();
        // The child is nobody's by now; leave it the time to see the file before the directory goes.
        thread::sleep(Duration::from_millis(50));
        lock
    }

    #[test]
    fn a_child_that_outlives_its_parent_does_not_keep_what_it_abandoned() {
        fork_and_kill_the_parent("yes").unwrap();
        // Without it, the child does keep it: the test above would notice.
        assert!(fork_and_kill_the_parent("no").is_err());
    }

    #[test]
    fn the_holder_cannot_abandon_its_own_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let lock = FileLock::take(&path).unwrap();
        lock.abandon_in_child();
        assert!(FileLock::take(&path).is_err());
    }

    #[test]
    fn a_dropped_lock_is_free_even_if_its_file_is_open_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        let lock = FileLock::take(&path).unwrap();
        let inherited = lock
            .file
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .try_clone()
            .unwrap();
        drop(lock);
        FileLock::take(&path).unwrap();
        drop(inherited);
    }

    #[test]
    fn a_shorter_number_replaces_a_longer_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".lock");
        fs::write(&path, "4294967295\n").unwrap();
        let _lock = FileLock::take(&path).unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("{}\n", process::id())
        );
    }
}
