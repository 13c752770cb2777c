//! Nothing that lies in a checkpoint is trusted: damage is found, and what was forged does no harm.

mod corpus;
mod damage;
mod forged;
mod memory;
#[cfg(unix)]
mod special;
mod targets;
#[cfg(target_os = "linux")]
#[path = "../worker/time_limit.rs"]
mod time_limit;
