//! What waits until the commit that it comes from is on disk.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use types::id::InodeId;

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

    pub(super) fn clear(&mut self) {
        self.0.clear();
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
    use super::*;

    #[test]
    fn each_waits_for_its_commit() {
        let mut waiting = Unsynced::default();
        (1..=3).for_each(|commit| waiting.push(commit, commit));
        assert_eq!((waiting.pop(0), waiting.pop(2), waiting.pop(2), waiting.pop(2)), (None, Some(1), Some(2), None));
        waiting.clear();
        assert_eq!(waiting.pop(9), None);
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
