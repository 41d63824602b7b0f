//! The locks of one kind on one file.

use std::collections::BTreeMap;

use types::id::SessionId;
use types::lock::{Held, HeldRanges, LockKind, LockMode, LockRange, OFFSET_MAX};

use crate::locks::index::Index;
use crate::locks::queue::{Queue, Waiter};
use crate::locks::{Holder, LockOwner};

/// From so many owners on it is faster to look in an index for what is in the way than to ask each of them.
const INDEXED_MIN: usize = 32;

#[derive(Default)]
pub(super) struct FileLocks {
    holders: Holders,
    pub(super) queue: Queue,
}

#[derive(Default)]
struct Holders {
    /// Nobody in here holds nothing.
    all: BTreeMap<LockOwner, HeldRanges>,
    /// Where they are many.
    index: Option<Box<Index>>,
}

impl FileLocks {
    /// Nobody holds anything.
    pub(super) fn is_free(&self) -> bool {
        self.holders.all.is_empty()
    }

    pub(super) fn of(&self, owner: LockOwner) -> Option<&HeldRanges> {
        self.holders.all.get(&owner)
    }

    pub(super) fn pieces(&self, owner: LockOwner) -> usize {
        self.of(owner).map_or(0, HeldRanges::len)
    }

    pub(super) fn owners(&self, session: SessionId) -> impl Iterator<Item = LockOwner> {
        let first = LockOwner { session, kind: LockKind::Posix, id: 0 };
        self.holders.all.range(first..).map(|(&owner, _)| owner).take_while(move |owner| owner.session == session)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Holder> {
        self.holders.all.iter().flat_map(|(&owner, held)| held.iter().map(move |&held| Holder { owner, held }))
    }

    pub(super) fn set(&mut self, owner: LockOwner, wanted: Held) {
        self.holders.change(owner, wanted.range, |held| held.set(wanted));
    }

    /// False where nothing of the range was held.
    pub(super) fn clear(&mut self, owner: LockOwner, range: LockRange) -> bool {
        self.of(owner).is_some() && self.holders.change(owner, range, |held| held.clear(range))
    }

    /// Of what others hold in the way of `mode` on `range`, what comes first in the file.
    pub(super) fn holder(&self, owner: LockOwner, range: LockRange, mode: LockMode) -> Option<Holder> {
        self.holders.first(owner, Held { range, mode, pid: 0 })
    }

    pub(super) fn is_held(&self, owner: LockOwner, wanted: Held) -> bool {
        self.holders.are_in_the_way(owner, wanted)
    }

    /// All others who hold what is in the way of `wanted`.
    pub(super) fn blockers(&self, owner: LockOwner, wanted: Held) -> impl Iterator<Item = LockOwner> {
        self.holders.conflicts(owner, wanted).map(|holder| holder.owner)
    }

    /// Takes the waiter out of the queue who may have its lock now.
    pub(super) fn next(&mut self, now_ms: u64, passes: impl Fn(LockOwner) -> bool) -> Option<Waiter> {
        let Self { holders, queue } = self;
        queue.next(now_ms, |waiter| holders.are_in_the_way(waiter.owner, waiter.wanted), passes)
    }
}

impl Holders {
    /// Changes what `owner` holds of `range`.
    fn change<R>(&mut self, owner: LockOwner, range: LockRange, change: impl FnOnce(&mut HeldRanges) -> R) -> R {
        let held = self.all.entry(owner).or_default();
        // Pieces that touch it may be one with it before or after.
        let around = LockRange::new(range.start().saturating_sub(1), OFFSET_MAX.min(range.end() + 1)).unwrap_or(range);
        if let Some(index) = &mut self.index {
            held.within(around).for_each(|held| index.remove(owner, held));
        }
        let changed = change(held);
        if let Some(index) = &mut self.index {
            held.within(around).for_each(|held| index.add(owner, *held));
        }
        if held.is_empty() {
            self.all.remove(&owner);
        }
        if self.index.is_none() && self.all.len() >= INDEXED_MIN {
            self.index = Some(Box::new(self.indexed()));
        } else if self.index.is_some() && self.all.len() < INDEXED_MIN / 2 {
            self.index = None;
        }
        changed
    }

    fn indexed(&self) -> Index {
        let mut index = Index::default();
        for (&owner, held) in &self.all {
            held.iter().for_each(|held| index.add(owner, *held));
        }
        index
    }

    /// Of each other that holds something in the way of `wanted`, the first piece.
    fn conflicts(&self, owner: LockOwner, wanted: Held) -> impl Iterator<Item = Holder> {
        let others = self.all.iter().filter(move |(other, _)| **other != owner);
        others.filter_map(move |(&owner, held)| {
            held.conflict(wanted.range, wanted.mode).map(|&held| Holder { owner, held })
        })
    }

    fn are_in_the_way(&self, owner: LockOwner, wanted: Held) -> bool {
        match &self.index {
            Some(index) => index.conflicts(owner, wanted).next().is_some(),
            None => self.conflicts(owner, wanted).next().is_some(),
        }
    }

    /// What comes first in the file, and of those that begin and end alike what comes first in the order of owners.
    fn first(&self, owner: LockOwner, wanted: Held) -> Option<Holder> {
        let order = |holder: &Holder| (holder.held.range, holder.owner);
        match &self.index {
            Some(index) => index.conflicts(owner, wanted).min_by_key(order),
            None => self.conflicts(owner, wanted).min_by_key(order),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(number: u64) -> LockOwner {
        LockOwner { session: SessionId(number / 3), kind: LockKind::Posix, id: number % 3 }
    }

    fn lock((start, len): (u64, u64), exclusive: bool) -> Held {
        let mode = if exclusive { LockMode::Exclusive } else { LockMode::Shared };
        // Some reach to the end of the file, and some begin just before it.
        let start = if start >= 200 { OFFSET_MAX - 220 + start } else { start };
        let end = if len >= 12 { OFFSET_MAX } else { OFFSET_MAX.min(start + len) };
        Held { range: LockRange::new(start, end).expect("a range"), mode, pid: 1 }
    }

    #[test]
    fn only_many_owners_are_indexed() {
        let mut file = FileLocks::default();
        let piece = |n| lock((2 * n, 0), true);
        for n in 0..50 {
            assert!(!file.is_held(owner(n), piece(n)));
            file.set(owner(n), piece(n));
            assert_eq!(file.holders.index.is_some(), n + 1 >= INDEXED_MIN as u64);
        }
        assert!(file.is_held(owner(50), piece(7)) && !file.is_held(owner(7), piece(7)));
        for n in 0..50 {
            assert!(file.clear(owner(n), LockRange::ALL) && !file.is_held(owner(50), piece(n)));
        }
        assert!(file.is_free() && file.holders.index.is_none());
    }

    proptest! {
        #[test]
        fn the_index_has_what_is_held(
            steps in prop::collection::vec((0..60u64, (0..221u64, 0..13u64), any::<bool>(), 0u8..4), 100..600),
        ) {
            let mut file = FileLocks::default();
            for (number, range, exclusive, what) in steps {
                let (owner, wanted) = (owner(number), lock(range, exclusive));
                let conflicts = || file.holders.conflicts(owner, wanted);
                let held = conflicts().next().is_some();
                prop_assert_eq!(file.is_held(owner, wanted), held);
                let first = conflicts().min_by_key(|holder| (holder.held.range, holder.owner));
                prop_assert_eq!(file.holder(owner, wanted.range, wanted.mode), first);
                if what == 0 {
                    file.clear(owner, wanted.range);
                } else if !held {
                    file.set(owner, wanted);
                }
                let index = file.holders.indexed();
                prop_assert!(file.holders.index.as_ref().is_none_or(|known| known.has_same_pieces(&index)));
                let owners: Vec<LockOwner> = file.owners(owner.session).collect();
                let of_it = file.holders.all.keys().copied().filter(|other| other.session == owner.session);
                prop_assert_eq!(owners, of_it.collect::<Vec<_>>());
            }
        }
    }
}
