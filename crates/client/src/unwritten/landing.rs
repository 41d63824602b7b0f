//! How fast what is kept back comes to the servers, so that no more is kept back than they can have before a lease ends:
//! whoever asks for a file waits for that, and what is not there by then is lost. Each group of targets counts by itself: one
//! may be slow, or away, beside others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use layout::extents;
use types::id::GroupId;
use types::layout::Layout;

/// Bytes that may be kept back in any case...
const ALLOWED_MIN: usize = 256 << 10;
/// ...and as long as nothing is known.
const ALLOWED_AT_FIRST: usize = 1 << 20;
/// Fewer bytes tell of the time that a request takes, not of how much fits through, unless they take as long as this.
const TELLING: u64 = 128 << 10;
const TELLING_TIME: Duration = Duration::from_secs(1);
/// What has landed in more time than this counts half.
const REMEMBERED: Duration = Duration::from_secs(2);
/// Nothing has landed for so long, nor is it under way: what was known may be so no more.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// Something is kept back only while more than half of a lease's term is left ([`Board::is_to_be_renewed`]): this part of the
/// term leaves as much time again.
///
/// [`Board::is_to_be_renewed`]: crate::lease::Board::is_to_be_renewed
const SHARE: u64 = 4;

/// How many bytes may be kept back under a lease of this term, where so many land in a second; 0: nothing is known.
pub(super) fn allowed(rate: u64, term: Duration) -> usize {
    let milliseconds = u64::try_from(term.as_millis()).unwrap_or(u64::MAX) / SHARE;
    let in_time = rate.saturating_mul(milliseconds) / 1000;
    if rate == 0 { ALLOWED_AT_FIRST } else { usize::try_from(in_time).unwrap_or(usize::MAX).max(ALLOWED_MIN) }
}

/// How many bytes go to each group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cargo(BTreeMap<GroupId, u64>);

impl Cargo {
    pub(crate) fn add(&mut self, layout: &Layout, offset: u64, len: u64) {
        for piece in extents(layout, offset, len) {
            *self.0.entry(piece.group).or_default() += u64::from(piece.len);
        }
    }
}

/// What has landed of late, by group.
#[derive(Debug, Default)]
pub(crate) struct Landings {
    paces: Mutex<BTreeMap<GroupId, Pace>>,
}

#[derive(Debug, Default)]
struct Pace {
    /// Flights under way, and when that was looked at last.
    flying: usize,
    since: Option<Instant>,
    /// What has landed of late, in which time.
    landed: u64,
    took: Duration,
}

impl Pace {
    /// The time since the last look counts, if something was under way in it; after a long one in which nothing was, nothing is
    /// known.
    fn pass(&mut self, now: Instant) {
        let passed = self.since.replace(now).map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if self.flying > 0 {
            self.took += passed;
        } else if passed > FORGOTTEN {
            (self.landed, self.took) = (0, Duration::ZERO);
        }
    }

    fn land(&mut self, bytes: u64) {
        self.flying = self.flying.saturating_sub(1);
        self.landed += bytes;
        // Only now: the time of what has not landed yet belongs to that.
        while bytes > 0 && self.took > REMEMBERED {
            (self.landed, self.took) = (self.landed / 2, self.took / 2);
        }
    }

    /// Bytes per second; 0: not known.
    fn rate(&self) -> u64 {
        let is_telling = self.landed >= TELLING || self.took >= TELLING_TIME;
        let rate = u128::from(self.landed) * 1_000_000 / self.took.as_micros().max(1);
        if is_telling { u64::try_from(rate).unwrap_or(u64::MAX).max(1) } else { 0 }
    }
}

impl Landings {
    /// Bytes per second that land in the slowest of these groups; 0: of one it is not known.
    pub(crate) fn rate(&self, now: Instant, groups: &[GroupId]) -> u64 {
        let mut paces = self.paces();
        let of_group = |group| {
            paces.get_mut(group).map_or(0, |pace: &mut Pace| {
                pace.pass(now);
                pace.rate()
            })
        };
        groups.iter().map(of_group).min().unwrap_or(0)
    }

    /// A write that nobody keeps back, where it tells.
    pub(crate) fn passage(&self, layout: &Layout, offset: u64, len: u64) -> Option<Passage<'_>> {
        (len >= TELLING).then(|| {
            let mut cargo = Cargo::default();
            cargo.add(layout, offset, len);
            self.begins(Instant::now(), &cargo);
            Passage { landings: self, cargo, landed: false }
        })
    }

    pub(super) fn begins(&self, now: Instant, cargo: &Cargo) {
        let mut paces = self.paces();
        for &group in cargo.0.keys() {
            let pace = paces.entry(group).or_default();
            pace.pass(now);
            pace.flying += 1;
        }
    }

    /// What has begun before has ended.
    pub(super) fn ends(&self, now: Instant, cargo: &Cargo, landed: bool) {
        let mut paces = self.paces();
        for (group, &bytes) in &cargo.0 {
            if let Some(pace) = paces.get_mut(group) {
                pace.pass(now);
                pace.land(if landed { bytes } else { 0 });
            }
        }
    }

    fn paces(&self) -> MutexGuard<'_, BTreeMap<GroupId, Pace>> {
        self.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One on its way.
pub(crate) struct Passage<'a> {
    landings: &'a Landings,
    cargo: Cargo,
    landed: bool,
}

impl Passage<'_> {
    pub(crate) fn has_landed(mut self) {
        self.landed = true;
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.landings.ends(Instant::now(), &self.cargo, self.landed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(10);
    const MIB: usize = 1 << 20;
    const NEAR: GroupId = GroupId(1);
    const FAR: GroupId = GroupId(2);

    fn mib(group: GroupId) -> Cargo {
        Cargo([(group, MIB as u64)].into())
    }

    /// Flights of a MiB one after the other, each of which takes so long.
    fn fly(landings: &Landings, now: &mut Instant, group: GroupId, flights: usize, each: Duration) {
        for _ in 0..flights {
            landings.begins(*now, &mib(group));
            *now += each;
            landings.ends(*now, &mib(group), true);
            // Nothing is under way.
            *now += Duration::from_secs(7);
        }
    }

    fn may(landings: &Landings, now: Instant, groups: &[GroupId]) -> usize {
        allowed(landings.rate(now, groups), TERM)
    }

    #[test]
    fn no_more_is_kept_back_than_lands_in_a_part_of_the_term() {
        let (landings, mut now) = (Landings::default(), Instant::now());
        assert_eq!(may(&landings, now, &[NEAR]), ALLOWED_AT_FIRST);
        fly(&landings, &mut now, NEAR, 3, Duration::from_millis(1));
        assert_eq!(may(&landings, now, &[NEAR]), 2500 * MIB);
        fly(&landings, &mut now, NEAR, 3, Duration::from_secs(8));
        let slow = may(&landings, now, &[NEAR]);
        assert!((ALLOWED_MIN..=400 << 10).contains(&slow), "{slow}");
        fly(&landings, &mut now, NEAR, 60, Duration::from_millis(10));
        assert!(may(&landings, now, &[NEAR]) > 32 * MIB, "it is fast again");
        now += 2 * FORGOTTEN;
        assert_eq!(may(&landings, now, &[NEAR]), ALLOWED_AT_FIRST, "that was long ago");
    }

    #[test]
    fn what_does_not_land_counts_while_it_is_under_way_and_flights_together_as_one() {
        let (landings, mut now) = (Landings::default(), Instant::now());
        (0..8).for_each(|_| landings.begins(now, &mib(NEAR)));
        now += Duration::from_secs(1);
        (0..4).for_each(|_| landings.ends(now, &mib(NEAR), true));
        assert_eq!(may(&landings, now, &[NEAR]), 10 * MIB);
        now += Duration::from_secs(3);
        assert_eq!(may(&landings, now, &[NEAR]), 10 * MIB / 4);
        now += Duration::from_secs(96);
        assert_eq!(may(&landings, now, &[NEAR]), ALLOWED_MIN);
        (0..4).for_each(|_| landings.ends(now, &mib(NEAR), false));
        assert_eq!(may(&landings, now, &[NEAR]), ALLOWED_MIN, "they have failed");
    }

    #[test]
    fn one_that_is_slow_or_away_is_nothing_to_the_others() {
        let (landings, mut now) = (Landings::default(), Instant::now());
        landings.begins(now, &mib(FAR));
        for _ in 0..600 {
            fly(&landings, &mut now, NEAR, 1, Duration::from_millis(1));
        }
        assert_eq!((may(&landings, now, &[NEAR]), may(&landings, now, &[FAR])), (2500 * MIB, ALLOWED_MIN));
        assert_eq!(may(&landings, now, &[NEAR, FAR]), ALLOWED_MIN);
        assert_eq!(may(&landings, now, &[NEAR, GroupId(3)]), ALLOWED_AT_FIRST, "of one nothing is known");
    }

    #[test]
    fn short_ones_tell_nothing_of_what_fits_through() {
        let rate = |landed, took| Pace { landed, took, ..Pace::default() }.rate();
        assert_eq!((rate(4096, Duration::from_millis(50)), allowed(0, TERM)), (0, ALLOWED_AT_FIRST));
        assert_eq!(rate(4096, Duration::from_secs(4)), 1024);
        assert_eq!(rate(0, Duration::from_secs(4)), 1, "known to be slow");
        assert_eq!(allowed(u64::MAX, Duration::MAX), (u64::MAX / 1000) as usize);
    }
}
