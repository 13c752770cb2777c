use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Follows work on many bytes, and can end it early.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told the bytes of each part that is done, from any thread.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Set by anyone, it ends the work with an `Interrupted` error.
    pub stop: &'a AtomicBool,
}

impl Watch<'_> {
    /// Nobody watches, and nobody ends it.
    pub fn nobody() -> Watch<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Watch {
            progress: &|_| (),
            stop: &NEVER,
        }
    }

    /// Whether the work is to go on.
    ///
    /// # Errors
    ///
    /// `Interrupted` if it is not.
    pub fn check(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}
