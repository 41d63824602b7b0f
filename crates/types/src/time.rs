//! Time as a value: the pure crates never ask for it, they are told.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Wall-clock time in nanoseconds since the Unix epoch; negative before 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

const NS_PER_S: i64 = 1_000_000_000;
/// The beginning of 2020, in seconds.
const YEAR_2020: i64 = 1_577_836_800;

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

    /// Whole seconds, for numbers that rise with the clock. 0 before that.
    #[must_use]
    pub fn seconds_since_2020(self) -> u64 {
        u64::try_from(self.parts().0 - YEAR_2020).unwrap_or(0)
    }
}

const DAY: i64 = 24 * 3600 * NS_PER_S;

/// Which accesses change an access time: the words of `mount(8)`. The numbers are those on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum AccessTimes {
    /// The first after a change, and one a day.
    #[default]
    Relatime = 0,
    /// Each.
    Strictatime = 1,
    /// None.
    Noatime = 2,
}

impl AccessTimes {
    const NAMES: [(Self, &str); 3] =
        [(Self::Relatime, "relatime"), (Self::Strictatime, "strictatime"), (Self::Noatime, "noatime")];

    /// Whether an access at `now` is noted, where the one before was at `atime` and the last change (of data or inode) at
    /// `changed`. By `relatime` one that is younger than the last change, and than a day, stays as it is.
    #[must_use]
    pub fn access_is_due(self, atime: Timestamp, changed: Timestamp, now: Timestamp) -> bool {
        match self {
            Self::Relatime => atime <= changed || now.0.saturating_sub(atime.0) >= DAY,
            Self::Strictatime => true,
            Self::Noatime => false,
        }
    }

    #[must_use]
    pub fn from_u8(value: u8) -> Option<Self> {
        Self::NAMES.iter().find(|(rule, _)| *rule as u8 == value).map(|(rule, _)| *rule)
    }
}

impl fmt::Display for AccessTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(rule, _)| rule == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

impl FromStr for AccessTimes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(rule, _)| *rule).ok_or_else(|| format!("{text:?} is none of relatime, strictatime and noatime"))
    }
}

/// Pauses between attempts: each is twice as long as the one before, up to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    #[must_use]
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    /// The next one.
    pub fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Pauses::new(Duration::from_millis(100), Duration::from_secs(1));
        let taken: Vec<u128> = (0..6).map(|_| pauses.take().as_millis()).collect();
        assert_eq!(taken, [100, 200, 400, 800, 1000, 1000]);
        let mut endless = Pauses::new(Duration::MAX, Duration::MAX);
        assert_eq!([endless.take(), endless.take()], [Duration::MAX; 2]);
    }

    #[test]
    fn an_access_is_noted_after_a_change_and_once_a_day() {
        let by = |rule: AccessTimes, [atime, changed, now]: [i64; 3]| {
            rule.access_is_due(Timestamp(atime), Timestamp(changed), Timestamp(now))
        };
        let due = |atime, changed, now| by(AccessTimes::Relatime, [atime, changed, now]);
        assert!(due(5, 5, 6) && due(4, 5, 6));
        assert!(!due(6, 5, 7) && !due(6, 5, 6 + DAY - 1));
        assert!(due(6, 5, 6 + DAY));
        assert!(!due(i64::MAX, 5, 7), "set into the future");
        for times in [[5, 5, 6], [6, 5, 7], [i64::MAX, 5, 7]] {
            assert!(by(AccessTimes::Strictatime, times) && !by(AccessTimes::Noatime, times));
        }
    }

    #[test]
    fn rules_have_names_and_numbers() {
        for rule in [AccessTimes::Relatime, AccessTimes::Strictatime, AccessTimes::Noatime] {
            assert_eq!(rule.to_string().parse(), Ok(rule));
            assert_eq!(AccessTimes::from_u8(rule as u8), Some(rule));
        }
        assert_eq!(AccessTimes::from_u8(3), None);
        assert!("atime".parse::<AccessTimes>().is_err());
    }

    #[test]
    fn parts_round_down_before_the_epoch() {
        let t = Timestamp::from_parts(-1, 999_999_999);
        assert_eq!(t, Timestamp(-1));
        assert_eq!(t.parts(), (-1, 999_999_999));
    }

    #[test]
    fn whatever_a_clock_says_is_so_long_after_2020_or_not_at_all() {
        // 2026-11-28 00:00:00, by `date -u -d 2026-11-28 +%s` and of 2020-01-01.
        let seconds = Timestamp::from_parts(1_795_824_000, 999).seconds_since_2020();
        assert_eq!(seconds, (6 * 365 + 2 + 331) * 24 * 3600);
        for early in [i64::MIN, -1, 0, YEAR_2020 * NS_PER_S - 1, YEAR_2020 * NS_PER_S] {
            assert_eq!(Timestamp(early).seconds_since_2020(), 0);
        }
        assert_eq!(Timestamp(i64::MAX).seconds_since_2020() / (365 * 24 * 3600), 242);
    }
}
