//! How long to wait before a dead process is started again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(10);
/// A process that ran so long counts as healthy: its next death begins anew. Longer than any start takes, and short, so
/// that somebody who kills processes one after the other does not make programs on the mount wait for us.
const STABLE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// The wait after a process died that had run for `ran`.
    pub(crate) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= STABLE {
            self.next = FIRST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_to_a_bound_and_begins_anew_after_a_stable_while() {
        let mut backoff = Backoff::new();
        let waits: Vec<u128> = (0..9).map(|_| backoff.after(Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(backoff.after(STABLE), FIRST);
        assert_eq!(backoff.after(STABLE - Duration::from_millis(1)), FIRST * 2);
    }
}
