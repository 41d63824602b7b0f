//! How many files long pieces are being written to. Pure.

use std::time::{Duration, Instant};

use types::id::InodeId;

/// A file that got no long piece for so long is written no more.
const RECENT: Duration = Duration::from_millis(100);

/// The files that got long pieces of late.
#[derive(Default, Debug)]
pub(crate) struct Crowd {
    writers: Vec<(InodeId, Instant)>,
}

impl Crowd {
    /// A long piece is being written to `inode`. True where so are they to `many` other files, which fill that many threads.
    pub(crate) fn is_full(&mut self, inode: InodeId, now: Instant, many: usize) -> bool {
        self.writers.retain(|&(other, at)| other != inode && now.saturating_duration_since(at) < RECENT);
        let is_full = self.writers.len() >= many;
        if self.writers.len() > many {
            self.writers.remove(0);
        }
        self.writers.push((inode, now));
        is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_threads_are_a_crowd_until_they_are_left() {
        let (mut crowd, mut now) = (Crowd::default(), Instant::now());
        let mut write = |inode, now| crowd.is_full(InodeId(inode), now, 2);
        assert_eq!([1, 1, 2, 1, 2].map(|inode| write(inode, now)), [false; 5], "two files have two threads");
        assert!(!write(1, now));
        assert_eq!([3, 1, 2, 3].map(|inode| write(inode, now)), [true; 4]);
        now += RECENT / 2;
        assert!(write(1, now), "the others may go on");
        now += RECENT / 2;
        assert_eq!([1, 2].map(|inode| write(inode, now)), [false; 2], "they have not");
    }
}
