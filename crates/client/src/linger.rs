//! Files that stay open at the shard for a while after their last handle is gone, so that who opens them again asks
//! nobody: as long as a lease tells what there is to know of them, an open changes nothing but who has to wait with the
//! removal of an unlinked file.
//!
//! One that lingers is closed when its lease is recalled or over, when the kernel drops its inode (as it does with an
//! unlinked file), and when there are too many.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use types::id::InodeId;

/// Most that linger.
const FILES_MAX: usize = 1 << 14;
/// How long one lingers until somebody looks whether its lease is still held.
const LOOK_AFTER: Duration = Duration::from_secs(2);

/// In the order in which they were left. Those that were opened again since are among them.
#[derive(Default)]
pub(crate) struct Lingering {
    left: Mutex<VecDeque<Left>>,
}

/// The close of this number, which nobody was told of yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    pub(crate) inode: InodeId,
    pub(crate) close: u64,
    at: Instant,
}

impl Lingering {
    fn left(&self) -> MutexGuard<'_, VecDeque<Left>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more; the one that has to go for it.
    pub(crate) fn leave(&self, inode: InodeId, close: u64, now: Instant) -> Option<Left> {
        let mut left = self.left();
        left.push_back(Left { inode, close, at: now });
        if left.len() > FILES_MAX { left.pop_front() } else { None }
    }

    /// Those that somebody has to look at; they linger no longer unless they are left again.
    pub(crate) fn due(&self, now: Instant) -> Vec<Left> {
        let mut left = self.left();
        let count = left.iter().take_while(|left| now.saturating_duration_since(left.at) >= LOOK_AFTER).count();
        left.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_after_a_while() {
        let (lingering, begin) = (Lingering::default(), Instant::now());
        for number in 0..FILES_MAX as u64 {
            assert_eq!(lingering.leave(InodeId(number), number, begin), None);
        }
        let late = begin + LOOK_AFTER;
        let oldest = lingering.leave(InodeId(77), 1, late);
        assert_eq!(oldest.map(|left| (left.inode, left.close)), Some((InodeId(0), 0)));
        assert!(lingering.due(begin).is_empty());
        assert_eq!(lingering.due(late).len(), FILES_MAX - 1);
        assert!(lingering.due(late).is_empty());
        assert_eq!(lingering.due(late + LOOK_AFTER).len(), 1);
    }
}
