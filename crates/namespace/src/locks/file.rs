//! The locks of one kind on one file.

use std::collections::BTreeMap;

use types::id::SessionId;
use types::lock::{Held, HeldRanges, LockMode, LockRange};

use crate::locks::queue::{Queue, Waiter};
use crate::locks::{Holder, LockOwner};

#[derive(Default)]
pub(super) struct FileLocks {
    /// Nobody in here holds nothing.
    holders: BTreeMap<LockOwner, HeldRanges>,
    pub(super) queue: Queue,
}

impl FileLocks {
    /// Nobody holds anything.
    pub(super) fn is_free(&self) -> bool {
        self.holders.is_empty()
    }

    pub(super) fn of(&self, owner: LockOwner) -> Option<&HeldRanges> {
        self.holders.get(&owner)
    }

    pub(super) fn pieces(&self, owner: LockOwner) -> usize {
        self.of(owner).map_or(0, HeldRanges::len)
    }

    pub(super) fn owners(&self, session: SessionId) -> Vec<LockOwner> {
        self.holders.keys().filter(|owner| owner.session == session).copied().collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Holder> {
        self.holders.iter().flat_map(|(&owner, held)| held.iter().map(move |&held| Holder { owner, held }))
    }

    pub(super) fn set(&mut self, owner: LockOwner, wanted: Held) {
        self.holders.entry(owner).or_default().set(wanted);
    }

    /// False where nothing of the range was held.
    pub(super) fn clear(&mut self, owner: LockOwner, range: LockRange) -> bool {
        let Some(held) = self.holders.get_mut(&owner) else { return false };
        let changed = held.clear(range);
        if held.is_empty() {
            self.holders.remove(&owner);
        }
        changed
    }

    /// Of what others hold in the way of `mode` on `range`, what comes first in the file.
    pub(super) fn holder(&self, owner: LockOwner, range: LockRange, mode: LockMode) -> Option<Holder> {
        let conflict =
            |(&owner, held): (&LockOwner, &HeldRanges)| held.conflict(range, mode).map(|&held| Holder { owner, held });
        let others = self.holders.iter().filter(|(other, _)| **other != owner);
        others.filter_map(conflict).min_by_key(|holder| holder.held.range)
    }

    pub(super) fn is_held(&self, owner: LockOwner, wanted: Held) -> bool {
        is_held(&self.holders, owner, wanted)
    }

    /// All others who hold what is in the way of `wanted`.
    pub(super) fn blockers(&self, owner: LockOwner, wanted: Held) -> impl Iterator<Item = LockOwner> {
        let blocks = move |held: &HeldRanges| held.conflict(wanted.range, wanted.mode).is_some();
        let others = self.holders.iter().filter(move |(other, held)| **other != owner && blocks(held));
        others.map(|(&other, _)| other)
    }

    /// Takes the waiter out of the queue who may have its lock now.
    pub(super) fn next(&mut self, now_ms: u64, passes: impl Fn(LockOwner) -> bool) -> Option<Waiter> {
        let Self { holders, queue } = self;
        let held = |waiter: &Waiter| is_held(holders, waiter.owner, waiter.wanted);
        queue.next(now_ms, held, passes)
    }
}

fn is_held(holders: &BTreeMap<LockOwner, HeldRanges>, owner: LockOwner, wanted: Held) -> bool {
    holders.iter().any(|(other, held)| *other != owner && held.conflict(wanted.range, wanted.mode).is_some())
}
