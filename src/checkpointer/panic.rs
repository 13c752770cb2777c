//! Panics: those of user code are caught here, and the worker's own start here.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs user code; if it panics, gives back the text of the panic.
///
/// Asserting unwind safety is sound for this room: nothing of its own is borrowed by `work`, and a
/// user's type that is left half-changed is as visible to the user as after any caught panic.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(text)
}

fn text(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<String>() {
        Ok(text) => return *text,
        Err(payload) => payload,
    };
    if let Some(text) = payload.downcast_ref::<&'static str>() {
        return (*text).to_owned();
    }
    // Its destructor is user code as well and may panic: leaked, for that would end the worker.
    std::mem::forget(payload);
    "a panic without a text".to_owned()
}

/// Ends the worker thread by a panic with exactly this payload.
///
/// `resume_unwind` instead of `panic!` because it skips the panic hook: the failure reaches the user
/// as an error, and a report on stderr would be a second telling of it. In a program that is built
/// with `panic = "abort"` the thread just ends, for a failed save must not kill the run.
pub(super) fn end_thread(message: String) {
    if cfg!(panic = "unwind") {
        resume_unwind(Box::new(message));
    }
}
