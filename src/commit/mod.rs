//! Making checkpoints appear and vanish, whole or not at all: publish, recover, retention.
//!
//! A checkpoint is a directory. It is written under a hidden name, and its files are synced there;
//! [`publish()`] gives it its name. Whatever a crash leaves is told by its name alone, so that [`sweep`] can
//! put it right without reading it.

mod bin;
mod publish;
mod recover;
mod retention;
mod staging;

#[cfg(test)]
mod scene;

pub(crate) use bin::Bin;
pub(crate) use publish::{Change, publish};
pub(crate) use recover::{forget_replaced, step_name, steps, sweep, sweep_target};
pub use retention::{Decision, Keep, Mode, Retention, RetentionError};
pub(crate) use staging::{Hidden, Purpose, remove_tree, stage};
