//! What saving does to a disk: in which order, and what is left when a call fails.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod failing;
mod order;
#[cfg(target_os = "linux")]
mod recycling;
mod replaced;
mod run;
mod strangers;
#[path = "../worker/time_limit.rs"]
mod time_limit;
mod watched;
