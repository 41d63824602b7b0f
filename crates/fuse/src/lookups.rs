//! Which inodes the kernel knows, or is about to know. It counts how often it was told of each, and says when it forgets how
//! many of these are gone: an inode of which all are gone is in no answer that it has yet to look at.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;
use types::id::InodeId;

use crate::operation::Operation;

/// Parts of the table, so that loops seldom meet.
const PARTS: usize = 64;
/// A part that once was so large is made smaller when it has become almost empty.
const SHRINK_ABOVE: usize = 1024;

/// Shared by all loops of a mount. Some 30 bytes for each inode that the kernel keeps.
#[derive(Debug)]
pub(crate) struct Lookups {
    parts: Box<[Mutex<Counts>]>,
}

type Counts = FxHashMap<InodeId, u64>;

impl Lookups {
    pub(crate) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    /// Before the answer goes out, so that what the kernel gives back was counted before.
    pub(crate) fn tell(&self, inode: InodeId) {
        *self.part(inode).entry(inode).or_insert(0) += 1;
    }

    /// The kernel has forgotten so many of them, or an answer did not reach it.
    pub(crate) fn give_back(&self, inode: InodeId, count: u64) {
        let mut part = self.part(inode);
        // It also forgets what it was never told of: the root.
        let Some(told) = part.get_mut(&inode) else { return };
        *told = told.saturating_sub(count);
        if *told > 0 {
            return;
        }
        part.remove(&inode);
        if part.capacity() > SHRINK_ABOVE && part.len() < part.capacity() / 8 {
            let room = part.len() * 2;
            part.shrink_to(room);
        }
    }

    /// Gives back what the kernel says with this request that it has forgotten, if it says so.
    pub(crate) fn heed(&self, inode: InodeId, operation: &Operation) {
        match operation {
            Operation::Forget { count } => self.give_back(inode, *count),
            Operation::BatchForget { inodes } => {
                inodes.iter().for_each(|(inode, count)| self.give_back(*inode, *count));
            }
            _ => {}
        }
    }

    /// The kernel knows it, or has an answer that it is about to learn of it from.
    pub(crate) fn are_some(&self, inode: InodeId) -> bool {
        self.part(inode).contains_key(&inode)
    }

    /// All of these.
    pub(crate) fn all(&self) -> Vec<InodeId> {
        let parts = self.parts.iter().map(|part| part.lock().unwrap_or_else(PoisonError::into_inner));
        parts.flat_map(|part| part.keys().copied().collect::<Vec<_>>()).collect()
    }

    fn part(&self, inode: InodeId) -> MutexGuard<'_, Counts> {
        let part = &self.parts[inode.0 as usize % PARTS];
        // Each critical section leaves the table whole.
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_known_until_all_is_given_back() {
        let (lookups, inode) = (Lookups::new(), InodeId(77));
        assert!(!lookups.are_some(inode));
        (0..3).for_each(|_| lookups.tell(inode));
        lookups.give_back(inode, 2);
        assert!(lookups.are_some(inode) && !lookups.are_some(InodeId(77 + PARTS as u64)));
        assert_eq!(lookups.all(), [inode]);
        lookups.give_back(inode, 1);
        assert!(!lookups.are_some(inode));
        // More than was told, or of what nobody was told.
        lookups.give_back(inode, 1);
        lookups.tell(inode);
        assert!(lookups.are_some(inode));
    }

    #[test]
    fn what_is_forgotten_takes_no_memory() {
        let lookups = Lookups::new();
        let all = || (0..10_000 * PARTS as u64).map(InodeId);
        all().for_each(|inode| lookups.tell(inode));
        all().for_each(|inode| lookups.give_back(inode, 1));
        let room: usize = lookups.parts.iter().map(|part| part.lock().expect("no panic").capacity()).sum();
        assert!(room <= SHRINK_ABOVE * PARTS * 2, "{room}");
    }
}
