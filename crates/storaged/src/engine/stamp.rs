//! Times of modification that writes bring with them.
//!
//! Several clients write an object, each by its own clock, and the host's clock ticks coarsely. So that the time never goes
//! back, nor beyond now, a client's own counts only within what was noted before the write and what the host notes for it.

use types::time::Timestamp;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    /// What was noted before, and when a client wrote it.
    pub(crate) at: Option<(Option<Timestamp>, Timestamp)>,
    /// The earliest that it may be: by the metadata's clock, as what it is compared with.
    pub(crate) not_before: Timestamp,
}

impl Stamp {
    /// What it is to be, where the host's clock has `noted` this for the write.
    pub(crate) fn of(&self, noted: Timestamp) -> Timestamp {
        let within = self.at.map_or(noted, |(before, at)| {
            let earliest = before.map_or(at, |before| before.min(noted));
            at.max(earliest).min(noted)
        });
        if self.not_before == Timestamp(0) { within } else { within.max(self.not_before) }
    }
}

/// The host's clock as the kernel notes it for files: what is noted later is not earlier.
pub(crate) fn coarse_time() -> Timestamp {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live time; of this clock nothing is refused.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    Timestamp::from_parts(now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_within_what_was_noted_and_never_too_early_to_count() {
        for (before, at, not_before, noted, expected) in [
            (None, 50, 0, 100, 50),
            (None, -1, 0, 100, -1),
            (Some(40), 50, 0, 100, 50),
            (Some(60), 50, 0, 100, 60),
            (Some(40), 150, 0, 100, 100),
            (Some(200), 50, 0, 100, 100),
            (Some(40), 50, 70, 100, 70),
            (Some(40), 50, 170, 100, 170),
        ] {
            let [at, not_before, noted] = [at, not_before, noted].map(Timestamp);
            let stamp = Stamp { at: Some((before.map(Timestamp), at)), not_before };
            assert_eq!(stamp.of(noted), Timestamp(expected), "{stamp:?}");
        }
        let least = |not_before| Stamp { at: None, not_before: Timestamp(not_before) }.of(Timestamp(100));
        assert_eq!((least(90), least(110)), (Timestamp(100), Timestamp(110)));
    }
}
