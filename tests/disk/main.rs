//! What saving does to a real disk: which files it writes over, and what others have there.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[cfg(target_os = "linux")]
mod recycling;
mod run;
mod strangers;
#[path = "../worker/time_limit.rs"]
mod time_limit;
