//! Decides whether a file call is made on the lane's own thread.
//!
//! ext4 cannot promise not to block in a buffered write, so io_uring hands each to a worker thread: measured on two
//! CPUs, random 4 KiB overwrites of a cached file cost 15 us of CPU each that way with 16 in flight (42 us with one),
//! and 3 to 4.5 us as a plain `pwrite`, whose slowest of 100,000 took 8 ms. Of longer writes, up to a whole chunk, the
//! two wake-ups of a worker cost as much as the copy itself (1 MiB steps of one writer: 510 to 630 us of server CPU per
//! MiB in place, 580 to 730 through workers). So calls are made in place as long as they stay fast.
//!
//! One that does not (the kernel throttles dirtying, the journal commits, a cold block is read) has held up all targets of
//! the lane. So those of the next moments take a detour through the target's helper threads, for so much longer than the
//! stall that trying again costs the others a small part of their time only. On the detour calls are timed too, and as long
//! as one of them is slow, nothing is tried: a disk that stays slow is found out by calls that hold up nobody. (The kernel's
//! workers for the ring are no detour: they take turns with buffered writes to files that fall into one of 64 classes, and
//! one that is stuck holds up those of other disks in its class.) Nor is anything tried while the disk ends nothing of what
//! it has to do, for whichever lane and on whichever way that came to it (`pulse.rs`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::pulse::Pulse;

/// A call that took longer was held up by the disk.
const STALL: Duration = Duration::from_millis(3);
/// How much longer than the stall the detour is that follows it.
const DETOUR_FACTOR: u32 = 16;
/// How long it is at least, and lasts after a call on it that was slow.
const DETOUR_MIN: Duration = Duration::from_millis(100);
const DETOUR_MAX: Duration = Duration::from_secs(60);
/// A call on it that has not ended for so long does not wait for a CPU.
const HANGS: Duration = Duration::from_millis(50);

pub(crate) struct Pace {
    pulse: Arc<Pulse>,
    detour_until: Cell<Option<Instant>>,
    /// Calls on a detour that have not ended, in the order in which they began.
    under_way: RefCell<VecDeque<(u64, Instant)>>,
    next: Cell<u64>,
    stalls: Cell<u64>,
}

impl Pace {
    pub(crate) fn new(pulse: Arc<Pulse>) -> Self {
        Self {
            pulse,
            detour_until: Cell::default(),
            under_way: RefCell::default(),
            next: Cell::default(),
            stalls: Cell::default(),
        }
    }

    /// Whether calls may be made in place now.
    pub(crate) fn is_calm(&self, now: Instant) -> bool {
        if self.pulse.is_still(now) {
            return false;
        }
        let Some(until) = self.detour_until.get() else { return true };
        let hangs = |begun: Instant| now.saturating_duration_since(begun) > HANGS;
        if now < until || self.under_way.borrow().front().is_some_and(|(_, begun)| hangs(*begun)) {
            return false;
        }
        self.detour_until.set(None);
        true
    }

    /// Told how long a call in place took.
    pub(crate) fn record(&self, begun: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(begun);
        if took > STALL {
            self.stalls.set(self.stalls.get() + 1);
            self.stay_away(ended + (took * DETOUR_FACTOR).clamp(DETOUR_MIN, DETOUR_MAX));
        }
    }

    /// Makes `call` in place and takes its time.
    pub(crate) fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let outcome = call();
        self.record(begun, Instant::now());
        outcome
    }

    /// A call that would be made in place if the disk were not slow, and is made elsewhere: lasts until it is dropped.
    pub(crate) fn detour(&self) -> Detour<'_> {
        let (number, begun) = (self.next.get(), Instant::now());
        self.next.set(number + 1);
        self.under_way.borrow_mut().push_back((number, begun));
        Detour { pace: self, number }
    }

    fn stay_away(&self, until: Instant) {
        self.detour_until.set(self.detour_until.get().max(Some(until)));
    }
}

/// See [`Pace::detour`].
pub(crate) struct Detour<'a> {
    pace: &'a Pace,
    number: u64,
}

impl Detour<'_> {
    /// The call itself took so long, without the time to get to another thread and back.
    pub(crate) fn took(self, took: Duration) {
        if took > STALL {
            self.pace.stay_away(Instant::now() + DETOUR_MIN);
        }
    }
}

impl Drop for Detour<'_> {
    fn drop(&mut self) {
        self.pace.under_way.borrow_mut().retain(|(number, _)| *number != self.number);
    }
}

/// Decides whether large requests go through the page cache, from what large writes cost there.
///
/// With memory at hand a copy into the cache takes some 100 to 250 us per MiB, and the writer goes on while the disk works.
/// Where pages have to be cleaned first, or come from the host of a virtual machine (measured: 1,600 us of CPU per MiB
/// where 370 did it past the cache), the way past the cache is the shorter one although it waits for the disk. Reads go by
/// the same: from the cache they gain what the kernel reads ahead, and pay for its pages.
#[derive(Default)]
pub(crate) struct CacheCost {
    /// Microseconds per MiB, smoothed.
    cost: Cell<u32>,
    /// When that was learned last.
    learned: Cell<Option<Instant>>,
    /// Large writes since the last one that tried the cache.
    since_trial: Cell<u32>,
}

/// Microseconds per MiB from which on the cache does not pay.
const DEAR: u32 = 600;
/// While it does not pay, one write in so many tries it.
const TRIAL_EVERY: u32 = 32;
/// What was learned so long ago says nothing any more.
const STALE: Duration = Duration::from_secs(60);

impl CacheCost {
    /// Whether the next large write should go through the cache. Counts as asked for one.
    pub(crate) fn pays(&self, now: Instant) -> bool {
        if !self.is_dear(now) {
            return true;
        }
        let since = self.since_trial.get() + 1;
        self.since_trial.set(since % TRIAL_EVERY);
        since == TRIAL_EVERY
    }

    pub(crate) fn is_dear(&self, now: Instant) -> bool {
        let is_fresh = self.learned.get().is_some_and(|learned| now.saturating_duration_since(learned) < STALE);
        is_fresh && self.cost.get() >= DEAR
    }

    /// Told how long a large write into the cache took.
    pub(crate) fn record(&self, bytes: u64, begun: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(begun);
        let per_mib = took.as_micros().saturating_mul(1 << 20) / u128::from(bytes.max(1));
        // One stall says little about the next write.
        let seen = u32::try_from(per_mib).unwrap_or(u32::MAX).min(4 * DEAR);
        let cost = self.cost.get();
        self.cost.set(cost - cost / 4 + seen / 4);
        self.learned.set(Some(ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 512 << 10;

    fn took(cost: &CacheCost, at: Instant, micros: u64) {
        cost.record(CHUNK, at, at + Duration::from_micros(micros));
    }

    #[test]
    fn one_slow_write_does_not_make_the_cache_dear_and_a_few_do() {
        let (cost, now) = (CacheCost::default(), Instant::now());
        (0..100).for_each(|_| took(&cost, now, 100));
        took(&cost, now, 500);
        assert!(cost.pays(now));
        (0..8).for_each(|_| took(&cost, now, 500));
        assert!(!cost.pays(now));
        assert!(cost.pays(now + STALE + Duration::from_secs(1)), "that was long ago");
    }

    #[test]
    fn a_dear_cache_is_tried_now_and_then_until_it_pays_again() {
        let (cost, now) = (CacheCost::default(), Instant::now());
        (0..100).for_each(|_| took(&cost, now, 20_000));
        let mut trials = 0;
        for _ in 0..1000 {
            if cost.is_dear(now) && cost.pays(now) {
                took(&cost, now, 50);
                trials += 1;
            }
        }
        assert!(!cost.is_dear(now));
        assert!((2..20).contains(&trials), "{trials}");
    }

    fn pace() -> Pace {
        Pace::new(Arc::new(Pulse::new(Instant::now())))
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_stall_sends_the_next_calls_on_a_detour_for_a_while() {
        let (pace, start) = (pace(), Instant::now());
        assert!(pace.is_calm(start));
        pace.record(start, start + Duration::from_micros(500));
        assert!(pace.is_calm(start));
        pace.record(start, start + ms(20));
        assert!(!pace.is_calm(start + ms(20)));
        assert!(!pace.is_calm(start + ms(339)));
        assert!(pace.is_calm(start + ms(341)));
        assert_eq!(pace.stalls.get(), 1);
    }

    #[test]
    fn stalls_take_a_small_part_of_the_time_however_long_they_are() {
        let pace = pace();
        for stall in [ms(4), ms(50), ms(700)] {
            let (begin, mut now, mut lost) = (Instant::now(), Instant::now(), Duration::ZERO);
            while now < begin + Duration::from_secs(600) {
                if pace.is_calm(now) {
                    pace.record(now, now + stall);
                    lost += stall;
                }
                now += ms(1).max(stall);
            }
            assert!(lost < Duration::from_secs(600) / 15, "{lost:?} with stalls of {stall:?}");
        }
    }

    #[test]
    fn nothing_is_tried_while_the_disk_stands_still() {
        let (pace, start) = (pace(), Instant::now());
        pace.pulse.begins(start);
        assert!(pace.is_calm(start) && !pace.is_calm(start + ms(200)));
        pace.pulse.ends(start + ms(200));
        assert!(pace.is_calm(start + ms(200)));
    }

    #[test]
    fn while_calls_on_the_detour_are_slow_nothing_is_tried() {
        let (pace, start) = (pace(), Instant::now());
        pace.record(start, start + ms(4));
        let (hangs, ends) = (pace.detour(), pace.detour());
        ends.took(ms(1));
        let late = Instant::now() + Duration::from_secs(100);
        assert!(!pace.is_calm(late), "one of them has not ended");
        hangs.took(ms(4));
        assert!(!pace.is_calm(Instant::now() + ms(90)), "it has just ended, and was slow");
        assert!(pace.is_calm(Instant::now() + ms(150)));
        assert!(pace.under_way.borrow().is_empty());
    }
}
