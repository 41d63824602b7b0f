//! When a connection is dead though nobody has said so: pure, time comes in.
//!
//! A busy server is told from a cut rail by the other side's *kernel*: it acknowledges what arrives, however busy the
//! process is. So what counts is how long something that was sent has had no acknowledgement at all. Where we wait for an
//! answer and hear nothing, a ping gives the kernel over there something to acknowledge.

use std::time::{Duration, Instant};

/// Bytes without acknowledgement for so long, at least, are lost. Twice the kernel's first retransmission.
pub const PATIENCE: Duration = Duration::from_millis(400);
/// After so long without a word, and with requests under way, we ask.
pub const QUIET: Duration = Duration::from_millis(150);
/// Without requests under way.
pub const IDLE: Duration = Duration::from_secs(1);
/// Two pings of one connection are at least so far apart.
const ASK_EVERY: Duration = Duration::from_millis(400);
/// Between two looks, with and without requests under way.
pub const LOOK_BUSY: Duration = Duration::from_millis(100);
pub const LOOK_IDLE: Duration = Duration::from_millis(400);

/// What is seen of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signs {
    /// Requests wait for answers.
    pub waiting: bool,
    /// Since the last bytes came.
    pub quiet: Duration,
    /// The kernel has sent something that the other side's has not acknowledged.
    pub unacknowledged: bool,
    /// Since the other side's kernel acknowledged anything.
    pub since_acknowledged: Duration,
    /// Usual time to an acknowledgement, and how much that varies.
    pub round_trip: Duration,
    pub variance: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Fine,
    /// Worth a ping.
    Ask,
    Dead,
}

/// What looks at one connection have shown of its rail.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Since then all looks saw bytes without acknowledgement, and no acknowledgement came.
    stuck: Option<Instant>,
    asked: Option<Instant>,
}

impl Health {
    pub fn look(&mut self, now: Instant, signs: &Signs) -> Verdict {
        if !signs.unacknowledged {
            self.stuck = None;
        } else {
            let stuck = self.stuck.get_or_insert(now);
            // Something was acknowledged after that.
            *stuck = (*stuck).max(now.checked_sub(signs.since_acknowledged).unwrap_or(*stuck));
            let patience = PATIENCE.max(signs.round_trip * 2 + signs.variance * 4);
            if now.saturating_duration_since(*stuck) >= patience {
                return Verdict::Dead;
            }
        }
        let worth = signs.quiet >= if signs.waiting { QUIET } else { IDLE };
        let lately = self.asked.is_some_and(|asked| now.saturating_duration_since(asked) < ASK_EVERY);
        if !worth || lately {
            return Verdict::Fine;
        }
        self.asked = Some(now);
        Verdict::Ask
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn signs(quiet: u64, unacknowledged: bool, since: u64) -> Signs {
        let (round_trip, variance) = (ms(1), ms(1));
        Signs { waiting: true, quiet: ms(quiet), unacknowledged, since_acknowledged: ms(since), round_trip, variance }
    }

    #[test]
    fn a_busy_server_lives_as_long_as_its_kernel_answers() {
        let (begin, mut health) = (Instant::now(), Health::default());
        for at in (0..60_000).step_by(100) {
            let verdict = health.look(begin + ms(at), &signs(at, at % 800 == 0, 50));
            assert_ne!(verdict, Verdict::Dead, "at {at} ms");
        }
    }

    #[test]
    fn what_begins_after_a_long_rest_has_its_time() {
        let (begin, mut health) = (Instant::now(), Health::default());
        assert_eq!(health.look(begin, &signs(0, true, 3_600_000)), Verdict::Fine);
        assert_eq!(health.look(begin + ms(300), &signs(0, true, 3_600_300)), Verdict::Fine);
        assert_eq!(health.look(begin + ms(400), &signs(0, true, 3_600_400)), Verdict::Dead);
    }

    proptest! {
        /// A rail that is cut at any moment is found out within a second, whatever went on before.
        #[test]
        fn a_cut_is_found_within_a_second(cut in 0u64..5000, phase in 0u64..100, waits in any::<bool>()) {
            let (begin, mut health) = (Instant::now(), Health::default());
            let (mut dead, mut asked) = (None, None);
            for at in (phase..9000).step_by(100) {
                let is_cut = at >= cut;
                let quiet = if is_cut { at - cut } else { 10 };
                // Either we write all the time, or we wait for an answer and only pings go out.
                let unacknowledged = if waits { asked.is_some_and(|asked| asked >= cut) } else { is_cut };
                match health.look(begin + ms(at), &signs(quiet, unacknowledged, if is_cut { at - cut } else { 5 })) {
                    Verdict::Dead => { dead = Some(at); break }
                    Verdict::Ask => asked = Some(at),
                    Verdict::Fine => {}
                }
            }
            let dead = dead.expect("it is found out");
            prop_assert!(dead >= cut && dead - cut <= 1000, "cut at {cut}, found at {dead}");
        }
    }
}
