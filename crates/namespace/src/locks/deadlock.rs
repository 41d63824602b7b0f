//! Who waits for whom, over all files of the shard. Only locks that are held count: a place in a queue holds nobody up
//! for ever.

use std::collections::BTreeSet;

use types::error::Errno;
use types::lock::Held;

use crate::locks::{FileKey, LockAnswer, LockOwner, Locks, Place};

impl Locks {
    /// If `owner` waited for `wanted`, it would wait for itself.
    pub(super) fn closes_a_cycle(&self, key: FileKey, owner: LockOwner, wanted: Held) -> bool {
        let mut seen = BTreeSet::new();
        let mut open: Vec<LockOwner> = self.blockers(key, owner, wanted);
        while let Some(blocker) = open.pop() {
            if blocker == owner {
                return true;
            }
            if !seen.insert(blocker) {
                continue;
            }
            for ticket in self.waits.get(&blocker).into_iter().flatten() {
                let Some(&Place::Queue(key)) = self.waiting.get(ticket) else { continue };
                let waiter = self.files.get(&key).and_then(|file| file.queue.find(*ticket));
                if let Some(waiter) = waiter.filter(|waiter| waiter.detect) {
                    open.extend(self.blockers(key, blocker, waiter.wanted));
                }
            }
        }
        false
    }

    fn blockers(&self, key: FileKey, owner: LockOwner, wanted: Held) -> Vec<LockOwner> {
        self.files.get(&key).map_or_else(Vec::new, |file| file.blockers(owner, wanted).collect())
    }

    /// `owner` got a lock while it waits for others (a process may do so with several threads): of those that wait for
    /// the lock some may wait for themselves now.
    pub(super) fn refuse_new_cycles(&mut self, key: FileKey, owner: LockOwner) {
        if !self.waits.contains_key(&owner) {
            return;
        }
        let Some(file) = self.files.get(&key) else { return };
        let held = file.of(owner).into_iter().flat_map(|held| held.iter());
        let blocked = held.flat_map(|&held| file.queue.blocked_by(owner, held)).filter(|waiter| waiter.detect);
        let blocked: Vec<_> = blocked.map(|waiter| (waiter.ticket, waiter.owner, waiter.wanted)).collect();
        for (ticket, owner, wanted) in blocked {
            if !self.closes_a_cycle(key, owner, wanted) {
                continue;
            }
            let waiter = self.files.get_mut(&key).and_then(|file| file.queue.remove(ticket));
            if let Some(waiter) = waiter {
                self.forget(&waiter);
                self.answers.push((ticket, LockAnswer::Refused(Errno::EDEADLK)));
            }
        }
    }
}
