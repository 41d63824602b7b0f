//! What this client gave up at a shard, or a shard has forgotten, while an answer was on its way.
//!
//! A shard notes that a file is open here when it answers. Another thread of the mount may close that file at the shard before
//! the answer is here, having opened it itself or found it open; and the shard may begin anew, and be told by another thread
//! what is held, without it. What such an answer gave is gone, and the shard has to be asked again.
//!
//! So has it where an answer is from before it was told of a read, of which nobody here knows any more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use types::id::InodeId;

/// Of each bucket of the table of open files so many endings are known by name; with more in between each may be the
/// one. Dozens of threads that open and close small files end as many in a bucket in the time of one slow answer.
const LAST: usize = 256;

/// What was given up lately, for each bucket of the table of open files, of which there are `BUCKETS`.
pub(crate) struct Endings<const BUCKETS: usize> {
    buckets: [Bucket; BUCKETS],
    tellings: AtomicU64,
    begun: Instant,
}

struct Bucket {
    count: AtomicU64,
    last: Box<[AtomicU64]>,
    /// How often shards were told of reads.
    reads: AtomicU64,
    last_reads: Box<[Read]>,
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            last: (0..LAST).map(|_| AtomicU64::new(0)).collect(),
            reads: AtomicU64::new(0),
            last_reads: (0..LAST).map(|_| Read::default()).collect(),
        }
    }
}

#[derive(Default)]
struct Read {
    inode: AtomicU64,
    /// In nanoseconds after the beginning.
    at: AtomicU64,
}

/// A moment before a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Since<const BUCKETS: usize> {
    counts: [u64; BUCKETS],
    tellings: u64,
}

impl<const BUCKETS: usize> Default for Endings<BUCKETS> {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Bucket::default()), tellings: AtomicU64::new(0), begun: Instant::now() }
    }
}

impl<const BUCKETS: usize> Endings<BUCKETS> {
    pub(crate) fn now(&self) -> Since<BUCKETS> {
        let counts = std::array::from_fn(|bucket| self.buckets[bucket].count.load(Ordering::SeqCst));
        Since { counts, tellings: self.tellings.load(Ordering::SeqCst) }
    }

    /// How often shards were told what is held here.
    pub(crate) fn tellings(&self) -> u64 {
        self.tellings.load(Ordering::SeqCst)
    }

    /// An open or a write intent of this file is given up, or was. The caller has the lock on its bucket of the table,
    /// here and below.
    pub(crate) fn ended(&self, bucket: usize, inode: InodeId) {
        let Bucket { count, last, .. } = &self.buckets[bucket];
        let number = count.load(Ordering::SeqCst);
        last[number as usize % LAST].store(inode.0, Ordering::SeqCst);
        count.store(number + 1, Ordering::SeqCst);
    }

    /// The shard was told of a read, which what is known of the open file says no more. The caller has the lock.
    pub(crate) fn told_of_read(&self, bucket: usize, inode: InodeId, now: Instant) {
        let Bucket { reads, last_reads, .. } = &self.buckets[bucket];
        let number = reads.load(Ordering::SeqCst);
        let read = &last_reads[number as usize % LAST];
        read.at.store(self.nanoseconds(now), Ordering::SeqCst);
        read.inode.store(inode.0, Ordering::SeqCst);
        // Who looks without the lock finds those before it.
        reads.store(number + 1, Ordering::SeqCst);
    }

    /// An answer to what was asked `at` this moment may be older than that.
    pub(crate) fn may_be_before_read(&self, bucket: usize, inode: InodeId, at: Instant) -> bool {
        let Bucket { reads, last_reads, .. } = &self.buckets[bucket];
        let (at, count) = (self.nanoseconds(at), reads.load(Ordering::SeqCst));
        // The last one first: those before it were told of before.
        for back in 1..=LAST as u64 {
            let read = &last_reads[count.wrapping_sub(back) as usize % LAST];
            if read.at.load(Ordering::SeqCst) < at {
                return false;
            }
            if read.inode.load(Ordering::SeqCst) == inode.0 {
                return true;
            }
        }
        // With more in between than are known each may be the one.
        true
    }

    /// At least 1: there was no read at 0.
    fn nanoseconds(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX).max(1)
    }

    /// Some shard is going to be told what is held there. Before that is looked up.
    pub(crate) fn tells(&self) {
        self.tellings.fetch_add(1, Ordering::SeqCst);
    }

    /// What an answer gave of this file that was asked for at `since` may be gone.
    pub(crate) fn may_have_ended(&self, bucket: usize, inode: InodeId, since: &Since<BUCKETS>) -> bool {
        let Bucket { count, last, .. } = &self.buckets[bucket];
        let (from, to) = (since.counts[bucket], count.load(Ordering::SeqCst));
        let is_it = |number: u64| last[number as usize % LAST].load(Ordering::SeqCst) == inode.0;
        self.tellings.load(Ordering::SeqCst) != since.tellings || to - from > LAST as u64 || (from..to).any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FILE: InodeId = InodeId(7);
    const OTHER: InodeId = InodeId(8);

    #[test]
    fn an_ending_concerns_what_was_asked_for_before_it() {
        let endings = Endings::<2>::default();
        let before = endings.now();
        assert!(!endings.may_have_ended(1, FILE, &before));
        endings.ended(1, FILE);
        assert!(endings.may_have_ended(1, FILE, &before));
        assert!(!endings.may_have_ended(1, OTHER, &before) && !endings.may_have_ended(0, FILE, &before));
        let after = endings.now();
        assert!(!endings.may_have_ended(1, FILE, &after));
        for _ in 0..LAST {
            endings.ended(1, OTHER);
        }
        assert!(!endings.may_have_ended(1, FILE, &after) && endings.may_have_ended(1, OTHER, &after));
        assert!(endings.may_have_ended(1, FILE, &before));
        endings.ended(1, OTHER);
        assert!(endings.may_have_ended(1, FILE, &after), "it may have been among those that are not known any more");
    }

    #[test]
    fn a_read_concerns_answers_to_what_was_asked_before_it_was_told() {
        let (endings, before) = (Endings::<2>::default(), Instant::now());
        let after = |ms| before + Duration::from_millis(ms);
        assert!(!endings.may_be_before_read(1, FILE, before));
        endings.told_of_read(1, FILE, after(1));
        assert!(endings.may_be_before_read(1, FILE, before) && endings.may_be_before_read(1, FILE, after(1)));
        assert!(!endings.may_be_before_read(1, FILE, after(2)));
        assert!(!endings.may_be_before_read(1, OTHER, before) && !endings.may_be_before_read(0, FILE, before));
        (0..LAST).for_each(|_| endings.told_of_read(1, OTHER, after(5)));
        assert!(
            endings.may_be_before_read(1, FILE, after(2)),
            "it may have been among those that are not known any more"
        );
        assert!(!endings.may_be_before_read(1, FILE, after(6)));
    }

    #[test]
    fn a_shard_that_is_told_what_is_held_may_not_hear_of_what_is_on_its_way() {
        let endings = Endings::<2>::default();
        let before = endings.now();
        endings.tells();
        assert!(endings.may_have_ended(0, FILE, &before) && !endings.may_have_ended(0, FILE, &endings.now()));
    }
}
