//! When it pays to look for completions before going to sleep.
//!
//! Waking a sleeping thread on another CPU costs both sides tens of microseconds, in a virtual machine more than a
//! whole metadata operation. Looking costs the own CPU's time, and is a loss where another thread wants it. Both are
//! learnt from what happened: what was looked for in vain is looked for less often, and where giving way shows that
//! others want this CPU, nothing is looked for until some time has passed.

use std::time::{Duration, Instant};

/// Sleeps that go without a look after many looks in vain.
const SKIPS_MAX: u32 = 64;
/// Pauses after others have wanted this CPU.
const YIELDS_FOR_MIN: Duration = Duration::from_millis(10);
const YIELDS_FOR_MAX: Duration = Duration::from_secs(1);
/// Giving way took longer than this: somebody else ran.
const CONTENDED: Duration = Duration::from_micros(12);

/// So many messages of one turn are a stream of them: others are under way while these are handled. Who asks for one
/// thing at a time, on the other hand, is best served on the CPU that it waits on, which has to be idle for that.
const MESSAGES_MIN: u32 = 8;

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
    /// Sleeps that still go without a look, and how many it will be after the next look in vain.
    skips: u32,
    skips_next: u32,
    not_before: Option<Instant>,
    yields_for: Duration,
}

impl Spinner {
    /// Looks for `limit` at most each time; zero: never.
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, skips: 0, skips_next: 1, not_before: None, yields_for: YIELDS_FOR_MIN }
    }

    /// How long to look before this sleep; `messages` were handled since the last one.
    pub(crate) fn before_sleep(&mut self, messages: u32, now: Instant) -> Option<Duration> {
        if self.limit.is_zero() || messages < MESSAGES_MIN || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        Some(self.limit)
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

    /// Giving way has taken so long.
    pub(crate) fn is_contended(gave_way_for: Duration) -> bool {
        gave_way_for > CONTENDED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_micros(100);

    fn looks(spinner: &mut Spinner, sleeps: u32, look: Look, now: Instant) -> u32 {
        let mut count = 0;
        for _ in 0..sleeps {
            if spinner.before_sleep(MESSAGES_MIN, now).is_some() {
                spinner.looked(look, now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn only_a_stream_of_messages_is_waited_for_awake() {
        let now = Instant::now();
        let mut spinner = Spinner::new(LIMIT);
        assert_eq!(spinner.before_sleep(MESSAGES_MIN - 1, now), None);
        assert_eq!(spinner.before_sleep(MESSAGES_MIN, now), Some(LIMIT));
        assert_eq!(Spinner::new(Duration::ZERO).before_sleep(1000, now), None);
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
            assert!(spinner.before_sleep(MESSAGES_MIN, now).is_some());
            spinner.looked(Look::Contended, now);
            let mut pause = Duration::ZERO;
            while spinner.before_sleep(MESSAGES_MIN, now + pause).is_none() {
                pause += Duration::from_millis(1);
            }
            assert!(pause >= last && pause <= YIELDS_FOR_MAX, "{pause:?} after {last:?}");
            (last, now) = (pause, now + pause);
        }
        assert_eq!(last, YIELDS_FOR_MAX);
    }
}
