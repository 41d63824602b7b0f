//! Ids that were never given out here, and never will be: the cluster has had them before.

use serde::{Deserialize, Serialize};

/// More ranges than there are attempts with ever newer backups; beyond them the last one grows.
const RANGES_MAX: usize = 64;

/// Ranges of ids, in order: from, and the first one after.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Skipped(Vec<(u32, u32)>);

impl Skipped {
    /// `from` lies behind all that were added before.
    pub(crate) fn add(&mut self, from: u32, end: u32) {
        if from >= end {
            return;
        }
        let is_full = self.0.len() >= RANGES_MAX;
        match self.0.last_mut() {
            // Where it is full, ids between them that were given out count as well: they are known, or were deleted.
            Some(last) if is_full || last.1 >= from => last.1 = last.1.max(end),
            _ => self.0.push((from, end)),
        }
    }

    pub(crate) fn contains(&self, id: u32) -> bool {
        self.0.iter().any(|&(from, end)| (from..end).contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_was_skipped_and_stay_few() {
        let mut skipped = Skipped::default();
        for (from, end) in [(2, 4), (4, 4), (4, 5), (8, 9)] {
            skipped.add(from, end);
        }
        assert_eq!(skipped.0, [(2, 5), (8, 9)]);
        let held: Vec<u32> = (0..10).filter(|&id| skipped.contains(id)).collect();
        assert_eq!(held, [2, 3, 4, 8]);
        for from in (10..1_000).step_by(2) {
            skipped.add(from, from + 1);
        }
        assert_eq!(skipped.0.len(), RANGES_MAX);
        assert!(skipped.contains(998) && !skipped.contains(999));
    }
}
