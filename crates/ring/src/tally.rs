//! How the looks of one thread before its sleeps have ended: whether looking pays on a host, for who reads the log.

use std::time::{Duration, Instant};

use crate::spin::Look;

/// How often they are told, at most.
const TOLD_EVERY: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) found: u64,
    pub(crate) in_vain: u64,
    /// Given up for others that wanted the CPU.
    pub(crate) contended: u64,
}

/// Of one thread, which shares it with nobody.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: Counts,
    since: Instant,
}

impl Tally {
    pub(crate) fn new(now: Instant) -> Self {
        Self { counts: Counts::default(), since: now }
    }

    /// Counts a look; answers now and then what there was since the last answer, and for how long that was.
    pub(crate) fn add(&mut self, look: Look, now: Instant) -> Option<(Counts, Duration)> {
        *match look {
            Look::Found => &mut self.counts.found,
            Look::InVain => &mut self.counts.in_vain,
            Look::Contended => &mut self.counts.contended,
        } += 1;
        let lasted = now.saturating_duration_since(self.since);
        if lasted < TOLD_EVERY {
            return None;
        }
        self.since = now;
        Some((std::mem::take(&mut self.counts), lasted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_look_is_told_once_and_not_often() {
        let begun = Instant::now();
        let mut tally = Tally::new(begun);
        let (mut told, mut sum) = (0, Counts::default());
        for n in 0..700u64 {
            let look =
                [Look::Found, Look::Found, Look::Found, Look::Found, Look::InVain, Look::InVain, Look::Contended];
            let now = begun + Duration::from_millis(100) * n as u32;
            let Some((counts, lasted)) = tally.add(look[n as usize % look.len()], now) else { continue };
            assert!(lasted >= TOLD_EVERY);
            told += 1;
            sum.found += counts.found;
            sum.in_vain += counts.in_vain;
            sum.contended += counts.contended;
        }
        let late = tally.add(Look::Contended, begun + Duration::from_secs(1000)).expect("long ago").0;
        assert_eq!(told, 6);
        let sum = (sum.found + late.found, sum.in_vain + late.in_vain, sum.contended + late.contended);
        assert_eq!(sum, (400, 200, 101));
    }
}
