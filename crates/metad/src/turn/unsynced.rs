//! What waits until the commit that it comes from is on disk.

use std::collections::VecDeque;

use namespace::transaction::{Message, Outgoing};
use rustc_hash::{FxHashMap, FxHashSet};
use types::id::{InodeId, ShardId, TransactionId};

/// In the order of the commits.
pub(super) struct Unsynced<T>(VecDeque<(u64, T)>);

impl<T> Default for Unsynced<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Unsynced<T> {
    pub(super) fn push(&mut self, commit: u64, one: T) {
        self.0.push_back((commit, one));
    }

    /// The next of those up to the commit `synced`.
    pub(super) fn pop(&mut self, synced: u64) -> Option<T> {
        self.0.pop_front_if(|(commit, _)| *commit <= synced).map(|(_, one)| one)
    }
}

/// Messages for other shards. Of decisions the shard tells again every second until they are answered, so that each would be
/// here hundreds of times after a sync that hangs for minutes: the first one is enough.
#[derive(Default)]
pub(super) struct Held {
    queue: Unsynced<Outgoing>,
    decisions: FxHashSet<(TransactionId, ShardId)>,
}

impl Held {
    pub(super) fn push(&mut self, commit: u64, outgoing: Outgoing) {
        if decision(&outgoing).is_none_or(|decision| self.decisions.insert(decision)) {
            self.queue.push(commit, outgoing);
        }
    }

    /// See [`Unsynced::pop`].
    pub(super) fn pop(&mut self, synced: u64) -> Option<Outgoing> {
        let outgoing = self.queue.pop(synced)?;
        if let Some(decision) = decision(&outgoing) {
            self.decisions.remove(&decision);
        }
        Some(outgoing)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn decision(outgoing: &Outgoing) -> Option<(TransactionId, ShardId)> {
    match outgoing.message {
        Message::Finish { transaction, .. } => Some((transaction, outgoing.to)),
        _ => None,
    }
}

/// Files that are gone by a commit that a power cut may yet take back: their objects stay until then.
#[derive(Default)]
pub(super) struct Buried {
    queue: Unsynced<(u64, InodeId)>,
    /// The last commit that says so.
    commits: FxHashMap<InodeId, u64>,
}

impl Buried {
    pub(super) fn push(&mut self, commit: u64, inode: InodeId) {
        self.queue.push(commit, (commit, inode));
        self.commits.insert(inode, commit);
    }

    /// Forgets those up to the commit `synced`. True where there were any.
    pub(super) fn synced(&mut self, synced: u64) -> bool {
        let mut any = false;
        while let Some((commit, inode)) = self.queue.pop(synced) {
            any = true;
            if self.commits.get(&inode) == Some(&commit) {
                self.commits.remove(&inode);
            }
        }
        any
    }

    pub(super) fn has(&self, inode: InodeId) -> bool {
        self.commits.contains_key(&inode)
    }
}

#[cfg(test)]
mod tests {
    use namespace::transaction::Haste;

    use super::*;

    #[test]
    fn a_decision_that_is_told_again_waits_once() {
        let finish = |transaction, to| Outgoing {
            to: ShardId(to),
            message: Message::Finish { transaction: TransactionId(transaction), commit: true, made: None },
            after_sync: true,
            haste: Haste::WithNextSync,
        };
        let mut held = Held::default();
        for commit in 4..400 {
            held.push(commit, finish(1, 1));
            held.push(commit, finish(1, 2));
        }
        assert_eq!((held.pop(3), held.pop(4)), (None, Some(finish(1, 1))));
        held.push(400, finish(1, 1));
        let left = [Some(finish(1, 2)), Some(finish(1, 1)), None];
        assert_eq!(
            [held.pop(400), held.pop(400), held.pop(400)],
            left,
            "what is on its way may be lost, and is told again"
        );
        held.push(401, finish(1, 1));
        held.clear();
        held.push(402, finish(1, 1));
        assert_eq!(held.pop(402), Some(finish(1, 1)), "what a failure has taken is told again");
    }

    #[test]
    fn each_waits_for_its_commit() {
        let mut waiting = Unsynced::default();
        (1..=3).for_each(|commit| waiting.push(commit, commit));
        assert_eq!((waiting.pop(0), waiting.pop(2), waiting.pop(2), waiting.pop(2)), (None, Some(1), Some(2), None));
        assert_eq!((waiting.pop(9), waiting.pop(9)), (Some(3), None));
    }

    #[test]
    fn what_is_buried_once_more_waits_for_the_later_commit() {
        let (file, other) = (InodeId(7), InodeId(8));
        let mut buried = Buried::default();
        buried.push(4, file);
        buried.push(4, other);
        buried.push(6, file);
        assert!(!buried.synced(3) && buried.has(file) && buried.has(other));
        assert!(buried.synced(5) && buried.has(file) && !buried.has(other));
        assert!(buried.synced(6) && !buried.has(file));
        assert!(!buried.synced(9));
    }
}
