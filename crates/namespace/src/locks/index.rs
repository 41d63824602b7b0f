//! What many owners hold of one file, in the order of its bytes.

use std::collections::BTreeMap;

use types::id::SessionId;
use types::lock::{Held, LockKind, LockMode};

use crate::locks::{Holder, LockOwner};

/// From where each piece begins, and whose it is.
type Pieces = BTreeMap<(u64, LockOwner), Held>;

/// The first of all owners in their order.
const FIRST: LockOwner = LockOwner { session: SessionId(0), kind: LockKind::Posix, id: 0 };

#[derive(Default)]
pub(super) struct Index {
    /// No two have a byte in common: so they also end in this order.
    exclusive: Pieces,
    shared: Pieces,
    /// No shared one reaches further behind its begin than this.
    reach: u64,
}

impl Index {
    pub(super) fn add(&mut self, owner: LockOwner, held: Held) {
        let key = (held.range.start(), owner);
        match held.mode {
            LockMode::Exclusive => self.exclusive.insert(key, held),
            LockMode::Shared => {
                self.reach = self.reach.max(held.range.end() - held.range.start());
                self.shared.insert(key, held)
            }
        };
    }

    pub(super) fn remove(&mut self, owner: LockOwner, held: &Held) {
        let key = (held.range.start(), owner);
        match held.mode {
            LockMode::Exclusive => self.exclusive.remove(&key),
            LockMode::Shared => self.shared.remove(&key),
        };
        if self.shared.is_empty() {
            self.reach = 0;
        }
    }

    /// What others than `owner` hold in the way of `wanted`.
    pub(super) fn conflicts(&self, owner: LockOwner, wanted: Held) -> impl Iterator<Item = Holder> {
        let (start, end) = (wanted.range.start(), wanted.range.end());
        // Offsets end well below what fits.
        let until = (end + 1, FIRST);
        let exclusive = self.exclusive.range(..until).rev().take_while(move |(_, held)| held.range.end() >= start);
        let shared = (wanted.mode == LockMode::Exclusive)
            .then(|| self.shared.range((start.saturating_sub(self.reach), FIRST)..until))
            .into_iter()
            .flatten()
            .filter(move |(_, held)| held.range.end() >= start);
        let others = exclusive.chain(shared).filter(move |((_, other), _)| *other != owner);
        others.map(|(&(_, owner), &held)| Holder { owner, held })
    }

    #[cfg(test)]
    pub(super) fn has_same_pieces(&self, other: &Self) -> bool {
        (&self.exclusive, &self.shared) == (&other.exclusive, &other.shared)
    }
}
