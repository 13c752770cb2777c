//! A hang is a failure: every test runs under a limit.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Runs the body on a thread of its own; fails if it fails, or takes longer than 10 seconds.
pub(crate) fn limited(body: impl FnOnce() + Send + 'static) {
    let (alive, ended) = mpsc::channel::<()>();
    let test = thread::spawn(move || {
        let _alive = alive;
        body();
    });
    match ended.recv_timeout(Duration::from_secs(10)) {
        Err(RecvTimeoutError::Timeout) => panic!("still running after 10 seconds"),
        _ => test.join().unwrap_or_else(|payload| resume_unwind(payload)),
    }
}
