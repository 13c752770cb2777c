//! A hang is a failure: every test runs under a limit.

use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Runs the body on a thread of its own; fails if it fails, or takes longer than 10 seconds.
pub(crate) fn limited(body: impl FnOnce() + Send + 'static) {
    limited_to(10, body);
}

/// The same with another number of seconds.
pub(crate) fn limited_to(seconds: u64, body: impl FnOnce() + Send + 'static) {
    let (alive, ended) = mpsc::channel::<()>();
    let test = thread::spawn(move || {
        let _alive = alive;
        body();
    });
    match ended.recv_timeout(Duration::from_secs(seconds)) {
        Err(RecvTimeoutError::Timeout) => panic!("still running after {seconds} seconds"),
        _ => test.join().unwrap_or_else(|payload| resume_unwind(payload)),
    }
}
