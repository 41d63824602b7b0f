//! Directories whose names change so often that several shards should bear it.
//!
//! Of high rates, one change in so many is counted: it tells them apart well enough and costs next to nothing.

use std::collections::BTreeMap;

use types::id::InodeId;

/// Counted is one change in this many. Prime: names often change in turns, such as one here and one there.
const STRIDE: u64 = 17;
/// Where fewer per second are of interest, each one is counted.
const STRIDE_FROM: u64 = 1000;
/// Rates are averages over this time.
const WINDOW_MS: u64 = 1000;
/// In so many windows on end: what is over soon is not worth a split.
const WINDOWS: u32 = 5;

/// Who decides has to ask in time: what lies between two calls of [`Busy::advance`] counts as one window.
pub(crate) struct Busy {
    /// Changes per second that one shard bears. 0: any number.
    rate_max: u64,
    stride: u64,
    /// Changes until the next one is counted.
    skip: u64,
    counted: BTreeMap<InodeId, u64>,
    since_ms: u64,
    /// In how many windows on end they were above the rate.
    streaks: BTreeMap<InodeId, u32>,
}

impl Busy {
    pub(crate) fn new(rate_max: u64) -> Self {
        let stride = if rate_max < STRIDE_FROM { 1 } else { STRIDE };
        Self { rate_max, stride, skip: stride, counted: BTreeMap::new(), since_ms: 0, streaks: BTreeMap::new() }
    }

    /// A name in `directory` is made, removed or replaced.
    pub(crate) fn note(&mut self, directory: InodeId) {
        self.skip -= 1;
        if self.skip == 0 {
            self.skip = self.stride;
            if self.rate_max > 0 {
                *self.counted.entry(directory).or_default() += self.stride;
            }
        }
    }

    /// By a clock that never steps back. Answers the directories that have been above the rate for long enough, at the end
    /// of each window in which they still are.
    pub(crate) fn advance(&mut self, now_ms: u64) -> Vec<InodeId> {
        let elapsed_ms = now_ms.saturating_sub(self.since_ms);
        if elapsed_ms < WINDOW_MS {
            return Vec::new();
        }
        self.since_ms = now_ms;
        let least = self.rate_max.saturating_mul(elapsed_ms) / 1000;
        let before = std::mem::take(&mut self.streaks);
        let above = std::mem::take(&mut self.counted).into_iter().filter(|(_, count)| *count > least);
        self.streaks =
            above.map(|(id, _)| (id, before.get(&id).map_or(1, |streak| streak.saturating_add(1)))).collect();
        self.streaks.iter().filter(|(_, streak)| **streak >= WINDOWS).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: InodeId = InodeId(20);
    const OTHER: InodeId = InodeId(21);

    /// So many changes in the next second.
    fn second(busy: &mut Busy, now_ms: &mut u64, changes: u64) -> Vec<InodeId> {
        for _ in 0..changes {
            busy.note(ONE);
        }
        *now_ms += 1000;
        busy.advance(*now_ms)
    }

    fn busy() -> (Busy, u64) {
        let (mut busy, now_ms) = (Busy::new(1000), 70_000);
        assert_eq!(busy.advance(now_ms), []);
        (busy, now_ms)
    }

    #[test]
    fn a_directory_is_busy_after_five_seconds_and_for_as_long_as_it_is() {
        let (mut busy, mut now_ms) = busy();
        for _ in 0..4 {
            assert_eq!(second(&mut busy, &mut now_ms, 1100), []);
        }
        assert_eq!(second(&mut busy, &mut now_ms, 1100), [ONE]);
        assert_eq!(second(&mut busy, &mut now_ms, 1100), [ONE]);
        assert_eq!(second(&mut busy, &mut now_ms, 900), []);
        assert_eq!(second(&mut busy, &mut now_ms, 1100), [], "it was not, in between");
    }

    #[test]
    fn what_is_done_in_turns_counts_for_each() {
        let (mut busy, mut now_ms) = busy();
        for round in 0..5 {
            for _ in 0..1200 {
                busy.note(ONE);
                busy.note(OTHER);
            }
            now_ms += 1000;
            assert_eq!(busy.advance(now_ms), if round == 4 { vec![ONE, OTHER] } else { vec![] });
        }
    }

    #[test]
    fn a_burst_in_a_long_time_is_none() {
        let (mut busy, mut now_ms) = busy();
        for _ in 0..10 {
            now_ms += 9000;
            assert_eq!(second(&mut busy, &mut now_ms, 2000), []);
        }
    }

    #[test]
    fn any_number_may_be_borne() {
        let (mut busy, mut now_ms) = (Busy::new(0), 0);
        for _ in 0..10 {
            assert_eq!(second(&mut busy, &mut now_ms, 5000), []);
        }
    }
}
