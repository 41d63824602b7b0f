//! How fast what is kept back comes to the servers, so that no more is kept back than they can have before a lease ends:
//! whoever asks for a file waits for that, and what is not there by then is lost. Each group of targets counts by itself: one
//! may be slow, or away, beside others.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use types::id::GroupId;

use crate::mutex::lock;

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
fn allowed(rate: u64, term: Duration) -> usize {
    let milliseconds = u64::try_from(term.as_millis()).unwrap_or(u64::MAX) / SHARE;
    let in_time = rate.saturating_mul(milliseconds) / 1000;
    if rate == 0 { ALLOWED_AT_FIRST } else { usize::try_from(in_time).unwrap_or(usize::MAX).max(ALLOWED_MIN) }
}

/// What has landed of late, by group.
#[derive(Debug, Default)]
pub(crate) struct Landings {
    paces: Mutex<BTreeMap<GroupId, Pace>>,
}

#[derive(Debug, Default)]
struct Pace {
    /// Writes under way, and until when their time has been counted.
    flying: usize,
    counted: Option<Instant>,
    /// When the last one began or ended.
    flown: Option<Instant>,
    /// What has landed of late, in which time.
    landed: u64,
    took: Duration,
}

impl Pace {
    /// Time counts while something is under way; after a long one in which nothing was, nothing is known.
    fn pass(&mut self, now: Instant) {
        let since = |then: Option<Instant>| then.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        if self.flying > 0 {
            self.took += since(self.counted.replace(now));
        } else if since(self.flown) > FORGOTTEN {
            (self.landed, self.took) = (0, Duration::ZERO);
        }
    }

    fn begin(&mut self, now: Instant) {
        self.pass(now);
        self.flying += 1;
        (self.counted, self.flown) = (Some(now), Some(now));
    }

    fn end(&mut self, now: Instant, landed: u64) {
        self.pass(now);
        self.flown = Some(now);
        self.flying = self.flying.saturating_sub(1);
        self.landed += landed;
        // Only now: the time of what has not landed yet belongs to that.
        while landed > 0 && self.took > REMEMBERED {
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
    /// Bytes that may be kept back, under leases of this term, where some are for these groups.
    pub(super) fn allowed(&self, now: Instant, term: Duration, groups: impl Iterator<Item = GroupId>) -> usize {
        let mut paces = self.paces();
        let of_group = |group| {
            let rate = paces.get_mut(&group).map_or(0, |pace| {
                pace.pass(now);
                pace.rate()
            });
            allowed(rate, term)
        };
        groups.map(of_group).min().unwrap_or(ALLOWED_AT_FIRST)
    }

    /// So many bytes are on their way to a group, until this is dropped.
    pub(crate) fn passage(&self, group: GroupId, bytes: usize) -> Passage<'_> {
        self.paces().entry(group).or_default().begin(Instant::now());
        Passage { landings: self, group, bytes: bytes as u64, landed: false }
    }

    fn paces(&self) -> MutexGuard<'_, BTreeMap<GroupId, Pace>> {
        lock(&self.paces)
    }

    #[cfg(test)]
    pub(super) fn fly_for_test(&self, group: GroupId, begun: Instant, took: Duration, bytes: u64) {
        let mut paces = self.paces();
        let pace = paces.entry(group).or_default();
        pace.begin(begun);
        pace.end(begun + took, bytes);
    }
}

pub(crate) struct Passage<'a> {
    landings: &'a Landings,
    group: GroupId,
    bytes: u64,
    landed: bool,
}

impl Passage<'_> {
    pub(crate) fn has_landed(mut self) {
        self.landed = true;
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let landed = if self.landed { self.bytes } else { 0 };
        if let Some(pace) = self.landings.paces().get_mut(&self.group) {
            pace.end(Instant::now(), landed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(10);
    const MIB: usize = 1 << 20;
    const NEAR: GroupId = GroupId(1);
    const FAR: GroupId = GroupId(2);

    /// Writes of a MiB one after the other, each of which takes so long.
    fn fly(landings: &Landings, now: &mut Instant, group: GroupId, writes: usize, each: Duration) {
        for _ in 0..writes {
            landings.fly_for_test(group, *now, each, MIB as u64);
            // Nothing is under way for a while.
            *now += each + Duration::from_secs(7);
        }
    }

    fn may(landings: &Landings, now: Instant, groups: &[GroupId]) -> usize {
        landings.allowed(now, TERM, groups.iter().copied())
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
        // To look at it changes nothing.
        for _ in 0..FORGOTTEN.as_secs() {
            now += Duration::from_secs(1);
            may(&landings, now, &[NEAR]);
        }
        assert_eq!(may(&landings, now, &[NEAR]), ALLOWED_AT_FIRST, "that was long ago");
    }

    #[test]
    fn what_does_not_land_counts_while_it_is_under_way_and_writes_together_as_one() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        (0..8).for_each(|_| pace.begin(now));
        now += Duration::from_secs(1);
        (0..4).for_each(|_| pace.end(now, MIB as u64));
        assert_eq!(pace.rate(), 4 * MIB as u64);
        now += Duration::from_secs(3);
        pace.pass(now);
        assert_eq!(pace.rate(), MIB as u64);
        now += Duration::from_secs(400);
        pace.pass(now);
        assert_eq!(allowed(pace.rate(), TERM), ALLOWED_MIN);
        (0..4).for_each(|_| pace.end(now, 0));
        assert_eq!(allowed(pace.rate(), TERM), ALLOWED_MIN, "they have failed");
    }

    #[test]
    fn one_that_is_slow_or_away_is_nothing_to_the_others() {
        let (landings, mut now) = (Landings::default(), Instant::now());
        landings.paces().entry(FAR).or_default().begin(now);
        fly(&landings, &mut now, NEAR, 600, Duration::from_millis(1));
        assert_eq!((may(&landings, now, &[NEAR]), may(&landings, now, &[FAR])), (2500 * MIB, ALLOWED_MIN));
        assert_eq!(may(&landings, now, &[NEAR, FAR]), ALLOWED_MIN);
        assert_eq!(may(&landings, now, &[NEAR, GroupId(3)]), ALLOWED_AT_FIRST, "of one nothing is known");
        assert_eq!(may(&landings, now, &[FAR, GroupId(3)]), ALLOWED_MIN, "one is slow");
    }

    /// Else what was slow once would stay so for who writes little at a time, since none of that is kept back.
    #[test]
    fn many_short_ones_tell_of_a_fast_way_and_few_tell_nothing() {
        let rate = |landed, took| Pace { landed, took, ..Pace::default() }.rate();
        assert_eq!((rate(4096, Duration::from_millis(50)), allowed(0, TERM)), (0, ALLOWED_AT_FIRST));
        assert_eq!(rate(4096, Duration::from_secs(4)), 1024);
        assert_eq!(rate(0, Duration::from_secs(4)), 1, "known to be slow");
        assert_eq!(allowed(u64::MAX, Duration::MAX), (u64::MAX / 1000) as usize);
        let (landings, mut now) = (Landings::default(), Instant::now());
        landings.fly_for_test(NEAR, now, Duration::from_secs(30), 4096);
        now += Duration::from_secs(31);
        assert_eq!(may(&landings, now, &[NEAR]), ALLOWED_MIN);
        for _ in 0..4000 {
            landings.fly_for_test(NEAR, now, Duration::from_micros(300), 4096);
            now += Duration::from_millis(1);
        }
        assert!(may(&landings, now, &[NEAR]) > 8 * MIB);
    }

    #[test]
    fn what_is_dropped_on_its_way_is_on_its_way_no_more() {
        let landings = Landings::default();
        drop(landings.passage(NEAR, MIB));
        landings.passage(NEAR, MIB).has_landed();
        let paces = landings.paces();
        assert_eq!((paces[&NEAR].flying, paces[&NEAR].landed), (0, MIB as u64));
    }
}
