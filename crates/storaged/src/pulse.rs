//! Whether a target's disk moves at all, over all lanes. Pure; the time comes in as a value.
//!
//! Each lane finds out by its own calls that a disk is slow (`pace.rs`): too late where it hangs, since the first call in
//! place does not come back then, with all that the lane does for other targets. What has gone to the disk on other ways, or
//! from other lanes, tells before that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A disk that has something to do and ends nothing of it for so long hangs, or is next to it.
const STILL: Duration = Duration::from_millis(100);

/// Shared by the lanes. What they see of each other may be late by a moment: then a call goes the other way than it might.
#[derive(Debug)]
pub(crate) struct Pulse {
    begin: Instant,
    at_disk: AtomicU32,
    /// When a request ended last, or came to an idle disk: milliseconds since `begin`.
    beat_ms: AtomicU64,
}

impl Pulse {
    pub(crate) fn new(begin: Instant) -> Self {
        Self { begin, at_disk: AtomicU32::new(0), beat_ms: AtomicU64::new(0) }
    }

    fn since_begin(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begin).as_millis() as u64
    }

    fn beats(&self, now: Instant) {
        self.beat_ms.fetch_max(self.since_begin(now), Ordering::Relaxed);
    }

    /// A request goes to the disk.
    pub(crate) fn begins(&self, now: Instant) {
        if self.at_disk.load(Ordering::Relaxed) == 0 {
            self.beats(now);
        }
        self.at_disk.fetch_add(1, Ordering::Relaxed);
    }

    /// One that had begun has ended.
    pub(crate) fn ends(&self, now: Instant) {
        self.beats(now);
        self.at_disk.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn is_still(&self, now: Instant) -> bool {
        let still_ms = STILL.as_millis() as u64;
        self.at_disk.load(Ordering::Relaxed) > 0
            && self.since_begin(now) >= self.beat_ms.load(Ordering::Relaxed).saturating_add(still_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_still_while_it_has_something_to_do_and_ends_none_of_it() {
        let begin = Instant::now();
        let pulse = Pulse::new(begin);
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(!pulse.is_still(at(10_000)), "it has nothing to do");
        pulse.begins(at(20_000));
        assert!(!pulse.is_still(at(20_099)));
        assert!(pulse.is_still(at(20_100)));
        pulse.begins(at(20_150));
        assert!(pulse.is_still(at(20_150)), "more to do is no sign of life");
        pulse.ends(at(20_200));
        assert!(!pulse.is_still(at(20_299)) && pulse.is_still(at(20_300)));
        pulse.ends(at(20_250));
        assert!(!pulse.is_still(at(90_000)));
        // By a lane whose turn began earlier.
        pulse.begins(at(20_240));
        pulse.ends(at(20_240));
        pulse.begins(at(20_245));
        assert!(!pulse.is_still(at(20_349)), "time does not go back");
    }
}
