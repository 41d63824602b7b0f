//! Time as a value: the pure crates never ask for it, they are told.

use serde::{Deserialize, Serialize};

/// Wall-clock time in nanoseconds since the Unix epoch; negative before 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

const NS_PER_S: i64 = 1_000_000_000;

impl Timestamp {
    /// Saturates at the ends of the range (years 1677 and 2262).
    #[must_use]
    pub fn from_parts(seconds: i64, nanoseconds: u32) -> Self {
        Self(seconds.saturating_mul(NS_PER_S).saturating_add(i64::from(nanoseconds)))
    }

    /// Whole seconds (rounded down) and the nanoseconds above them.
    #[must_use]
    pub fn parts(self) -> (i64, u32) {
        (self.0.div_euclid(NS_PER_S), self.0.rem_euclid(NS_PER_S) as u32)
    }

    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000)))
    }
}

const DAY: i64 = 24 * 3600 * NS_PER_S;

/// The rule of `relatime`: whether an access at `now` is noted, where the one before was at `atime` and the last change
/// (of data or inode) at `changed`. One that is younger than the last change, and than a day, stays as it is.
#[must_use]
pub fn access_is_due(atime: Timestamp, changed: Timestamp, now: Timestamp) -> bool {
    atime <= changed || now.0.saturating_sub(atime.0) >= DAY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_noted_after_a_change_and_once_a_day() {
        let due = |atime, changed, now| access_is_due(Timestamp(atime), Timestamp(changed), Timestamp(now));
        assert!(due(5, 5, 6) && due(4, 5, 6));
        assert!(!due(6, 5, 7) && !due(6, 5, 6 + DAY - 1));
        assert!(due(6, 5, 6 + DAY));
        assert!(!due(i64::MAX, 5, 7), "set into the future");
    }

    #[test]
    fn parts_round_down_before_the_epoch() {
        let t = Timestamp::from_parts(-1, 999_999_999);
        assert_eq!(t, Timestamp(-1));
        assert_eq!(t.parts(), (-1, 999_999_999));
    }
}
