//! The flag that asks a training loop to end.

use super::lock::lock;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex};

/// Asks a training loop to end, from any thread; clones share one flag.
///
/// The loop looks at [`should_stop`](Self::should_stop) once per step. The *first* reason given is
/// kept until [`reset`](Self::reset): it is the cause, whatever came later is often a consequence.
///
/// Nothing here panics, and no method blocks for longer than it takes to copy a message.
///
/// ```
/// let interrupter = pitstop::Interrupter::new();
/// let elsewhere = interrupter.clone();
/// elsewhere.stop(Some("the disk is full"));
/// elsewhere.stop(Some("nothing works any more"));
/// assert!(interrupter.should_stop());
/// assert_eq!(interrupter.get_message().as_deref(), Some("the disk is full"));
///
/// interrupter.reset();
/// assert!(!elsewhere.should_stop());
/// assert_eq!(elsewhere.get_message(), None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Interrupter {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    /// The first reason since the last reset.
    message: Mutex<Option<String>>,
}

impl Interrupter {
    /// An interrupter that nobody has stopped yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the loop to end; `reason` becomes the message unless there is one already.
    ///
    /// With `None` it is a single atomic store, and may be called from anywhere, an operating-system
    /// signal handler included. With a reason it allocates and takes a mutex for a moment: right for
    /// a thread that waits for signals, or for a handler of Python's `signal` module, wrong inside a
    /// handler that the operating system calls.
    pub fn stop(&self, reason: Option<&str>) {
        let Some(reason) = reason else {
            return self.shared.stopped.store(true, Ordering::Release);
        };
        let reason = reason.to_owned();
        let mut message = lock(&self.shared.message);
        message.get_or_insert(reason);
        // Under the lock, so that a reset clears both or neither.
        self.shared.stopped.store(true, Ordering::Release);
    }

    /// Whether somebody asked the loop to end. One atomic load.
    pub fn should_stop(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// Clears the flag and the message.
    pub fn reset(&self) {
        let mut message = lock(&self.shared.message);
        *message = None;
        self.shared.stopped.store(false, Ordering::Release);
    }

    /// The first reason given since the last reset, if one was given.
    pub fn get_message(&self) -> Option<String> {
        lock(&self.shared.message).clone()
    }
}
