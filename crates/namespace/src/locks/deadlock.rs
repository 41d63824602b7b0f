//! Who waits for whom, over all files of the shard. Only locks that are held count: a place in a queue holds nobody up
//! for ever.

use std::collections::BTreeSet;

use types::error::Errno;
use types::lock::Held;

use crate::locks::{FileKey, LockAnswer, LockOwner, LockWait, Locks, Place};

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
            open.extend(self.waits_of(blocker).map(|wait| wait.holder));
        }
        false
    }

    /// Of its requests that would rather be refused than wait for ever, the holders that they wait for.
    pub fn waits_of(&self, waiter: LockOwner) -> impl Iterator<Item = LockWait> {
        let tickets = self.waits.get(&waiter).into_iter().flatten().copied();
        tickets.flat_map(move |ticket| {
            let key = if let Some(&Place::Queue(key)) = self.waiting.get(&ticket) { Some(key) } else { None };
            let waiting = key.and_then(|key| Some((key, self.files.get(&key)?.queue.find(ticket)?.detecting()?)));
            let holders = waiting.map_or_else(Vec::new, |(key, wanted)| self.blockers(key, waiter, wanted));
            holders.into_iter().map(move |holder| LockWait { waiter, ticket, holder })
        })
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
