//! The retry ladder: when to try again and when to give up. Pure; the time comes in as a value.

use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

use types::error::Errno;
use types::time::Pauses;

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
    /// The shard may have done it, and has forgotten since what it did for this session.
    Forgotten,
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
            Failure::Forgotten => f.write_str("it has forgotten whether it has done that"),
            Failure::Lapsed => f.write_str("the session may have ended"),
            Failure::Errno(errno) => errno.fmt(f),
        }
    }
}

/// Which attempts of one operation were sent and have no answer.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    unanswered: Cell<Option<Attempts>>,
}

/// When those attempts were made that may have been carried out without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attempts {
    pub(crate) first: Instant,
    pub(crate) last: Instant,
}

impl Attempts {
    pub(crate) fn once(at: Instant) -> Self {
        Self { first: at, last: at }
    }
}

impl Sent {
    /// These attempts were made before.
    pub(crate) fn already(unanswered: Attempts) -> Self {
        Self { unanswered: Cell::new(Some(unanswered)) }
    }

    pub(crate) fn unanswered(&self) -> Option<Attempts> {
        self.unanswered.get()
    }

    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered.get().map(|unanswered| unanswered.first)
    }

    /// An attempt goes now. [`Self::answered`] takes what this returns.
    pub(crate) fn goes(&self, now: Instant) -> Option<Attempts> {
        let before = self.unanswered.get();
        let first = before.map_or(now, |before| before.first);
        self.unanswered.set(Some(Attempts { first, last: now }));
        before
    }

    /// It was answered, if only with a refusal: it will not be carried out any more. Attempts before it may still be.
    pub(crate) fn answered(&self, before: Option<Attempts>) {
        self.unanswered.set(before);
    }
}

const DELAY_MIN: Duration = Duration::from_millis(2);
const DELAY_MAX: Duration = Duration::from_millis(200);
/// An operation that has waited so long is worth a log line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// So is one whose attempt has neither failed nor come back for so long: what has to wait for a sync, or for another client,
/// takes seconds where all is well.
const LATE: Duration = Duration::from_secs(10);

/// One operation's attempts.
#[derive(Debug)]
pub(crate) struct Ladder {
    started: Instant,
    bound: Duration,
    pauses: Pauses,
    reported: bool,
    said_late: Cell<bool>,
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
        let pauses = Pauses::new(DELAY_MIN, DELAY_MAX);
        Self { started: now, bound, pauses, reported: false, said_late: Cell::new(false) }
    }

    pub(crate) fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.waited(now) >= self.bound
    }

    /// True once, where an attempt is still waited for after [`LATE`].
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.waited(now) >= LATE && !self.said_late.replace(true)
    }

    /// An attempt that may wait for long has failed. Where it had reached the server, this was there until now: the bound
    /// counts from here on. (One that is answered at once with a failure, again and again, is not waited for any longer.)
    pub(crate) fn has_waited(&mut self, now: Instant, sent: &Sent, failure: &Failure) {
        let Some(since) = sent.unanswered_since() else { return };
        let is_gone = matches!(failure, Failure::Unreachable(_));
        if is_gone || now.saturating_duration_since(since) >= PATIENCE {
            *self = Self::new(now, self.bound);
        }
    }

    pub(crate) fn after(&mut self, now: Instant, failure: &Failure) -> Step {
        if self.is_over(now) {
            return Step::GiveUp;
        }
        let pause = self.pauses.take();
        // A lost session needs a new handshake, not a wait.
        let after = match failure {
            Failure::NoSession | Failure::Forgotten | Failure::Lapsed => Duration::ZERO,
            Failure::NoRoute | Failure::Unreachable(_) | Failure::StaleMap | Failure::Busy | Failure::Errno(_) => pause,
        };
        let report = !self.reported && self.waited(now) >= PATIENCE;
        self.reported |= report;
        Step::Again { after, report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_answered_is_in_no_doubt_but_what_went_before_it() {
        let (sent, start) = (Sent::default(), Instant::now());
        sent.answered(sent.goes(start));
        assert!(sent.unanswered_since().is_none());
        let lost = start + Duration::from_secs(1);
        assert_eq!(sent.goes(lost), None);
        sent.answered(sent.goes(lost + Duration::from_secs(1)));
        assert_eq!(sent.unanswered(), Some(Attempts::once(lost)));
        sent.goes(lost + Duration::from_secs(2));
        assert_eq!(sent.unanswered(), Some(Attempts { first: lost, last: lost + Duration::from_secs(2) }));
    }

    /// A service that stops tells those who wait for locks to come again, as does one that has forgotten the session.
    #[test]
    fn the_bound_counts_from_the_end_of_a_wait() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let bound = Duration::from_secs(60);
        for failure in [Failure::Busy, Failure::NoSession, Failure::StaleMap, Failure::Unreachable("".into())] {
            let (mut ladder, sent) = (Ladder::new(start, bound), Sent::default());
            ladder.has_waited(after(90), &sent, &failure);
            assert_eq!(ladder.after(after(90), &failure), Step::GiveUp, "it was not even sent");
            let mut ladder = Ladder::new(start, bound);
            sent.goes(after(1));
            ladder.has_waited(after(90), &sent, &failure);
            assert!(matches!(ladder.after(after(90), &failure), Step::Again { report: false, .. }), "{failure}");
            assert_eq!(ladder.after(after(150), &failure), Step::GiveUp);
        }
        let (mut ladder, sent) = (Ladder::new(start, bound), Sent::default());
        sent.goes(after(60));
        ladder.has_waited(after(60), &sent, &Failure::Busy);
        assert_eq!(ladder.after(after(60), &Failure::Busy), Step::GiveUp, "it has never waited");
    }

    #[test]
    fn what_neither_fails_nor_comes_back_is_late_once() {
        let start = Instant::now();
        let ladder = Ladder::new(start, Duration::from_secs(60));
        let late: Vec<u64> = (0..60).filter(|&second| ladder.is_late(start + Duration::from_secs(second))).collect();
        assert_eq!(late, [LATE.as_secs()]);
    }

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
