//! How much of one object is on its disk, so that a sync is asked of the kernel only where there is something to sync: the ring
//! hands each to a worker thread. Pure.

use std::cell::Cell;

/// Of one open file.
#[derive(Default)]
pub(crate) struct Durability {
    /// Beginnings and ends of changes that are not on the disk by themselves.
    changes: Cell<u64>,
    /// All that had ended at this count is on the disk. `None`: nothing is known of what was changed before the opening.
    synced: Cell<Option<u64>>,
}

impl Durability {
    /// To be said before a change, and after it.
    pub(crate) fn changes(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// For [`Self::synced`], before a sync begins.
    pub(crate) fn now(&self) -> u64 {
        self.changes.get()
    }

    /// A sync has succeeded that began at `then`.
    pub(crate) fn synced(&self, then: u64) {
        self.synced.set(self.synced.get().max(Some(then)));
    }

    /// All that was ever acknowledged is on the disk.
    pub(crate) fn is_complete(&self) -> bool {
        self.synced.get() == Some(self.changes.get())
    }

    /// Something was changed here that may not be on the disk.
    pub(crate) fn is_dirty(&self) -> bool {
        self.synced.get().unwrap_or(0) < self.changes.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_during_a_sync_is_not_covered_by_it() {
        let durability = Durability::default();
        assert!(!durability.is_complete() && !durability.is_dirty(), "what was there before may not be on the disk");
        let then = durability.now();
        durability.synced(then);
        assert!(durability.is_complete());
        durability.changes();
        let during = durability.now();
        durability.changes();
        assert!(durability.is_dirty() && !durability.is_complete());
        durability.synced(during);
        assert!(durability.is_dirty(), "it ended after the sync had begun");
        durability.synced(durability.now());
        durability.synced(during);
        assert!(durability.is_complete() && !durability.is_dirty(), "an older sync ends later");
    }
}
