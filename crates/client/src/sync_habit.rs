//! Notices who syncs each write. Pure.
//!
//! Programs that do so (logs, databases) wait for the disk each time. Where a storage service is told with a write that a sync
//! is to follow, it can often have it on the disk with the answer (`Write` in the protocol), which costs it much less than a
//! write to its cache and a sync, and the sync then needs no request.

/// A sync counts as much as so many writes...
const SYNC_WEIGHT: u32 = 2;
/// ...of which so many more make it a habit...
const HABIT: u32 = 4;
/// ...which is given up after so many without one, less that: as many programs may sync their writes to one file in turn.
const SCORE_MAX: u32 = 32;

/// Whether those who write an open file sync each write.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct SyncHabit {
    score: u32,
}

impl SyncHabit {
    /// What is written now is going to be synced, as far as one can tell.
    pub(crate) fn expects_sync(self) -> bool {
        self.score >= HABIT
    }

    /// A program has written.
    pub(crate) fn wrote(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    /// A program syncs.
    pub(crate) fn syncs(&mut self) {
        self.score = (self.score + SYNC_WEIGHT).min(SCORE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_syncs_each_write_is_expected_to_go_on_with_it() {
        let mut habit = SyncHabit::default();
        let expected = |habit: &mut SyncHabit, writes: u32| {
            (1..writes).for_each(|_| habit.wrote());
            let expected = habit.expects_sync();
            habit.wrote();
            habit.syncs();
            expected
        };
        assert!((0..1000).all(|_| !expected(&mut habit, 2)), "several writes are synced together");
        assert!(!expected(&mut habit, 1), "once is no habit");
        (0..4).for_each(|_| habit.syncs());
        assert!((0..1000).all(|_| expected(&mut habit, 1)));
        (0..SCORE_MAX).for_each(|_| habit.wrote());
        assert!(!habit.expects_sync(), "no more writes wait for the disk after the last sync");
    }

    #[test]
    fn so_are_several_programs_that_do_it_in_turn() {
        let mut habit = SyncHabit::default();
        (0..20).for_each(|_| habit.syncs());
        for _ in 0..100 {
            (0..16).for_each(|_| habit.wrote());
            assert!(habit.expects_sync());
            (0..16).for_each(|_| habit.syncs());
        }
    }
}
