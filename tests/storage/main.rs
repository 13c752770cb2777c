//! The rules of the seam to the disk, and the real file system under them.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
#[cfg(target_os = "linux")]
mod recycling;
mod simulated;

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pitstop::storage::{EntryKind, Local, Storage, errno_of};

#[test]
fn the_real_file_system_keeps_every_rule() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run(&Local::new(), dir.path());
}

#[test]
fn it_keeps_them_without_syncs_too() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run(&Local::new().fsync(false), dir.path());
}

#[test]
fn it_keeps_them_through_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run(&Local::new().direct_io(false), dir.path());
}

#[test]
fn it_keeps_them_on_a_file_system_in_memory() {
    let shared_memory = Path::new("/dev/shm");
    if shared_memory.is_dir() {
        let dir = tempfile::tempdir_in(shared_memory).unwrap();
        conformance::run(&Local::new(), dir.path());
    }
}

#[test]
fn a_link_in_place_of_a_file_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let link = dir.path().join("link");
    symlink(dir.path().join("secret"), &link).unwrap();
    let error = Local::new().open(&link).err().unwrap();
    let (errno, path) = errno_of(&error).unwrap();
    assert_eq!(errno, rustix::io::Errno::LOOP.raw_os_error());
    assert_eq!(path, link);
    assert_eq!(Local::new().kind(&link).unwrap(), Some(EntryKind::Other));
    let listed = Local::new().list(dir.path()).unwrap();
    assert_eq!(listed[0].kind, EntryKind::Other);
}

#[test]
fn a_link_in_place_of_the_lock_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "do not touch").unwrap();
    symlink(&victim, dir.path().join(".lock")).unwrap();
    assert!(Local::new().lock(&dir.path().join(".lock")).is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "do not touch");
}

#[test]
fn a_pipe_in_place_of_a_file_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let error = Local::new().open(&pipe).err().unwrap();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}

#[test]
fn a_run_directory_may_be_a_link_to_one() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    Local::new().create_dir_all(&link).unwrap();
    Local::new().create_dir_all(&link.join("below")).unwrap();
    assert!(real.join("below").is_dir());
    assert_eq!(Local::new().list(&link).unwrap().len(), 1);
}

#[test]
fn a_directory_below_a_closed_one_is_usable() {
    if rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (closed, ours) = (dir.path().join("closed"), dir.path().join("closed/ours"));
    fs::create_dir_all(&ours).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o111)).unwrap();
    let result = Local::new().create_dir_all(&ours);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    result.unwrap();
}

#[test]
fn a_relative_path_is_fine() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let relative = Path::new(dir.path().file_name().unwrap());
    Local::new().create_dir_all(&relative.join("a/b")).unwrap();
    assert!(relative.join("a/b").is_dir());
}

#[test]
fn a_full_disk_shows_at_creation_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge");
    let error = Local::new().create(&path, 1 << 50).err().unwrap();
    let (_, named) = errno_of(&error).unwrap();
    assert_eq!(named, path);
    assert!(!path.exists());
}

const UMASK_DIR: &str = "PITSTOP_TEST_UMASK_DIR";

/// Not a test by itself: what runs below with another umask.
#[test]
fn creates_one_of_each() {
    let Some(dir) = env::var_os(UMASK_DIR).map(PathBuf::from) else {
        return;
    };
    let disk = Local::new();
    disk.create_dir_all(&dir.join("parent/child")).unwrap();
    disk.create_dir(&dir.join("dir")).unwrap();
    disk.create(&dir.join("file"), 10).unwrap();
    disk.lock(&dir.join(".lock")).unwrap();
}

#[test]
fn modes_respect_the_umask() {
    for umask in [0o002, 0o027, 0o077] {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("umask {umask:03o}; exec \"$0\" --exact creates_one_of_each");
        let status = Command::new("sh")
            .args(["-c", &script])
            .arg(env::current_exe().unwrap())
            .env(UMASK_DIR, dir.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        for name in ["parent", "parent/child", "dir", "file", ".lock"] {
            let path = dir.path().join(name);
            let most = if path.is_dir() { 0o777 } else { 0o666 };
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, most & !umask, "{name} with umask {umask:03o}");
        }
    }
}

#[test]
fn without_fsync_nothing_is_synced() {
    let disk = Local::new().fsync(false);
    // Nothing to sync, and nothing to complain about: the call does not reach the disk.
    disk.sync_dir(Path::new("/no/such/directory")).unwrap();
    let error = Local::new().sync_dir(Path::new("/no/such/directory"));
    assert_eq!(error.unwrap_err().kind(), io::ErrorKind::NotFound);
}
