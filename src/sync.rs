//! What threads meet at.
//!
//! Rooms whose threads hand things over take it from here. It is that of `std`, and nothing else, unless the
//! crate is built with `--cfg shuttle`: then a test decides at every lock, channel and flag which thread goes
//! on, and the same code is tried in thousands of orders. `tests/model` does that.

#[cfg(shuttle)]
mod model;

#[cfg(shuttle)]
pub(crate) use model::*;
#[cfg(not(shuttle))]
pub(crate) use std::{sync::*, thread, time::Instant};
