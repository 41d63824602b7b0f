//! Which inodes have no extended attributes, ACLs among them.
//!
//! Most have none, and much asks for some: `ls -l` for two of each file, the kernel for one before it lets somebody write.
//! What an answer says of it is good as long as its lease on the inode's attributes: to set one changes those.

use std::sync::{Mutex, MutexGuard};

use rustc_hash::FxHashMap;
use types::id::InodeId;

use crate::file::bucket_of;
use crate::lease::Lease;
use crate::mutex::lock;

/// Buckets of the table, each behind a lock of its own.
const BUCKETS: usize = 16;
/// Inodes in one generation of one bucket: 6 MiB in all.
const GENERATION_MAX: usize = 1 << 11;

/// A bounded table. What is not there is not known.
#[derive(Default)]
pub(crate) struct Bare {
    buckets: [Mutex<Bucket>; BUCKETS],
}

/// What was learnt lately, and what before that. When `young` is full, `old` goes.
#[derive(Default)]
struct Bucket {
    young: FxHashMap<InodeId, Lease>,
    old: FxHashMap<InodeId, Lease>,
}

impl Bare {
    fn bucket(&self, inode: InodeId) -> MutexGuard<'_, Bucket> {
        lock(&self.buckets[bucket_of(inode, BUCKETS)])
    }

    /// It has none as long as `lease` is held.
    pub(crate) fn learn(&self, inode: InodeId, lease: Lease) {
        let mut bucket = self.bucket(inode);
        bucket.young.insert(inode, lease);
        if bucket.young.len() >= GENERATION_MAX {
            bucket.old = std::mem::take(&mut bucket.young);
        }
    }

    /// As long as this is held, it has none; whoever asks looks whether it is.
    pub(crate) fn lease(&self, inode: InodeId) -> Lease {
        let bucket = self.bucket(inode);
        bucket.young.get(&inode).or_else(|| bucket.old.get(&inode)).copied().unwrap_or(Lease::NONE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::lease::{Board, Subject};

    #[test]
    fn what_was_learnt_is_good_until_its_recall() {
        let (board, bare) = (Board::new(), Bare::default());
        let holds = |inode| board.holds(bare.lease(inode), Instant::now());
        let learn = |inode| bare.learn(inode, Lease::granted(board.ticket(), Subject::inode(inode), 10_000));
        assert!(!holds(InodeId(1)));
        learn(InodeId(1));
        learn(InodeId(2));
        assert!(holds(InodeId(1)) && holds(InodeId(2)));
        board.note(Subject::inode(InodeId(1)));
        assert!(!holds(InodeId(1)) && holds(InodeId(2)));
        learn(InodeId(1));
        assert!(holds(InodeId(1)));
    }

    #[test]
    fn memory_is_bounded_and_the_latest_are_known() {
        let (board, bare) = (Board::new(), Bare::default());
        let count = 3 * (GENERATION_MAX * BUCKETS) as u64;
        for inode in (1..=count).map(InodeId) {
            bare.learn(inode, Lease::granted(board.ticket(), Subject::inode(inode), 10_000));
        }
        let holds = |inode| board.holds(bare.lease(InodeId(inode)), Instant::now());
        assert!(holds(count) && holds(count + 1 - (GENERATION_MAX * BUCKETS) as u64) && !holds(1));
        let bucket = bare.bucket(InodeId(1));
        assert!(bucket.young.len() < GENERATION_MAX && bucket.old.len() <= GENERATION_MAX);
    }
}
