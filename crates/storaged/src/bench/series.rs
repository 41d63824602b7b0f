//! The course of a run in bounded memory: blocks by interval; when there are too many intervals, they become twice as long.
//! Pure.

/// Entries are merged in pairs when there are so many.
const ENTRIES_MAX: usize = 128;

pub(super) struct Series {
    /// Milliseconds of an entry.
    interval_ms: u64,
    /// Of what is added, in milliseconds.
    tick_ms: u64,
    entries: Vec<u64>,
    /// Ticks in the last entry.
    filled: u64,
}

impl Series {
    pub(super) fn new(tick_ms: u64) -> Self {
        Self { interval_ms: tick_ms, tick_ms, entries: Vec::new(), filled: 0 }
    }

    /// The blocks of one tick more.
    pub(super) fn add(&mut self, blocks: u64) {
        let ticks = self.interval_ms / self.tick_ms;
        match self.entries.last_mut() {
            Some(last) if self.filled < ticks => {
                *last += blocks;
                self.filled += 1;
            }
            Some(_) | None => {
                if self.entries.len() >= ENTRIES_MAX {
                    self.entries = self.entries.chunks(2).map(|pair| pair.iter().sum()).collect();
                    self.interval_ms *= 2;
                }
                self.entries.push(blocks);
                self.filled = 1;
            }
        }
    }

    pub(super) fn interval_ms(&self) -> u64 {
        self.interval_ms
    }

    pub(super) fn entries(&self) -> &[u64] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_few_entries_and_loses_no_block() {
        let mut series = Series::new(100);
        for blocks in 0..10_000 {
            series.add(blocks);
        }
        assert!((ENTRIES_MAX / 2..=ENTRIES_MAX).contains(&series.entries().len()));
        assert_eq!(series.entries().iter().sum::<u64>(), (0..10_000).sum::<u64>());
        assert!(series.interval_ms() * series.entries().len() as u64 >= 1_000_000);
    }

    #[test]
    fn entries_stand_for_equal_times() {
        let mut series = Series::new(100);
        (0..4 * ENTRIES_MAX).for_each(|_| series.add(3));
        assert_eq!(series.interval_ms(), 400);
        assert!(series.entries().iter().all(|&blocks| blocks == 12), "{:?}", series.entries());
    }
}
