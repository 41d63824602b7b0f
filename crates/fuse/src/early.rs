//! Interrupts that overtook their request.
//!
//! Over io_uring a request and the interrupt of it come on different ways, to different loops. Which loop will get the
//! request nobody knows, so the loops of a mount keep the interrupts of requests that none of them has, for a while.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request that the kernel calls delivered is with its loop after one turn. Most interrupts that are kept belong to
/// requests that were answered.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// A request meets what is kept of one in so many others: who asks for it takes no lock, and no cache line from the others.
const TABLES: usize = 64;
/// In each of them.
const KEPT_MAX: usize = 64;

pub(crate) struct EarlyInterrupts {
    tables: Box<[Table]>,
}

/// What is written with an interrupt is in no cache line of another's.
#[derive(Default)]
#[repr(align(128))]
struct Table {
    /// The oldest first.
    kept: Mutex<VecDeque<(Instant, u64)>>,
    /// How many, so that a request where there is none, as mostly, takes no lock.
    count: AtomicUsize,
}

impl Default for EarlyInterrupts {
    fn default() -> Self {
        Self { tables: (0..TABLES).map(|_| Table::default()).collect() }
    }
}

impl EarlyInterrupts {
    pub(crate) fn keep(&self, unique: u64, now: Instant) {
        self.table(unique).change(now, |kept| {
            if kept.len() == KEPT_MAX {
                kept.pop_front();
            }
            kept.push_back((now, unique));
        });
    }

    /// Whether the request that begins was interrupted already. It is kept no longer; nor where who has the request was told.
    pub(crate) fn take(&self, unique: u64, now: Instant) -> bool {
        let table = self.table(unique);
        if table.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        table.change(now, |kept| {
            let found = kept.iter().position(|&(_, one)| one == unique);
            found.and_then(|at| kept.remove(at)).is_some()
        })
    }

    /// Requests have even numbers, one after the other.
    fn table(&self, unique: u64) -> &Table {
        &self.tables[(unique >> 1) as usize % TABLES]
    }
}

impl Table {
    /// Changes what is not too old, and drops the rest.
    fn change<R>(&self, now: Instant, change: impl FnOnce(&mut VecDeque<(Instant, u64)>) -> R) -> R {
        // Each change of it is one push or one pop.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let before = kept.len();
        while kept.front().is_some_and(|(since, _)| now.saturating_duration_since(*since) > KEPT_FOR) {
            kept.pop_front();
        }
        let done = change(&mut kept);
        if kept.len() != before {
            self.count.store(kept.len(), Ordering::Release);
        }
        done
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
        let bound = (TABLES * KEPT_MAX) as u64;
        (0..2 * bound).for_each(|at| early.keep(2 * at, now));
        assert!(!early.take(0, now), "there is a bound");
        assert!(early.take(2 * (2 * bound - 1), now));
        assert!(early.take(2 * bound, now), "the bound is that of each table");
    }

    #[test]
    fn a_request_meets_what_is_kept_of_few_others_and_not_for_long() {
        let (early, now) = (EarlyInterrupts::default(), Instant::now());
        let count = |unique| early.table(unique).count.load(Ordering::Relaxed);
        early.keep(6, now);
        let meets = (0..TABLES as u64).map(|at| 100 + 2 * at).filter(|&unique| count(unique) > 0);
        assert_eq!(meets.count(), 1);
        let (other, later) = (6 + 2 * TABLES as u64, now + KEPT_FOR + Duration::from_millis(1));
        early.keep(other, now);
        assert_eq!(count(6), 2);
        early.keep(other + 2 * TABLES as u64, later);
        assert_eq!((count(6), early.table(6).kept.lock().unwrap().len()), (1, 1), "the old ones are gone");
        assert!(!early.take(other, later));
        assert!(early.take(other + 2 * TABLES as u64, later));
        assert_eq!(count(6), 0);
    }
}
