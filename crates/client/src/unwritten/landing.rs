//! How fast what is kept back comes to the servers, so that no more is kept back than they can have before a lease ends:
//! whoever asks for a file waits for that, and what is not there by then is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that may be kept back in any case...
const ALLOWED_MIN: usize = 256 << 10;
/// ...and as long as nothing is known.
const ALLOWED_AT_FIRST: usize = 1 << 20;
/// Fewer bytes tell of the time that a request takes, not of how much fits through, unless they take as long as this.
const TELLING: u64 = 128 << 10;
const TELLING_TIME: Duration = Duration::from_secs(1);
/// What has landed in more time than this counts half.
const REMEMBERED: Duration = Duration::from_secs(2);
/// Something is kept back only while more than half of a lease's term is left ([`Board::is_to_be_renewed`]): this part of the
/// term leaves as much time again.
///
/// [`Board::is_to_be_renewed`]: crate::lease::Board::is_to_be_renewed
const SHARE: u64 = 4;

/// Bytes per second; 0: not known.
pub(super) fn rate(bytes: u64, took: Duration) -> u64 {
    let is_telling = bytes >= TELLING || took >= TELLING_TIME;
    let rate = u128::from(bytes) * 1_000_000 / took.as_micros().max(1);
    if is_telling { u64::try_from(rate).unwrap_or(u64::MAX).max(1) } else { 0 }
}

/// How many bytes may be kept back under a lease of this term, where so many land in a second.
pub(super) fn allowed(rate: u64, term: Duration) -> usize {
    let milliseconds = u64::try_from(term.as_millis()).unwrap_or(u64::MAX) / SHARE;
    let in_time = rate.saturating_mul(milliseconds) / 1000;
    if rate == 0 { ALLOWED_AT_FIRST } else { usize::try_from(in_time).unwrap_or(usize::MAX).max(ALLOWED_MIN) }
}

/// Of all files of a mount together.
#[derive(Debug, Default)]
pub(crate) struct Landings {
    pace: Mutex<Pace>,
    rate: AtomicU64,
}

#[derive(Debug, Default)]
struct Pace {
    /// Flights under way, and since when there is one.
    flying: usize,
    since: Option<Instant>,
    /// What has landed of late, in which time.
    landed: u64,
    took: Duration,
}

impl Pace {
    /// The time since the last look counts, if something was under way in it.
    fn pass(&mut self, now: Instant) {
        if let Some(since) = self.since.replace(now).filter(|_| self.flying > 0) {
            self.took += now.saturating_duration_since(since);
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
}

impl Landings {
    /// Bytes that may be kept back of all files, under leases of this term.
    pub(super) fn allowed(&self, term: Duration) -> usize {
        allowed(self.rate.load(Ordering::Relaxed), term)
    }

    /// A write of so many bytes that nobody keeps back, where it tells.
    pub(crate) fn passage(&self, bytes: u64) -> Option<Passage<'_>> {
        (bytes >= TELLING).then(|| {
            let begun = Instant::now();
            self.begins(begun);
            Passage { landings: self, begun, landed: 0 }
        })
    }

    pub(super) fn begins(&self, now: Instant) {
        self.change(now, |pace| pace.flying += 1);
    }

    /// A flight has ended, of which so many bytes have landed.
    pub(super) fn ends(&self, now: Instant, landed: usize) {
        self.change(now, |pace| pace.land(landed as u64));
    }

    /// What is under way takes its time.
    pub(super) fn look(&self, now: Instant) {
        self.change(now, |_| {});
    }

    fn change(&self, now: Instant, change: impl FnOnce(&mut Pace)) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.pass(now);
        change(&mut pace);
        self.rate.store(rate(pace.landed, pace.took), Ordering::Relaxed);
    }
}

/// One on its way.
pub(crate) struct Passage<'a> {
    landings: &'a Landings,
    begun: Instant,
    landed: usize,
}

impl Passage<'_> {
    /// Bytes per second at which it has.
    pub(crate) fn has_landed(mut self, bytes: u64) -> u64 {
        self.landed = usize::try_from(bytes).unwrap_or(usize::MAX);
        rate(bytes, self.begun.elapsed())
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        self.landings.ends(Instant::now(), self.landed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(10);
    const MIB: usize = 1 << 20;

    /// Flights of a MiB one after the other, each of which takes so long.
    fn fly(landings: &Landings, now: &mut Instant, flights: usize, each: Duration) {
        for _ in 0..flights {
            landings.begins(*now);
            *now += each;
            landings.ends(*now, MIB);
            // Nothing is under way.
            *now += Duration::from_secs(7);
        }
    }

    #[test]
    fn no_more_is_kept_back_than_lands_in_a_part_of_the_term() {
        let (landings, mut now) = (Landings::default(), Instant::now());
        assert_eq!(landings.allowed(TERM), ALLOWED_AT_FIRST);
        fly(&landings, &mut now, 3, Duration::from_millis(1));
        assert_eq!(landings.allowed(TERM), 2500 * MIB);
        fly(&landings, &mut now, 3, Duration::from_secs(8));
        let slow = landings.allowed(TERM);
        assert!((ALLOWED_MIN..=400 << 10).contains(&slow), "{slow}");
        fly(&landings, &mut now, 60, Duration::from_millis(10));
        assert!(landings.allowed(TERM) > 32 * MIB, "it is fast again: {}", landings.allowed(TERM));
    }

    #[test]
    fn what_does_not_land_counts_while_it_is_under_way_and_flights_together_as_one() {
        let (landings, mut now) = (Landings::default(), Instant::now());
        (0..8).for_each(|_| landings.begins(now));
        now += Duration::from_secs(1);
        (0..4).for_each(|_| landings.ends(now, MIB));
        assert_eq!(landings.allowed(TERM), 10 * MIB);
        now += Duration::from_secs(3);
        landings.look(now);
        assert_eq!(landings.allowed(TERM), 10 * MIB / 4);
        now += Duration::from_secs(96);
        landings.look(now);
        assert_eq!(landings.allowed(TERM), ALLOWED_MIN);
        (0..4).for_each(|_| landings.ends(now, 0));
        assert_eq!(landings.allowed(TERM), ALLOWED_MIN, "they have failed");
    }

    #[test]
    fn short_ones_tell_nothing_of_what_fits_through() {
        assert_eq!((rate(4096, Duration::from_millis(50)), allowed(0, TERM)), (0, ALLOWED_AT_FIRST));
        assert_eq!(rate(4096, Duration::from_secs(4)), 1024);
        assert_eq!(rate(0, Duration::from_secs(4)), 1, "known to be slow");
        assert_eq!(allowed(u64::MAX, Duration::MAX), (u64::MAX / 1000) as usize);
    }
}
