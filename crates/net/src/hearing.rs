//! When a rail is deaf: what is sent over it arrives, and no answer comes back, as where only long packets are lost on
//! the way here. Pure, time comes in.
//!
//! The other side's kernel acknowledges, so that such a rail does not look cut. But one thread over there answers over
//! all rails: where it is busy, or stopped, it answers over none. So what tells is another rail over which it goes on
//! answering long after it had a question over this one.

use std::time::{Duration, Instant};

/// What came is missed for so long, at least: three retransmissions of the kernel in a row.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// So many times the other rail has answered anew meanwhile. One answer may have been on its way before, and one may be the
/// first after the other side stood still.
const BESIDE: u32 = 3;

/// What is seen of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signs {
    /// Something was sent that is answered at once, and has no answer.
    pub asked: bool,
    /// All that was sent is acknowledged.
    pub arrived: bool,
    /// Bytes that have come so far.
    pub received: u64,
    /// Usual time to an acknowledgement, and how much that varies.
    pub round_trip: Duration,
    pub variance: Duration,
}

/// What looks at one connection have shown of the way here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hearing {
    received: u64,
    patience: Duration,
    /// Since then an answer is owed, and nothing came.
    mute: Option<Instant>,
    beside: u32,
}

impl Hearing {
    pub fn look(&mut self, now: Instant, signs: &Signs) {
        if !signs.asked || signs.received != self.received {
            *self = Self { received: signs.received, ..Self::default() };
        }
        self.patience = PATIENCE.max(signs.round_trip * 2 + signs.variance * 4);
        if signs.asked && signs.arrived {
            self.mute.get_or_insert(now);
        }
    }

    /// For how long an answer is owed, and nothing came.
    #[must_use]
    pub fn mute(&self, now: Instant) -> Option<Duration> {
        self.mute.map(|since| now.saturating_duration_since(since))
    }

    /// Compares it with the other connections of the same peer: when one of those was asked what it has answered since this
    /// was asked before. Bytes alone say nothing: those that its kernel has go on coming from a service that stands still.
    /// Whether this one is deaf.
    pub fn is_deaf(&mut self, now: Instant, elsewhere: Option<Instant>) -> bool {
        let Some(since) = self.mute else { return false };
        self.beside += u32::from(elsewhere.is_some_and(|asked| asked > since));
        self.beside >= BESIDE && now.saturating_duration_since(since) >= self.patience
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn signs(asked: bool, received: u64) -> Signs {
        Signs { asked, arrived: true, received, round_trip: ms(1), variance: ms(1) }
    }

    /// When it is found deaf, of looks each 100 ms and comparisons each 400: `at` a moment, whether something is asked,
    /// how much has come, and when the last question was asked that another rail has answered.
    fn found(at: impl Fn(u64) -> (bool, u64, u64)) -> Option<u64> {
        let (begin, mut hearing) = (Instant::now(), Hearing::default());
        let mut before = 0;
        (0..30_000).step_by(100).find(|&now| {
            let (asked, received, answered) = at(now);
            hearing.look(begin + ms(now), &signs(asked, received));
            let is_compared = now % 400 == 0;
            let elsewhere = (answered > before).then(|| begin + ms(answered));
            if is_compared {
                before = now;
            }
            is_compared && hearing.is_deaf(begin + ms(now), elsewhere)
        })
    }

    #[test]
    fn a_rail_that_takes_all_and_brings_nothing_is_found_beside_one_that_answers() {
        let deaf = found(|now| (now > 5000, now.min(5000), now)).expect("it is found");
        assert!((6000..7000).contains(&deaf), "{deaf}");
        assert_eq!(found(|now| (false, now.min(5000), now)), None, "nothing is asked");
        assert_eq!(found(|now| (now % 1000 == 0, 0, now)), None, "an answer had come before it was looked for");
        assert_eq!(found(|now| (true, now / 1200, now)), None, "an answer comes, if late");
        assert_eq!(found(|now| (true, 0, now.min(500))), None, "the other one does not answer either");
    }

    #[test]
    fn patience_grows_with_the_round_trip() {
        let (now, mut hearing) = (Instant::now(), Hearing::default());
        hearing.look(now, &Signs { round_trip: ms(1500), variance: ms(250), ..signs(true, 0) });
        let deaf = [1000, 2000, 3000, 3999, 4000].map(|at| hearing.is_deaf(now + ms(at), Some(now + ms(at))));
        assert_eq!(deaf, [false, false, false, false, true]);
    }

    proptest! {
        /// A server that stands still now and then, and goes on with the two rails one after the other, is not taken
        /// for a deaf rail.
        #[test]
        fn a_server_that_stands_still_is_no_deaf_rail(
            stops in prop::collection::vec((0u64..3000, 1u64..5000), 1..8),
            behind in 0u64..400,
        ) {
            // Moments in which it works; over this rail it answers a while after it does over the other one.
            let mut works = Vec::new();
            let mut at = 0;
            for (runs, stands) in stops {
                works.push((at, at + runs));
                at += runs + stands;
            }
            works.push((at, u64::MAX));
            let last = |now: u64| {
                let begun = works.iter().rfind(|&&(begin, _)| begin <= now);
                begun.map_or(0, |&(_, end)| now.min(end))
            };
            prop_assert_eq!(found(|now| (true, last(now.saturating_sub(behind)), last(now))), None);
        }
    }
}
