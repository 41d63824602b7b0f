//! POSIX access control lists, which the kernel keeps without a term: what it is told of one, also that there is none, it
//! believes until it is told to forget it, or asks for the attributes anew, which it does not do for who has the file open.
//!
//! So a list is told it under a lease on the inode, which is recalled before the list changes, and when that lease ends
//! it has to forget the list, whether that was recalled or not. What is told without a lease it is not to keep.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use types::error::Errno;
use types::id::InodeId;

use crate::caller::Caller;
use crate::given_up::ASKED_MAX;
use crate::lease::{Lease, Subject};
use crate::mutex::lock;
use crate::recall::Keeper;
use crate::router::Client;

/// Lists that the kernel is to forget when their leases end: some MiB. What comes beyond them it does not keep.
const TOLD_MAX: usize = 1 << 16;

/// Whose lists the kernel keeps, by when it has to forget them.
#[derive(Default)]
pub(crate) struct ToldLists(Mutex<BTreeSet<(Instant, InodeId)>>);

impl ToldLists {
    /// False where no more are kept.
    fn tell(&self, inode: InodeId, until: Instant) -> bool {
        let mut told = lock(&self.0);
        let fits = told.len() < TOLD_MAX;
        if fits {
            told.insert((until, inode));
        }
        fits
    }

    /// Those that are to be forgotten before `until`, each once.
    fn take_due(&self, until: Instant) -> BTreeSet<InodeId> {
        let mut told = lock(&self.0);
        if told.first().is_none_or(|(first, _)| *first >= until) {
            return BTreeSet::new();
        }
        let later = told.split_off(&(until, InodeId(0)));
        std::mem::replace(&mut *told, later).into_iter().map(|(_, inode)| inode).collect()
    }
}

impl Client {
    /// A list, `ENODATA` where there is none, and for how long that may be believed.
    pub async fn get_acl(&self, caller: &Caller<'_>, inode: InodeId, name: &[u8]) -> (Result<Vec<u8>, Errno>, Lease) {
        // Asked for first: who changes the list after it was read has to take this back.
        let lease = self.lease_of_lists(caller, inode).await;
        (self.getxattr(caller, inode, name).await, lease)
    }

    async fn lease_of_lists(&self, caller: &Caller<'_>, inode: InodeId) -> Lease {
        let (board, kept) = (&self.shared.board, &self.shared.kept);
        self.shared.look_for_sleep();
        if !kept.is_enabled() {
            // There are none.
            return Lease::NONE;
        }
        let bare = self.shared.bare.lease(inode);
        if self.holds_list(bare) {
            return bare;
        }
        let lease = match kept.attr(board, inode, Instant::now()) {
            Some(known) => known.lease,
            None => match self.ask(caller, inode).await {
                Ok((ticket, reply)) => {
                    self.inode_lease(ticket, &reply);
                    // Also where others know the size.
                    Lease::granted(ticket, Subject::inode(inode), reply.lease_ms)
                }
                Err(_) => Lease::NONE,
            },
        };
        if self.holds_list(lease) { lease } else { Lease::NONE }
    }

    /// A change that was given up takes nothing back from us. Each is doubted by itself, unless there are too many.
    fn holds_list(&self, lease: Lease) -> bool {
        let (board, now) = (&self.shared.board, Instant::now());
        match board.doubts() < ASKED_MAX {
            true => board.holds(lease, now),
            false => self.shared.contents.holds(board, lease, now),
        }
    }

    /// The kernel is about to be told a list of `inode`, which is `valid` for so long. False where it may not keep that.
    #[must_use]
    pub fn may_keep_acl(&self, inode: InodeId, valid: Duration) -> bool {
        !valid.is_zero() && self.shared.told_lists.tell(inode, Instant::now() + valid)
    }

    /// Makes the keeper forget the lists whose leases end within `soon`.
    pub(crate) fn forget_lists(&self, keeper: &dyn Keeper, soon: Duration) {
        for inode in self.shared.told_lists.take_due(Instant::now() + soon) {
            keeper.forget_attributes(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_is_forgotten_before_its_lease_ends() {
        let (told, now) = (ToldLists::default(), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        for (inode, ms) in [(1, 900), (2, 100), (2, 120), (3, 500)] {
            assert!(told.tell(InodeId(inode), at(ms)));
        }
        assert!(told.take_due(at(100)).is_empty());
        assert_eq!(told.take_due(at(501)), BTreeSet::from([InodeId(2), InodeId(3)]));
        assert!(told.take_due(at(900)).is_empty(), "each once");
        assert_eq!(told.take_due(at(901)), BTreeSet::from([InodeId(1)]));
    }

    #[test]
    fn memory_is_bounded_and_what_has_no_place_is_not_kept() {
        let (told, now) = (ToldLists::default(), Instant::now());
        assert!((0..TOLD_MAX as u64).all(|inode| told.tell(InodeId(inode), now)));
        assert!(!told.tell(InodeId(1 << 20), now));
        assert_eq!(told.take_due(now + Duration::from_millis(1)).len(), TOLD_MAX);
        assert!(told.tell(InodeId(1 << 20), now));
    }
}
