//! Files that could not be settled: their shard may not have heard that this client's write intent was to end, and take the
//! next one for the same. What it says of the size then is what was before all that was written: only the objects know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashSet;
use types::id::InodeId;

/// Above this, any file may be one: a megabyte.
const FILES_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Unsettled {
    /// Mostly there are none: then nobody needs the lock.
    are_some: AtomicBool,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    files: FxHashSet<InodeId>,
    /// There were too many to be remembered.
    any: bool,
}

impl Unsettled {
    fn files(&self) -> MutexGuard<'_, Files> {
        // A panic elsewhere leaves the table whole: each critical section is a single change.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn failed(&self, inode: InodeId) {
        let mut files = self.files();
        if files.files.len() >= FILES_MAX {
            files.any = true;
        } else {
            files.files.insert(inode);
        }
        self.are_some.store(true, Ordering::Release);
    }

    /// The shard knows that there is no intent any more.
    pub(crate) fn ended(&self, inode: InodeId) {
        if self.are_some.load(Ordering::Acquire) {
            self.files().files.remove(&inode);
        }
    }

    pub(crate) fn has(&self, inode: InodeId) -> bool {
        if !self.are_some.load(Ordering::Acquire) {
            return false;
        }
        let files = self.files();
        files.any || files.files.contains(&inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_settled_counts_until_it_is() {
        let (unsettled, inode) = (Unsettled::default(), InodeId(7));
        unsettled.failed(inode);
        assert!(unsettled.has(inode) && !unsettled.has(InodeId(8)));
        unsettled.ended(inode);
        assert!(!unsettled.has(inode));
        (0..=FILES_MAX as u64).for_each(|number| unsettled.failed(InodeId(number)));
        assert!(unsettled.has(InodeId(u64::MAX)), "nobody knows");
    }
}
