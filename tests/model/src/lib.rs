//! The parts of pitstop in which threads meet, in thousands of orders.
//!
//! The code is the real one. Built with `--cfg shuttle`, it takes its locks, channels, flags and threads from
//! [shuttle](https://docs.rs/shuttle), which runs one thread at a time and decides at each of them who is next.
//! A deadlock, a failed assertion or an endless loop fails the test, and says how to see it again.
//!
//! What this doesn't try: orders of memory weaker than one after the other (all flags are strictly ordered
//! here), and code between two locks, which runs as one piece.

#![cfg(test)]

#[cfg(not(shuttle))]
compile_error!(
    "to be run in tests/model, whose .cargo/config.toml sets `--cfg shuttle`; or by `make model`"
);

mod closing;
mod copying;
mod explore;
mod handing_over;
mod interrupting;
mod stage;
