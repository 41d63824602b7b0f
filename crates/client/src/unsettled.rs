//! Files that could not be settled: their shard may not have heard that this client's write intent was to end, and take the
//! next one for the same. What it says of the size then is what was before all that was written: only the objects know.

use std::sync::atomic::{AtomicBool, Ordering};

use types::id::InodeId;

use crate::few::Few;

/// Above this, any file may be one: a megabyte.
const FILES_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct Unsettled {
    files: Few<InodeId, ()>,
    /// There were too many to be remembered.
    any: AtomicBool,
}

impl Unsettled {
    pub(crate) fn failed(&self, inode: InodeId) {
        self.files.change(|files| {
            if files.len() >= FILES_MAX {
                self.any.store(true, Ordering::SeqCst);
            } else {
                files.insert(inode, ());
            }
        });
    }

    /// The shard knows that there is no intent any more.
    pub(crate) fn ended(&self, inode: InodeId) {
        self.files.remove(&inode);
    }

    pub(crate) fn has(&self, inode: InodeId) -> bool {
        self.any.load(Ordering::SeqCst) || self.files.has(&inode)
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
