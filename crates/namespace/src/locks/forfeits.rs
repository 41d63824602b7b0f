//! What sessions held when they ended. One that was away for too long comes back and says what it held: it has it again
//! where nobody had a lock meanwhile that could not have stood beside its own. That others hold none *now* is not enough:
//! whoever relied on a lock must not go on as if nothing had happened.

use std::collections::BTreeMap;

use types::id::SessionId;
use types::lock::{Held, HeldRanges, LockRange};

use crate::locks::{FileKey, LockOwner};

/// Owners in one file. Most of those that are remembered never come back; above this, all are forgotten: who comes back then
/// has lost all.
const FORFEITS_MAX: usize = 1 << 16;

#[derive(Default)]
pub(super) struct Forfeits {
    /// What of it nobody else has had since, which may be nothing.
    left: BTreeMap<FileKey, BTreeMap<LockOwner, HeldRanges>>,
    count: usize,
}

impl Forfeits {
    /// The session of `owner` ends.
    pub(super) fn note(&mut self, key: FileKey, owner: LockOwner, held: HeldRanges) {
        if self.count >= FORFEITS_MAX {
            *self = Self::default();
        }
        let before = self.left.entry(key).or_default().insert(owner, held);
        self.count += usize::from(before.is_none());
    }

    /// `owner` gets a lock.
    pub(super) fn give(&mut self, key: FileKey, owner: LockOwner, given: Held) {
        let Some(left) = self.left.get_mut(&key) else { return };
        for (_, held) in left.iter_mut().filter(|(other, _)| **other != owner) {
            let conflicts = held.within(given.range).filter(|held| held.mode.conflicts(given.mode));
            let lost: Vec<LockRange> = conflicts.filter_map(|held| held.range.overlap(given.range)).collect();
            for range in lost {
                held.clear(range);
            }
        }
    }

    /// Nobody else has had any of it since. `None` where nothing is remembered of the owner.
    pub(super) fn is_left(&self, key: FileKey, owner: LockOwner, held: Held) -> Option<bool> {
        let left = self.left.get(&key).and_then(|left| left.get(&owner));
        left.map(|left| left.covers(held.range, held.mode))
    }

    /// The session has said what it held.
    pub(super) fn forget(&mut self, session: SessionId) {
        let count = &mut self.count;
        self.left.retain(|_, left| {
            let before = left.len();
            left.retain(|owner, _| owner.session != session);
            *count -= before - left.len();
            !left.is_empty()
        });
    }
}
