//! How often a task looks whether another one is done. Mostly that takes no longer than a request or two; but where a server
//! does not answer, all who wait for it would keep a CPU busy by that alone.

use std::time::{Duration, Instant};

/// At first...
const OFTEN: Duration = Duration::from_micros(100);
/// ...and at last.
const SELDOM: Duration = Duration::from_millis(5);
/// Nobody waits longer than it takes by more than such a part of that, but for the first looks.
const PART: u32 = 16;

/// The looks of one task, which come less often the longer it has waited.
#[derive(Default)]
pub(crate) struct Looks {
    since: Option<Instant>,
}

impl Looks {
    /// Until the next one.
    pub(crate) async fn pause(&mut self) {
        let now = ring::now();
        let since = *self.since.get_or_insert(now);
        ring::sleep(pause_after(now.saturating_duration_since(since))).await;
    }
}

fn pause_after(waited: Duration) -> Duration {
    (waited / PART).clamp(OFTEN, SELDOM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_long_looks_seldom_and_not_much_too_late() {
        let (mut waited, mut looks) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(1) {
            let pause = pause_after(waited);
            assert!(pause <= SELDOM && pause <= OFTEN.max(waited / PART));
            waited += pause;
            looks += 1;
        }
        assert!(looks < 300, "{looks}");
        assert_eq!((pause_after(Duration::ZERO), pause_after(Duration::MAX)), (OFTEN, SELDOM));
    }
}
