//! What a person at the screen may ask of the run: to stop soon, or to end at once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::checkpointer::Interrupter;

/// The reason of a soft stop, as the interrupter keeps it.
pub const STOPPING: &str = "Stopping training from user input.";

/// What a kill says.
pub const KILLING: &str = "Killing training from user input.";

/// What a display passes on.
#[cfg_attr(
    not(any(feature = "tui", test)),
    expect(dead_code, reason = "only the screen is asked for more than to leave")
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// End the training loop when it next looks.
    Stop,
    /// End the training at once.
    Kill,
    /// A run that is over need not be shown any more.
    Leave,
}

/// The two flags of one renderer, which its display sets and the training sees. Nothing here outlives the renderer:
/// the next run in the same process begins anew.
pub(crate) struct Control {
    pub(crate) interrupter: Interrupter,
    killed: AtomicBool,
    /// Reaches a training that does not look at the flag.
    on_kill: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Control {
    pub(crate) fn new(
        interrupter: Interrupter,
        on_kill: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> Control {
        Control {
            interrupter,
            killed: AtomicBool::new(false),
            on_kill,
        }
    }

    /// The training loop ends by itself.
    pub(crate) fn stop(&self) {
        self.interrupter.stop(Some(STOPPING));
    }

    /// The training ends at once. The interrupter is stopped too, so that whoever catches the kill sees it.
    pub(crate) fn kill(&self) {
        self.interrupter.stop(Some(KILLING));
        self.killed.store(true, Ordering::Release);
        // Each time: the training may have swallowed the first one.
        if let Some(reach) = &self.on_kill {
            reach();
        }
    }

    /// Whether the training is to end at once.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("interrupter", &self.interrupter)
            .field("killed", &self.killed)
            .finish_non_exhaustive()
    }
}
