//! How often a task looks whether another one is done. Mostly that takes no longer than a request or two; but where a server
//! does not answer, all who wait for it would keep a CPU busy by that alone.

use std::time::{Duration, Instant};

use types::error::Errno;

use crate::caller::Caller;

/// At first...
const OFTEN: Duration = Duration::from_micros(100);
/// ...and at last.
const SELDOM: Duration = Duration::from_millis(5);
/// Nobody waits longer than it takes by more than such a part of that, but for the first looks.
const PART: u32 = 16;

/// The looks of one task, which come less often the longer it has waited.
pub(crate) struct Looks {
    since: Option<Instant>,
    seldom: Duration,
}

impl Default for Looks {
    fn default() -> Self {
        Self::within(SELDOM)
    }
}

impl Looks {
    /// None of which comes later than this after the one before.
    pub(crate) fn within(seldom: Duration) -> Self {
        Self { since: None, seldom }
    }

    /// Looks until `done` has something to say.
    ///
    /// # Errors
    /// `EINTR` where the caller ends before.
    pub(crate) async fn until<T>(
        mut self,
        caller: &Caller<'_>,
        mut done: impl FnMut() -> Option<T>,
    ) -> Result<T, Errno> {
        loop {
            match done() {
                Some(outcome) => return Ok(outcome),
                None => self.pause_for(caller).await?,
            }
        }
    }

    /// Until the next one, of who does not wait on when its caller ends.
    ///
    /// # Errors
    /// `EINTR` where it ends.
    pub(crate) async fn pause_for(&mut self, caller: &Caller<'_>) -> Result<(), Errno> {
        if caller.is_ending() {
            return Err(Errno::EINTR);
        }
        self.pause().await;
        Ok(())
    }

    /// Until the next one.
    pub(crate) async fn pause(&mut self) {
        let now = ring::now();
        let since = *self.since.get_or_insert(now);
        ring::sleep(pause_after(now.saturating_duration_since(since), self.seldom)).await;
    }
}

fn pause_after(waited: Duration, seldom: Duration) -> Duration {
    (waited / PART).clamp(OFTEN, seldom)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use types::cred::Credentials;

    use super::*;
    use crate::test_client;

    #[test]
    fn who_waits_hears_what_another_task_has_done_unless_its_caller_ends() {
        test_client::run(async |_| {
            let looks = Cell::new(0);
            let at = |done| {
                looks.set(looks.get() + 1);
                (looks.get() >= done).then_some(looks.get())
            };
            let ending = || looks.get() >= 5;
            let caller = Caller::interruptible(Credentials::default(), &|| true, &ending);
            assert_eq!(
                Looks::default().until(&caller, || at(3)).await,
                Ok(3),
                "that it was signalled is nothing to it"
            );
            assert_eq!(Looks::within(OFTEN).until(&caller, || at(5)).await, Ok(5), "done comes first");
            assert_eq!(Looks::default().until(&caller, || at(9)).await, Err(Errno::EINTR));
            assert_eq!(looks.get(), 6);
        });
    }

    #[test]
    fn who_waits_for_long_looks_seldom_and_not_much_too_late() {
        let (mut waited, mut looks) = (Duration::ZERO, 0);
        while waited < Duration::from_secs(1) {
            let pause = pause_after(waited, SELDOM);
            assert!(pause <= SELDOM && pause <= OFTEN.max(waited / PART));
            waited += pause;
            looks += 1;
        }
        assert!(looks < 300, "{looks}");
        let bounds = |seldom| (pause_after(Duration::ZERO, seldom), pause_after(Duration::MAX, seldom));
        assert_eq!((bounds(SELDOM), bounds(2 * OFTEN)), ((OFTEN, SELDOM), (OFTEN, 2 * OFTEN)));
    }
}
