//! Decides whether a file call is made on the lane's own thread.
//!
//! ext4 cannot promise not to block in a buffered write, so io_uring hands each to a worker thread: measured on two
//! CPUs, random 4 KiB overwrites of a cached file cost 15 us of CPU each that way with 16 in flight (42 us with one),
//! and 3 to 4.5 us as a plain `pwrite`, whose slowest of 100,000 took 8 ms. Of longer writes, up to a whole chunk, the
//! two wake-ups of a worker cost as much as the copy itself (1 MiB steps of one writer: 510 to 630 us of server CPU per
//! MiB in place, 580 to 730 through workers). So calls are made in place as long as they stay fast. One that does not
//! (the kernel throttles dirtying, the journal commits, a cold block is read) sends those of the next moments through
//! the ring.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A call that took longer was held up by the disk.
const STALL: Duration = Duration::from_millis(3);
/// How long the ring is used after a stall.
const DETOUR: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(crate) struct Pace {
    detour_until: Cell<Option<Instant>>,
    stalls: Cell<u64>,
}

impl Pace {
    /// Whether calls may be made in place now.
    pub(crate) fn is_calm(&self, now: Instant) -> bool {
        match self.detour_until.get() {
            Some(until) if now < until => false,
            Some(_) => {
                self.detour_until.set(None);
                true
            }
            None => true,
        }
    }

    /// Told how long a call in place took.
    pub(crate) fn record(&self, begun: Instant, ended: Instant) {
        if ended.saturating_duration_since(begun) > STALL {
            self.stalls.set(self.stalls.get() + 1);
            self.detour_until.set(Some(ended + DETOUR));
        }
    }

    /// Makes `call` in place and takes its time.
    pub(crate) fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let outcome = call();
        self.record(begun, Instant::now());
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_sends_the_next_calls_on_a_detour_for_a_while() {
        let (pace, start) = (Pace::default(), Instant::now());
        assert!(pace.is_calm(start));
        pace.record(start, start + Duration::from_micros(500));
        assert!(pace.is_calm(start));
        pace.record(start, start + Duration::from_millis(20));
        assert!(!pace.is_calm(start + Duration::from_millis(20)));
        assert!(!pace.is_calm(start + Duration::from_millis(119)));
        assert!(pace.is_calm(start + Duration::from_millis(121)));
        assert_eq!(pace.stalls.get(), 1);
    }
}
