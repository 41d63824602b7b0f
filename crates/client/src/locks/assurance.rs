//! For how long the shards keep this session, and with it its locks, though they hear nothing more of it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ring::asleep;
use types::id::ShardId;

use crate::lease::SLEPT;
use crate::mutex::lock;

#[derive(Default)]
pub(crate) struct Assurances(Mutex<BTreeMap<ShardId, Assurance>>);

/// When something is sent to a shard, by both clocks: the machine may sleep until the answer is here.
#[derive(Clone, Copy)]
pub(crate) struct Sending {
    pub(crate) at: Instant,
    /// How long the machine had slept by then.
    pub(crate) asleep: Duration,
}

impl Sending {
    pub(crate) fn now() -> Self {
        Self { at: ring::now(), asleep: asleep() }
    }
}

struct Assurance {
    /// So long after it heard of the session a shard forgets it.
    expiry: Duration,
    /// When a request was sent that the shard has answered: it has heard of us then, or later.
    heard: Instant,
    asleep: Duration,
    /// Connections made by then are trusted though the shard was not heard of since.
    excused: Instant,
}

impl Assurance {
    /// The clock by which it is `now` stands still while the machine sleeps, and that of the shard does not.
    fn is_sure(&self, now: Instant, asleep: Duration) -> bool {
        let slept = if self.has_slept(asleep) { asleep.saturating_sub(self.asleep) } else { Duration::ZERO };
        now.saturating_duration_since(self.heard) + slept < self.expiry
    }

    /// The machine has, since the shard was heard of, as it has slept for so long in all.
    fn has_slept(&self, asleep: Duration) -> bool {
        asleep >= self.asleep + SLEPT
    }
}

impl Assurances {
    /// The shard has opened the session, in answer to what was sent at `sent`.
    pub(crate) fn opened(&self, shard: ShardId, sent: Sending, expiry: Duration) {
        let Sending { at, asleep } = sent;
        self.lock().insert(shard, Assurance { expiry, heard: at, asleep, excused: at });
    }

    /// The shortest time in which a shard that has opened the session ends it when it hears nothing.
    pub(crate) fn shortest_expiry(&self) -> Option<Duration> {
        self.lock().values().map(|assurance| assurance.expiry).min()
    }

    /// The shard knows the session, in answer to what was sent at `sent`. Where it might have ended before, that says
    /// nothing: another thread may just have opened it anew, and not yet heard what was lost.
    pub(crate) fn heard(&self, shard: ShardId, sent: Sending) {
        if let Some(assurance) = self.lock().get_mut(&shard)
            && assurance.is_sure(sent.at, sent.asleep)
            && sent.at > assurance.heard
        {
            (assurance.heard, assurance.asleep) = (sent.at, sent.asleep);
        }
    }

    /// The shard cannot have ended the session yet.
    pub(crate) fn is_sure(&self, shard: ShardId, now: Instant) -> bool {
        self.lock().get(&shard).is_some_and(|assurance| assurance.is_sure(now, asleep()))
    }

    /// The shard cannot have ended the session before a change over a connection to storage that was made at
    /// `connected` is refused. The shard was heard of since: where it ends the session from then on, it has that
    /// connection ended first, whatever our clock says. (That may have stood still with the whole machine.)
    pub(crate) fn covers(&self, shard: ShardId, connected: Instant, now: Instant) -> bool {
        let covers = |assurance: &Assurance| assurance.heard.max(assurance.excused) >= connected;
        self.lock().get(&shard).is_some_and(|assurance| assurance.is_sure(now, asleep()) && covers(assurance))
    }

    /// The shard does not answer: connections to storage that were made until `now` are trusted all the same, if the machine
    /// has not slept since the shard was heard of. (A virtual machine that was stopped does not know; but then the shard is
    /// there.) Tells whether they are.
    pub(crate) fn excuse(&self, shard: ShardId, now: Instant) -> bool {
        let asleep = asleep();
        self.lock().get_mut(&shard).is_some_and(|assurance| {
            let has_slept = assurance.has_slept(asleep);
            if !has_slept {
                assurance.excused = assurance.excused.max(now);
            }
            !has_slept
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ShardId, Assurance>> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(at: Instant) -> Sending {
        Sending { at, asleep: asleep() }
    }

    #[test]
    fn counts_from_the_sending_of_what_was_answered() {
        let (assurances, shard, start) = (Assurances::default(), ShardId(3), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(!assurances.is_sure(shard, start), "it was never asked");
        assurances.heard(shard, sent(start));
        assert!(!assurances.is_sure(shard, start), "nobody knows its expiry");
        assurances.opened(shard, sent(start), Duration::from_secs(10));
        assert!(assurances.is_sure(shard, after(9)) && !assurances.is_sure(shard, after(10)));
        assurances.heard(shard, sent(after(5)));
        // An answer that was longer on its way.
        assurances.heard(shard, sent(after(4)));
        assert!(assurances.is_sure(shard, after(14)) && !assurances.is_sure(shard, after(15)));
        assert!(!assurances.is_sure(ShardId(4), after(9)));
        // Too late: what was lost meanwhile is known when the session is opened again.
        assurances.heard(shard, sent(after(15)));
        assert!(!assurances.is_sure(shard, after(15)));
        assurances.opened(shard, sent(after(16)), Duration::from_secs(10));
        assert!(assurances.is_sure(shard, after(20)));
    }

    #[test]
    fn a_connection_that_is_younger_than_the_last_answer_is_not_covered() {
        let (assurances, shard, start) = (Assurances::default(), ShardId(3), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assurances.opened(shard, sent(after(1)), Duration::from_secs(10));
        assert!(assurances.covers(shard, start, after(2)) && assurances.covers(shard, after(1), after(2)));
        assert!(!assurances.covers(shard, after(2), after(2)));
        assert!(!assurances.covers(shard, start, after(11)), "the session may have ended");
        assurances.heard(shard, sent(after(3)));
        assert!(assurances.covers(shard, after(2), after(12)));
        assert!(!assurances.covers(ShardId(4), start, after(2)));

        assert!(!assurances.covers(shard, after(5), after(6)));
        assert!(assurances.excuse(shard, after(6)) && !assurances.excuse(ShardId(4), after(6)));
        assert!(assurances.covers(shard, after(5), after(12)) && !assurances.covers(shard, after(7), after(12)));
        assert!(!assurances.covers(shard, after(5), after(13)), "the session may have ended");
        let known = assurances.lock();
        let has_slept = |more| known[&shard].has_slept(asleep() + more);
        assert!(!has_slept(Duration::ZERO) && has_slept(SLEPT * 2));
    }

    #[test]
    fn a_shard_may_have_ended_the_session_of_who_has_slept() {
        let (assurances, shard, start) = (Assurances::default(), ShardId(3), Instant::now());
        let (at, slept) = (start + Duration::from_secs(1), Duration::from_secs(3600));
        assurances.opened(shard, Sending { at: start, asleep: slept }, Duration::from_secs(10));
        let is_sure = |more| assurances.lock()[&shard].is_sure(at, slept + more);
        assert!(is_sure(Duration::ZERO) && is_sure(SLEPT / 2) && is_sure(Duration::from_secs(8)));
        assert!(!is_sure(Duration::from_secs(9)));
        // The answer to what was sent after it says nothing.
        assurances.heard(shard, Sending { at, asleep: slept + Duration::from_secs(9) });
        assert_eq!(assurances.lock()[&shard].heard, start);
    }

    #[test]
    fn who_has_slept_before_the_answer_came_is_not_excused() {
        let (assurances, shard, start) = (Assurances::default(), ShardId(3), Instant::now());
        assurances.opened(shard, sent(start), Duration::from_secs(10));
        let later = start + Duration::from_secs(1);
        let before = Sending { at: later, asleep: asleep() + Duration::from_secs(7) };
        assurances.heard(shard, before);
        let known = assurances.lock();
        assert_eq!((known[&shard].heard, known[&shard].asleep), (later, before.asleep));
        assert!(known[&shard].has_slept(before.asleep + Duration::from_secs(3600)));
    }
}
