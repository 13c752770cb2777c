//! What survives on a disk that loses power at any call, or fails at any call; and in which order things are done.
//!
//! `cargo test --test faults` prints how many power cuts it tried. `PITSTOP_SEED=N` repeats the random ones.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod campaign;
mod exported;
mod failing;
mod failing_on;
mod fsync;
mod killed;
mod life;
mod linked;
mod looking;
mod order;
mod power;
#[cfg(target_os = "linux")]
mod refused;
mod replaced;
mod scenario;
mod single;
#[path = "../worker/time_limit.rs"]
mod time_limit;
mod world;
