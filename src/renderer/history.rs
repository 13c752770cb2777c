//! The values of one metric, in bounded memory: all of them at reduced resolution, the last ones in full.

use std::collections::VecDeque;

/// So many of the last values are kept one by one.
pub(crate) const RECENT: usize = 256;
/// The whole history is kept in at most so many buckets.
pub(crate) const BUCKETS: usize = 1024;

/// The values of one metric on one split.
#[derive(Debug, Default)]
pub(crate) struct History {
    // for the owner of this file: buckets of equal numbers of values, merged pairwise when full; recent values;
    // the sums that `Sums` reads
}

/// Some neighbouring values, taken together. Values that are not finite are counted and not drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    /// Steps of its first and its last value.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) mean: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Finite values in it.
    pub(crate) count: u64,
}

impl History {
    pub(crate) fn push(&mut self, step: u64, value: f64) { todo!() }
    /// Forgets the values of later steps.
    pub(crate) fn forget_after(&mut self, step: u64) { todo!() }
    /// The whole of it, oldest first.
    pub(crate) fn all(&self) -> &[Bucket] { todo!() }
    /// The last values, oldest first, those that are not finite too.
    pub(crate) fn recent(&self) -> &VecDeque<(u64, f64)> { todo!() }
    /// The last value, whatever it is.
    pub(crate) fn last(&self) -> Option<(u64, f64)> { todo!() }
    /// The smallest finite value, and where it was.
    pub(crate) fn min(&self) -> Option<(u64, f64)> { todo!() }
    /// The largest finite value, and where it was.
    pub(crate) fn max(&self) -> Option<(u64, f64)> { todo!() }
    /// Values in all, and how many of them are not finite.
    pub(crate) fn count(&self) -> (u64, u64) { todo!() }
}
