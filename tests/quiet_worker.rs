//! The worker's own panic prints no report. A target of its own: the panic hook is process-wide.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};

use pitstop::{AsyncCheckpointer, Checkpointer, CheckpointerError};

#[path = "worker/time_limit.rs"]
mod time_limit;

static REPORTS: AtomicUsize = AtomicUsize::new(0);

struct Full;

impl Checkpointer<()> for Full {
    fn save(&self, epoch: usize, (): ()) -> Result<(), CheckpointerError> {
        assert_ne!(epoch, 13, "the user's own panic");
        Err(CheckpointerError::Unknown("full".to_owned()))
    }

    fn delete(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Err(CheckpointerError::Unknown("read-only".to_owned()))
    }

    fn restore(&self, _epoch: usize) -> Result<(), CheckpointerError> {
        Ok(())
    }
}

#[test]
fn a_worker_that_dies_of_a_failure_prints_no_panic_report() {
    panic::set_hook(Box::new(|_| {
        REPORTS.fetch_add(1, Ordering::SeqCst);
    }));
    time_limit::limited(|| {
        let checkpointer = AsyncCheckpointer::new(Full);
        checkpointer.save(1, ()).unwrap();
        checkpointer.wait(None).unwrap_err();
        checkpointer.delete(1).unwrap();
        checkpointer.wait(None).unwrap_err();
        checkpointer.save(1, ()).unwrap();
        drop(checkpointer);
        assert_eq!(REPORTS.load(Ordering::SeqCst), 0);

        // Only a panic of the checkpointer itself is reported, as any panic of the user's code is.
        let checkpointer = AsyncCheckpointer::new(Full);
        checkpointer.save(13, ()).unwrap();
        checkpointer.wait(None).unwrap_err();
        assert_eq!(REPORTS.load(Ordering::SeqCst), 1);
    });
    let _ = panic::take_hook();
}
