//! Locks of what the threads of a mount share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic elsewhere leaves what is behind it whole: each critical section is a single change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
