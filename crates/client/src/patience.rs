//! When to ask the shard for a lease that something could do with. Pure.

use std::time::{Duration, Instant};

/// So often something goes without before the shard is asked.
pub(crate) const PATIENCE: u32 = 2;
/// Between two questions.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How often one kind of thing was done to an open file without the lease that it could do with.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Patience {
    went_without: u32,
    ask_at: Option<Instant>,
}

impl Patience {
    /// It is done without a lease. True where the shard is to be asked for one now.
    pub(crate) fn goes_without(&mut self, now: Instant) -> bool {
        self.went_without = self.went_without.saturating_add(1);
        self.went_without > PATIENCE && self.may_ask(now)
    }

    /// The shard was not asked just now. It is from here on.
    pub(crate) fn may_ask(&mut self, now: Instant) -> bool {
        let may = self.ask_at.is_none_or(|at| now >= at);
        if may {
            self.ask_at = Some(now + ASK_AGAIN);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_without_for_long_asks_now_and_then() {
        let (mut patience, mut now) = (Patience::default(), Instant::now());
        let asked: Vec<bool> = (0..5).map(|_| patience.goes_without(now)).collect();
        assert_eq!(asked, [false, false, true, false, false]);
        now += ASK_AGAIN - Duration::from_millis(1);
        assert!(!patience.goes_without(now) && !patience.may_ask(now));
        now += Duration::from_millis(1);
        assert!(patience.goes_without(now) && !patience.may_ask(now));
    }
}
