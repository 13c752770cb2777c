//! What is no file, in the place of one: it is neither followed nor waited for.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use pitstop::{Local, RestoreError, Run, Watch};

use crate::targets::sample::{STEP, fingerprint, sample};
#[cfg(target_os = "linux")]
use crate::time_limit::limited;

fn write_run(directory: &Path, name: &str) -> Run {
    let path = directory.join(name);
    fs::create_dir(&path).expect("the directory is empty");
    for (name, bytes) in &sample().files {
        fs::write(path.join(name), bytes).expect("there is room");
    }
    Run::new(Arc::new(Local::new()), directory)
}

/// Puts something else in the place of each file, and reads.
fn in_place_of_each(put: impl Fn(&Path)) {
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let run = write_run(directory.path(), "step-7");
    for name in sample().files.keys() {
        let path = run.path(STEP).join(name);
        let aside = directory.path().join("aside");
        fs::copy(&path, &aside).expect("there is room");
        fs::remove_file(&path).expect("it is there");
        put(&path);
        for verify in [true, false] {
            let error = run.open(STEP, verify).expect_err("it is no file");
            assert!(error.is_damage(), "{name}: {error}");
            let named = matches!(&error, RestoreError::Corrupt { path: at, .. } if *at == path);
            assert!(named, "{name}: {error}");
        }
        assert!(run.newest_intact(|step| run.open(step, true)).is_err());
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir(&path).expect("it is empty");
        } else {
            fs::remove_file(&path).expect("it is there");
        }
        fs::copy(&aside, &path).expect("there is room");
    }
    let state = run.open(STEP, true).and_then(|opened| opened.load());
    assert_eq!(
        fingerprint(&state.expect("all is back")),
        fingerprint(&sample().state)
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_pipe_is_not_waited_for() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let pipe = |path: &Path| {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
    };
    limited(move || in_place_of_each(pipe));
}

#[test]
fn a_directory_is_no_file() {
    in_place_of_each(|path| fs::create_dir(path).expect("the name is free"));
}

#[test]
fn a_socket_is_no_file() {
    in_place_of_each(|path| {
        // Its name may not be long.
        let short = tempfile::tempdir_in("/tmp").expect("there is a directory for temporary files");
        let socket = short.path().join("s");
        UnixListener::bind(&socket).expect("the name is free");
        fs::hard_link(&socket, path)
            .or_else(|_| UnixListener::bind(path).map(drop))
            .expect("the name is free");
    });
}

#[test]
fn a_symbolic_link_is_not_followed_even_to_the_same_bytes() {
    in_place_of_each(|path| symlink("../aside", path).expect("the name is free"));
    in_place_of_each(|path| symlink("/dev/zero", path).expect("the name is free"));
    in_place_of_each(|path| symlink(path, path).expect("the name is free"));
}

#[test]
fn a_step_that_is_a_symbolic_link_is_not_there() {
    let directory = tempfile::tempdir().expect("there is a directory for temporary files");
    let run = write_run(directory.path(), "elsewhere");
    let aside = directory.path().join("elsewhere");
    symlink(&aside, run.path(STEP)).expect("the name is free");
    assert!(run.candidates().expect("it can be listed").is_empty());
    assert!(matches!(run.info(STEP), Err(RestoreError::NotFound { .. })));
    assert!(matches!(
        run.open(STEP, true),
        Err(RestoreError::NotFound { .. })
    ));
    assert!(matches!(
        run.verify(STEP, Watch::nobody()),
        Err(RestoreError::NotFound { .. })
    ));
    // A path that the user gives may lead through links.
    let link = directory.path().join("link");
    symlink(&aside, &link).expect("the name is free");
    assert!(
        Run::new(Arc::new(Local::new()), link)
            .open_here(true)
            .is_ok()
    );
}
