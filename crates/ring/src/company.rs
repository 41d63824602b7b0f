//! Loops that stay awake for each other while one of them is at work.
//!
//! The kernel moves a thread that it wakes to a CPU which seems to be idle, if it finds one. A program that does one thing
//! at a time is so moved with each answer, away from the loop that is bound to its CPU and has its next request, and each
//! move wakes an idle CPU: two to four times what the request takes (measured with FUSE over io_uring on two CPUs, where
//! each request cost 10 us or 25 to 50). A CPU on which a loop looks for work is not idle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long after the last work the others stay awake: longer than programs take from one request to the next.
const STAYS_FOR: Duration = Duration::from_micros(100);

/// Shared by the loops, as [`Config::company`](crate::Config::company).
#[derive(Debug)]
pub struct Company {
    begun: Instant,
    /// Nanoseconds from `begun` until when all stay awake.
    until: AtomicU64,
}

impl Company {
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self { begun: now, until: AtomicU64::new(0) }
    }

    /// One of them has got work.
    pub fn works(&self, now: Instant) {
        self.until.store(self.since_begun(now + STAYS_FOR), Ordering::Relaxed);
    }

    pub(crate) fn stays_awake(&self, now: Instant) -> bool {
        self.since_begun(now) < self.until.load(Ordering::Relaxed)
    }

    fn since_begun(&self, now: Instant) -> u64 {
        // 584 years fit.
        now.saturating_duration_since(self.begun).as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_awake_for_a_while_after_work() {
        let now = Instant::now();
        let company = Company::new(now);
        assert!(!company.stays_awake(now));
        company.works(now + STAYS_FOR);
        assert!(company.stays_awake(now + STAYS_FOR * 3 / 2));
        assert!(!company.stays_awake(now + STAYS_FOR * 2));
    }
}
