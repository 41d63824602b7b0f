//! Interrupts that overtook their request.
//!
//! Over io_uring a request and the interrupt of it come on different ways, to different loops. Which loop will get the
//! request nobody knows, so the loops of a mount keep the interrupts of requests that none of them has, for a while.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A request that the kernel calls delivered is with its loop after one turn. Most interrupts that are kept belong to
/// requests that were answered.
const KEPT_FOR: Duration = Duration::from_secs(2);
const KEPT_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct EarlyInterrupts {
    /// The oldest first.
    kept: Mutex<VecDeque<(Instant, u64)>>,
    /// How many, so that a request where there is none, as mostly, takes no lock.
    count: AtomicUsize,
}

impl EarlyInterrupts {
    pub(crate) fn keep(&self, unique: u64, now: Instant) {
        let mut kept = self.kept();
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((now, unique));
        self.count.store(kept.len(), Ordering::Release);
    }

    /// Whether the request that begins was interrupted already. It is kept no longer; nor where who has the request was told.
    pub(crate) fn take(&self, unique: u64, now: Instant) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut kept = self.kept();
        while kept.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) > KEPT_FOR) {
            kept.pop_front();
        }
        let found = kept.iter().position(|&(_, one)| one == unique);
        let found = found.and_then(|at| kept.remove(at)).is_some();
        self.count.store(kept.len(), Ordering::Release);
        found
    }

    /// Each change of it is one push or one pop.
    fn kept(&self) -> MutexGuard<'_, VecDeque<(Instant, u64)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_interrupt_is_found_once_and_not_for_ever() {
        let (early, now) = (EarlyInterrupts::default(), Instant::now());
        early.keep(6, now);
        early.keep(8, now);
        assert!(!early.take(10, now));
        assert!(early.take(8, now));
        assert!(!early.take(8, now), "it was for one request");
        assert!(!early.take(6, now + KEPT_FOR + Duration::from_millis(1)), "too old");
        for unique in 0..2 * KEPT_MAX as u64 {
            early.keep(unique, now);
        }
        assert!(!early.take(0, now), "there is a bound");
        assert!(early.take(2 * KEPT_MAX as u64 - 1, now));
    }
}
