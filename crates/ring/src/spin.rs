//! When it pays to look for completions before going to sleep.
//!
//! Waking a sleeping thread on another CPU costs both sides tens of microseconds, in a virtual machine more than a whole
//! metadata operation, and a request of a program that does one thing at a time needs several. Looking costs the own CPU's
//! time, and is a loss where another thread wants it. Both are learnt from what happened: what was looked for in vain is
//! looked for less often, and where giving way shows that others want this CPU, nothing is looked for until some time has
//! passed. Who wants it for a moment only is let in, and it is looked on: on a machine with few CPUs that often is the very
//! thread whose answer is looked for.

use std::time::{Duration, Instant};

/// Sleeps that go without a look after many looks in vain.
const SKIPS_MAX: u32 = 64;
/// Pauses after others have wanted this CPU.
const YIELDS_FOR_MIN: Duration = Duration::from_millis(10);
const YIELDS_FOR_MAX: Duration = Duration::from_secs(1);
/// Giving way took longer than this: somebody else ran, or the kernel had to see to an interrupt.
const SLOW: Duration = Duration::from_micros(12);
/// A look goes on after somebody else ran for so long at once, and in all: to be woken costs as much.
const LENDS_MAX: Duration = Duration::from_micros(60);
const LENDS_IN_ALL_MAX: Duration = Duration::from_micros(100);
/// Giving way took longer than this among loops that stay awake for each other's sake: what ran for less may have been
/// their program, which shares a CPU with them on purpose, from an answer to the next request.
const SLOW_IN_COMPANY: Duration = Duration::from_micros(500);
/// Pauses of keeping company after others have wanted this CPU. Longer, since whoever belongs to another session is let in
/// only when the kernel's slice of some milliseconds is over.
const LEAVES_FOR_MIN: Duration = Duration::from_millis(200);
const LEAVES_FOR_MAX: Duration = Duration::from_secs(2);
/// Who has kept company for so long was in nobody's way.
const CALM: Duration = Duration::from_millis(10);

/// Where a look in vain was followed by a short sleep, the next ones last longer: up to so many times the limit. As KVM does
/// before it lets an idle virtual CPU sleep (`halt_poll_ns`).
const REACH_MAX: u32 = 4;

/// Who slept for longer had nothing to do, and is hardly in a hurry now: an idle service costs no CPU time.
const IDLE_AFTER: Duration = Duration::from_millis(2);

/// How a look ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    Found,
    InVain,
    /// Another thread wants this CPU.
    Contended,
}

/// Decides; the clock and the looking are the driver's.
#[derive(Debug)]
pub(crate) struct Spinner {
    limit: Duration,
    /// How long the next look lasts: the limit, or longer where that has been too short lately.
    reach: Duration,
    /// Sleeps that still go without a look, and how many it will be after the next look in vain.
    skips: u32,
    skips_next: u32,
    /// Until then nothing is looked for, since others have wanted this CPU; and how long the next such pause lasts.
    not_before: Option<Instant>,
    yields_for: Duration,
    /// The last sleep was a long one.
    is_idle: bool,
    /// Until then no company is kept, since others have wanted this CPU; and how long the next such pause lasts.
    no_company_before: Option<Instant>,
    leaves_for: Duration,
}

impl Spinner {
    /// Looks for `limit` each time, or up to [`REACH_MAX`] times that where it seems worth it; zero: never.
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            limit,
            reach: limit,
            skips: 0,
            skips_next: 1,
            not_before: None,
            yields_for: YIELDS_FOR_MIN,
            is_idle: false,
            no_company_before: None,
            leaves_for: LEAVES_FOR_MIN,
        }
    }

    /// How long to look before this sleep.
    pub(crate) fn before_sleep(&mut self, now: Instant) -> Option<Duration> {
        if self.limit.is_zero() || self.is_idle || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        Some(self.reach)
    }

    /// Whether to stay awake for others that are at work, however often that was in vain.
    pub(crate) fn keeps_company(&self, now: Instant) -> bool {
        !self.limit.is_zero() && self.no_company_before.is_none_or(|at| now >= at)
    }

    /// It was kept for `lasted`.
    pub(crate) fn kept_company(&mut self, look: Look, lasted: Duration, now: Instant) {
        if lasted >= CALM {
            self.leaves_for = LEAVES_FOR_MIN;
        }
        if look == Look::Contended {
            self.no_company_before = Some(now + self.leaves_for);
            self.leaves_for = (self.leaves_for * 2).min(LEAVES_FOR_MAX);
        }
    }

    /// It has slept, and waited for so long in all, with the look before.
    pub(crate) fn slept(&mut self, waited: Duration) {
        self.is_idle = waited > IDLE_AFTER;
        let reach_max = self.limit * REACH_MAX;
        if waited > reach_max {
            self.reach = self.limit;
        } else if waited > self.reach {
            self.reach = (self.reach * 2).min(reach_max);
            (self.skips, self.skips_next) = (0, (self.skips_next / 2).max(1));
        }
    }

    pub(crate) fn looked(&mut self, look: Look, now: Instant) {
        match look {
            Look::Found => {
                self.skips_next = (self.skips_next / 2).max(1);
                self.yields_for = (self.yields_for / 2).max(YIELDS_FOR_MIN);
            }
            Look::InVain => {
                self.skips = self.skips_next;
                self.skips_next = (self.skips_next * 2).min(SKIPS_MAX);
            }
            Look::Contended => {
                self.not_before = Some(now + self.yields_for);
                self.yields_for = (self.yields_for * 2).min(YIELDS_FOR_MAX);
            }
        }
    }
}

/// How much of the CPU's time one look has left to others so far.
#[derive(Default, Debug)]
pub(crate) struct Lent(Duration);

impl Lent {
    /// Whether others want this CPU for longer than a moment, where giving way has taken so long. `switched` is asked, where
    /// that was long, whether another thread ran meanwhile: a clock tick alone takes as long in a virtual machine, some
    /// hundred times a second.
    pub(crate) fn is_contended(
        &mut self,
        gave_way_for: Duration,
        accompanies: bool,
        switched: impl FnOnce() -> bool,
    ) -> bool {
        if accompanies {
            return gave_way_for > SLOW_IN_COMPANY && switched();
        }
        if gave_way_for <= SLOW || !switched() {
            return false;
        }
        self.0 += gave_way_for;
        gave_way_for > LENDS_MAX || self.0 > LENDS_IN_ALL_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(100);

    fn looks(spinner: &mut Spinner, sleeps: u32, look: Look, now: Instant) -> u32 {
        let mut count = 0;
        for _ in 0..sleeps {
            if spinner.before_sleep(now).is_some() {
                spinner.looked(look, now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn a_limit_of_zero_is_no_look_at_all() {
        let now = Instant::now();
        assert_eq!(Spinner::new(LIMIT).before_sleep(now), Some(LIMIT));
        assert_eq!(Spinner::new(Duration::ZERO).before_sleep(now), None);
    }

    #[test]
    fn who_has_slept_long_sleeps_again_at_once() {
        let now = Instant::now();
        let mut spinner = Spinner::new(LIMIT);
        spinner.slept(IDLE_AFTER * 2);
        assert_eq!(spinner.before_sleep(now), None);
        spinner.slept(LIMIT);
        assert_eq!(spinner.before_sleep(now), Some(LIMIT));
    }

    #[test]
    fn looks_last_as_long_as_waits_lately_did() {
        let now = Instant::now();
        let mut spinner = Spinner::new(LIMIT);
        let look = |spinner: &mut Spinner| spinner.before_sleep(now).inspect(|_| spinner.looked(Look::InVain, now));
        assert_eq!(look(&mut spinner), Some(LIMIT));
        // Just too short: the next ones are not left out for that, and last longer.
        spinner.slept(LIMIT * 3);
        assert_eq!(look(&mut spinner), Some(LIMIT * 2));
        spinner.slept(LIMIT * 3);
        assert_eq!(look(&mut spinner), Some(LIMIT * REACH_MAX));
        spinner.slept(LIMIT * REACH_MAX * 2);
        assert_eq!(look(&mut spinner), None, "in vain");
        spinner.slept(LIMIT * REACH_MAX * 2);
        assert_eq!(look(&mut spinner), Some(LIMIT), "far too short: as before");
        let mut never = Spinner::new(Duration::ZERO);
        never.slept(LIMIT);
        assert_eq!(never.before_sleep(now), None);
    }

    #[test]
    fn an_interrupt_is_not_taken_for_somebody_who_wants_the_cpu() {
        let mut lent = Lent::default();
        assert!(!lent.is_contended(SLOW, false, || panic!("not to be asked for each time")));
        for _ in 0..100 {
            assert!(!lent.is_contended(LENDS_MAX * 2, false, || false));
        }
        assert!(lent.is_contended(LENDS_MAX * 2, false, || true));
    }

    #[test]
    fn who_wants_the_cpu_for_a_moment_is_let_in_some_times_in_a_look() {
        for (gave_way, tolerated) in [(LENDS_MAX, 1), (LENDS_IN_ALL_MAX / 4, 4), (LENDS_MAX + SLOW, 0)] {
            let mut lent = Lent::default();
            let count = (0..100).take_while(|_| !lent.is_contended(gave_way, false, || true)).count();
            assert_eq!(count, tolerated, "{gave_way:?}");
        }
        let mut lent = Lent::default();
        assert!((0..100).all(|_| !lent.is_contended(SLOW / 2, false, || true)), "what is quick is no loss");
    }

    #[test]
    fn company_is_kept_unless_somebody_wants_the_cpu_for_longer() {
        let mut now = Instant::now();
        let mut spinner = Spinner::new(LIMIT);
        spinner.slept(IDLE_AFTER * 2);
        looks(&mut spinner, 100, Look::InVain, now);
        spinner.looked(Look::Contended, now);
        assert!(spinner.keeps_company(now));
        let mut lent = Lent::default();
        assert!((0..100).all(|_| !lent.is_contended(SLOW_IN_COMPANY, true, || true)));
        assert!(lent.is_contended(SLOW_IN_COMPANY * 2, true, || true));
        let mut pause = |lasted| {
            spinner.kept_company(Look::Contended, lasted, now);
            let begun = now;
            while !spinner.keeps_company(now) {
                now += Duration::from_millis(10);
            }
            now - begun
        };
        let pauses: Vec<_> = (0..10).map(|_| pause(LIMIT)).collect();
        assert!(pauses.is_sorted() && pauses[0] == LEAVES_FOR_MIN && pauses[9] == LEAVES_FOR_MAX, "{pauses:?}");
        assert_eq!(pause(CALM), LEAVES_FOR_MIN, "after a calm time it is tried again sooner");
        assert!(!Spinner::new(Duration::ZERO).keeps_company(now));
    }

    #[test]
    fn looks_in_vain_become_rare_and_one_that_finds_something_makes_them_frequent_again() {
        let now = Instant::now();
        let mut spinner = Spinner::new(LIMIT);
        assert_eq!(looks(&mut spinner, 100, Look::Found, now), 100);
        assert!(looks(&mut spinner, 1000, Look::InVain, now) < 25);
        for _ in 0..10 {
            looks(&mut spinner, SKIPS_MAX + 1, Look::Found, now);
        }
        assert_eq!(looks(&mut spinner, 100, Look::Found, now), 100);
    }

    #[test]
    fn who_shares_the_cpu_is_left_alone_for_longer_and_longer() {
        let mut now = Instant::now();
        let mut spinner = Spinner::new(LIMIT);
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            assert!(spinner.before_sleep(now).is_some());
            spinner.looked(Look::Contended, now);
            let mut pause = Duration::ZERO;
            while spinner.before_sleep(now + pause).is_none() {
                pause += Duration::from_millis(1);
            }
            assert!(pause >= last && pause <= YIELDS_FOR_MAX, "{pause:?} after {last:?}");
            (last, now) = (pause, now + pause);
        }
        assert_eq!(last, YIELDS_FOR_MAX);
    }
}
