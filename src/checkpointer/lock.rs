//! Locks that a panic elsewhere can't take away.

use crate::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, poisoned or not: what this room guards is valid after every single assignment, and a
/// second panic would only hide the first.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
