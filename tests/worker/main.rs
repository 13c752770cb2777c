//! The worker, as its users see it.

#![expect(
    clippy::unwrap_used,
    reason = "a test may unwrap, and so may what is on its stage"
)]

mod closing;
mod failing;
mod handing_over;
mod interrupting;
mod restoring;
mod stage;
mod time_limit;
