//! Files that stay open at the shard for a while after their last handle is gone, so that who opens them again asks
//! nobody: as long as a lease tells what there is to know of them, an open changes nothing but who has to wait with the
//! removal of an unlinked file.
//!
//! One that lingers is closed when its lease is recalled or over, when the kernel drops its inode (as it does with an
//! unlinked file), and when there are too many.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use types::id::InodeId;

use crate::mutex::lock;

/// Most that linger.
const FILES_MAX: usize = 1 << 14;
/// So many that were left again go behind the others before one has to go all the same.
const SECOND_CHANCES: u32 = 8;
/// How long one lingers until somebody looks whether its lease is still held.
const LOOK_AFTER: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Lingering {
    files: Mutex<Files>,
}

/// Each file once, also those that were opened again since.
#[derive(Default)]
struct Files {
    /// When each was left last.
    left: FxHashMap<InodeId, Instant>,
    /// With the time at which each came to its place. One that was left again meanwhile stays there, and goes behind the
    /// others when it is its turn.
    order: VecDeque<(InodeId, Instant)>,
}

impl Lingering {
    fn files(&self) -> MutexGuard<'_, Files> {
        lock(&self.files)
    }

    /// One more; the one that has to go for it.
    pub(crate) fn leave(&self, inode: InodeId, now: Instant) -> Option<InodeId> {
        let mut files = self.files();
        if files.left.insert(inode, now).is_none() {
            files.order.push_back((inode, now));
        }
        if files.order.len() > FILES_MAX { files.take_oldest(now) } else { None }
    }

    /// Those that somebody has to look at; they linger no longer unless they are left again.
    pub(crate) fn due(&self, now: Instant) -> Vec<InodeId> {
        let is_due = |at| now.saturating_duration_since(at) >= LOOK_AFTER;
        let (mut files, mut due) = (self.files(), Vec::new());
        while files.order.front().is_some_and(|&(_, since)| is_due(since)) {
            due.extend(files.take_first(now, is_due));
        }
        due
    }
}

impl Files {
    /// The first one, where `may_go` says so of when it was left last; else it goes behind the others.
    fn take_first(&mut self, now: Instant, may_go: impl Fn(Instant) -> bool) -> Option<InodeId> {
        let (inode, _) = self.order.pop_front()?;
        if may_go(*self.left.get(&inode)?) {
            self.left.remove(&inode);
            return Some(inode);
        }
        self.order.push_back((inode, now));
        None
    }

    /// The first one that was not left again since it came to its place, or, after a few who were, the next.
    fn take_oldest(&mut self, now: Instant) -> Option<InodeId> {
        for _ in 0..SECOND_CHANCES {
            let (_, since) = *self.order.front()?;
            let oldest = self.take_first(now, |at| at <= since);
            if oldest.is_some() {
                return oldest;
            }
        }
        self.take_first(now, |_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_after_a_while() {
        let (lingering, begin) = (Lingering::default(), Instant::now());
        for number in 0..FILES_MAX as u64 {
            assert_eq!(lingering.leave(InodeId(number), begin), None);
        }
        let late = begin + LOOK_AFTER;
        assert_eq!(lingering.leave(InodeId(FILES_MAX as u64), late), Some(InodeId(0)));
        assert!(lingering.due(begin).is_empty());
        assert_eq!(lingering.due(late).len(), FILES_MAX - 1);
        assert!(lingering.due(late).is_empty());
        assert_eq!(lingering.due(late + LOOK_AFTER).len(), 1);
    }

    #[test]
    fn one_that_is_opened_and_left_again_and_again_takes_one_place() {
        let (lingering, begin) = (Lingering::default(), Instant::now());
        let again = begin + Duration::from_millis(10);
        assert_eq!(lingering.leave(InodeId(1), begin), None);
        assert!((0..3 * FILES_MAX).all(|_| lingering.leave(InodeId(1), again).is_none()));
        for number in 1..FILES_MAX as u64 {
            assert_eq!(lingering.leave(InodeId(100 + number), again), None);
        }
        assert_eq!(lingering.leave(InodeId(2), again), Some(InodeId(101)), "the first was used since");
        assert!(lingering.due(begin + LOOK_AFTER).is_empty());
        let due = lingering.due(again + LOOK_AFTER);
        assert!(due.len() == FILES_MAX && due.contains(&InodeId(1)));
        assert!(lingering.files().left.is_empty() && lingering.files().order.is_empty());
    }

    #[test]
    fn where_all_were_used_again_one_goes_all_the_same() {
        let (lingering, begin) = (Lingering::default(), Instant::now());
        let again = begin + Duration::from_millis(10);
        for at in [begin, again] {
            assert!((0..FILES_MAX as u64).all(|number| lingering.leave(InodeId(number), at).is_none()));
        }
        assert!(lingering.leave(InodeId(FILES_MAX as u64), again).is_some());
        assert_eq!(lingering.files().order.len(), FILES_MAX);
    }
}
