//! What many owners hold of one file, in the order of its bytes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

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
    /// How many of the shared ones reach so far behind their begin.
    reaches: BTreeMap<u64, usize>,
}

impl Index {
    pub(super) fn add(&mut self, owner: LockOwner, held: Held) {
        let key = (held.range.start(), owner);
        match held.mode {
            LockMode::Exclusive => self.exclusive.insert(key, held),
            LockMode::Shared => {
                *self.reaches.entry(reach(&held)).or_default() += 1;
                self.shared.insert(key, held)
            }
        };
    }

    pub(super) fn remove(&mut self, owner: LockOwner, held: &Held) {
        let key = (held.range.start(), owner);
        match held.mode {
            LockMode::Exclusive => self.exclusive.remove(&key),
            LockMode::Shared => {
                let known = self.shared.remove(&key);
                if let Some(Entry::Occupied(mut count)) = known.map(|known| self.reaches.entry(reach(&known))) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
                known
            }
        };
    }

    /// What others than `owner` hold in the way of `wanted`.
    pub(super) fn conflicts(&self, owner: LockOwner, wanted: Held) -> impl Iterator<Item = Holder> {
        let (start, end) = (wanted.range.start(), wanted.range.end());
        // Offsets end well below what fits.
        let until = (end + 1, FIRST);
        let reach = self.reaches.last_key_value().map_or(0, |(reach, _)| *reach);
        let exclusive = self.exclusive.range(..until).rev().take_while(move |(_, held)| held.range.end() >= start);
        let shared = (wanted.mode == LockMode::Exclusive)
            .then(|| self.shared.range((start.saturating_sub(reach), FIRST)..until))
            .into_iter()
            .flatten()
            .filter(move |(_, held)| held.range.end() >= start);
        let others = exclusive.chain(shared).filter(move |((_, other), _)| *other != owner);
        others.map(|(&(_, owner), &held)| Holder { owner, held })
    }

    #[cfg(test)]
    pub(super) fn has_same_pieces(&self, other: &Self) -> bool {
        (&self.exclusive, &self.shared, &self.reaches) == (&other.exclusive, &other.shared, &other.reaches)
    }
}

fn reach(held: &Held) -> u64 {
    held.range.end() - held.range.start()
}
