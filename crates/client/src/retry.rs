//! The retry ladder: when to try again and when to give up. Pure; the time comes in as a value.

use std::fmt;
use std::time::{Duration, Instant};

use types::error::Errno;

/// Why one attempt failed without an answer for the application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// Nothing is registered for it in the cluster map.
    NoRoute,
    /// No connection, or it broke.
    Unreachable(String),
    /// The server knows a newer map than we do.
    StaleMap,
    /// The server asks to come back shortly.
    Busy,
    /// The shard has forgotten the session.
    NoSession,
    /// The shard may have told others that this session writes no more: it is to be asked before anything is changed.
    Lapsed,
    /// An answer for the application.
    Errno(Errno),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoRoute => f.write_str("no server is registered for it"),
            Failure::Unreachable(why) => f.write_str(why),
            Failure::StaleMap => f.write_str("it has another version of the cluster map"),
            Failure::Busy => f.write_str("it is busy"),
            Failure::NoSession => f.write_str("it does not know this session"),
            Failure::Lapsed => f.write_str("the session may have ended"),
            Failure::Errno(errno) => errno.fmt(f),
        }
    }
}

const DELAY_MIN: Duration = Duration::from_millis(2);
const DELAY_MAX: Duration = Duration::from_millis(200);
/// An operation that has waited so long is worth a log line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// One operation's attempts.
#[derive(Debug)]
pub(crate) struct Ladder {
    started: Instant,
    bound: Duration,
    delay: Duration,
    reported: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Try again after this long. `report`: say so in the log, once per operation.
    Again {
        after: Duration,
        report: bool,
    },
    GiveUp,
}

impl Ladder {
    pub(crate) fn new(now: Instant, bound: Duration) -> Self {
        Self { started: now, bound, delay: DELAY_MIN, reported: false }
    }

    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.waited(now) >= self.bound
    }

    pub(crate) fn after(&mut self, now: Instant, failure: &Failure) -> Step {
        if self.is_over(now) {
            return Step::GiveUp;
        }
        // A lost session needs a new handshake, not a wait.
        let after = match failure {
            Failure::NoSession | Failure::Lapsed => Duration::ZERO,
            Failure::NoRoute | Failure::Unreachable(_) | Failure::StaleMap | Failure::Busy | Failure::Errno(_) => {
                self.delay
            }
        };
        self.delay = (self.delay * 2).min(DELAY_MAX);
        let report = !self.reported && self.waited(now) >= PATIENCE;
        self.reported |= report;
        Step::Again { after, report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_longer_each_time_and_ends_at_the_bound() {
        let start = Instant::now();
        let mut ladder = Ladder::new(start, Duration::from_secs(10));
        let mut now = start;
        let mut reports = 0;
        let mut last = Duration::ZERO;
        while let Step::Again { after, report } = ladder.after(now, &Failure::Busy) {
            assert!(after >= last && after <= DELAY_MAX);
            last = after;
            reports += u32::from(report);
            now += after;
        }
        assert_eq!(reports, 1);
        assert!(now - start >= Duration::from_secs(10) && now - start < Duration::from_secs(11));
    }
}
