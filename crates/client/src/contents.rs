//! Contents of small files, and the attributes of all that are open, kept for as long as a lease says that they are
//! right.
//!
//! Who holds a lease on a file's attributes hears of a write by others before it happens: the writer has to get its write
//! intent first. So what was read of a file under such a lease is good until its end. What this client itself changes
//! it forgets: a file that somebody here may write is neither kept nor answered from here. Changes of names are counted
//! as changes of the attributes of all files, since a removal does not tell whose link it took.
//!
//! The kernel's own pages would do the same without asking us. But it goes by the size that it knows, and it ignores
//! the answer that tells a new one where a recall comes between: it would read less than there is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use types::attr::Attr;
use types::id::InodeId;
use wire::v1::meta::TimeChange;

use crate::file::bucket_of;
use crate::kept::DOUBT;
use crate::lease::{Board, Lease};
use crate::metrics::Bytes;
use crate::mutex::lock;
use crate::names::Known;

/// Largest file whose contents are kept, bytes. Any part of it that is read brings all of it.
pub(crate) const FILE_MAX: u64 = 64 << 10;

/// Buckets of the table, each behind a lock of its own.
const BUCKETS: usize = 16;
/// Files in one bucket, also those of which no bytes are kept.
const FILES_MAX: usize = 1 << 13;
/// Changes made here are counted by inode number modulo this.
const PLACES: usize = 1 << 10;

pub(crate) struct Contents {
    buckets: [Mutex<Bucket>; BUCKETS],
    /// Bytes that one bucket may have.
    bytes_max: usize,
    /// The number of what was learnt last.
    number: AtomicU64,
    /// How often something was forgotten: no answer from before is learnt after it.
    forgotten: Box<[AtomicU64]>,
    /// Own changes of names so far.
    renamed: AtomicU64,
    begun: Instant,
    /// Until so many milliseconds after `begun` nothing is kept: a change that was given up may still happen.
    doubted_ms: AtomicU64,
}

/// Taken before something is asked that may be learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    forgotten: u64,
    renamed: u64,
}

/// An answer that may be learnt.
pub(crate) struct Told {
    pub(crate) asked: Asked,
    pub(crate) lease: Lease,
    pub(crate) attr: Attr,
    /// All bytes of the file, where they came along.
    pub(crate) bytes: Option<Arc<[u8]>>,
}

#[derive(Default)]
struct Bucket {
    files: FxHashMap<InodeId, Kept>,
    /// In the order in which they came, or had their turn last; with the numbers that they had then.
    order: VecDeque<(InodeId, u64)>,
    bytes: usize,
    /// What all buckets together count as kept.
    total: Bytes,
}

struct Kept {
    lease: Lease,
    attr: Attr,
    /// What `Contents::renamed` was when this was asked for.
    renamed: u64,
    number: u64,
    /// Its bytes were asked for since it had its turn.
    used: bool,
    /// When it was read last, or began to be known.
    read_at: Instant,
    bytes: Option<Arc<[u8]>>,
}

/// What is known of a file.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// Bytes.
    pub(crate) size: u64,
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// For [`Contents::keep`].
    pub(crate) number: u64,
    /// The lease has to be renewed for it to be known much longer.
    pub(crate) is_ending: bool,
}

impl Contents {
    /// Keeps about `bytes_max` bytes at most, counted in `kept`; 0: none.
    pub(crate) fn new(bytes_max: usize, kept: &Bytes) -> Self {
        let forgotten = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self {
            buckets: std::array::from_fn(|_| Mutex::new(Bucket { total: kept.clone(), ..Bucket::default() })),
            bytes_max: bytes_max / BUCKETS,
            number: AtomicU64::new(0),
            forgotten,
            renamed: AtomicU64::new(0),
            begun: Instant::now(),
            doubted_ms: AtomicU64::new(0),
        }
    }

    /// A change of some file was given up.
    pub(crate) fn doubt(&self, now: Instant) {
        let until = now.saturating_duration_since(self.begun) + DOUBT;
        self.doubted_ms.fetch_max(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// `lease` is held, and no change is under way that was given up.
    pub(crate) fn holds(&self, board: &Board, lease: Lease, now: Instant) -> bool {
        let since = u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX);
        since >= self.doubted_ms.load(Ordering::SeqCst) && board.holds(lease, now)
    }

    fn forgotten(&self, inode: InodeId) -> &AtomicU64 {
        &self.forgotten[inode.0 as usize % PLACES]
    }

    /// Before the question whose answer [`Self::learn`] is told.
    pub(crate) fn asks(&self, inode: InodeId) -> Asked {
        Asked { forgotten: self.forgotten(inode).load(Ordering::SeqCst), renamed: self.renamed.load(Ordering::SeqCst) }
    }

    fn bucket(&self, inode: InodeId) -> MutexGuard<'_, Bucket> {
        lock(&self.buckets[bucket_of(inode, BUCKETS)])
    }

    /// The file has these attributes under `lease`. `may_keep`, here and below: nobody here may write it; asked while
    /// nothing else happens to it here.
    pub(crate) fn learn(
        &self,
        board: &Board,
        Told { asked, lease, attr, bytes }: Told,
        now: Instant,
        may_keep: impl FnOnce() -> bool,
    ) {
        let inode = attr.inode;
        let mut bucket = self.bucket(inode);
        if asked.forgotten != self.asks(inode).forgotten {
            return;
        }
        if !self.holds(board, lease, now) || !may_keep() {
            bucket.remove(inode);
            return;
        }
        if let Some(kept) = bucket.files.get_mut(&inode)
            && self.holds(board, kept.lease, now)
            && kept.attr.size == attr.size
        {
            kept.lease = kept.lease.later(lease);
            (kept.attr, kept.renamed) = (attr, asked.renamed);
            let number = kept.number;
            if let Some(bytes) = bytes {
                bucket.keep(inode, number, &bytes, self.bytes_max);
            }
            return;
        }
        bucket.remove(inode);
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let kept = Kept { lease, attr, renamed: asked.renamed, number, used: false, read_at: now, bytes: None };
        bucket.files.insert(inode, kept);
        bucket.order.push_back((inode, number));
        if let Some(bytes) = bytes {
            bucket.keep(inode, number, &bytes, self.bytes_max);
        }
        bucket.make_room(self.bytes_max);
    }

    /// The lease goes on: the same was told again while it was held.
    pub(crate) fn extend(&self, board: &Board, inode: InodeId, lease: Lease, now: Instant) {
        if let Some(kept) = self.bucket(inode).files.get_mut(&inode)
            && self.holds(board, kept.lease, now)
        {
            kept.lease = kept.lease.later(lease);
        }
    }

    /// Files whose leases have to be renewed soon, and which were read within `used_within`.
    pub(crate) fn to_be_renewed(&self, board: &Board, now: Instant, used_within: Duration) -> Vec<InodeId> {
        let is_due = |kept: &Kept| {
            now.saturating_duration_since(kept.read_at) < used_within && board.is_to_be_renewed(kept.lease, now)
        };
        let buckets = self.buckets.iter().map(lock);
        buckets
            .flat_map(|bucket| {
                bucket.files.iter().filter(|(_, kept)| is_due(kept)).map(|(&inode, _)| inode).collect::<Vec<_>>()
            })
            .collect()
    }

    /// The shard has taken over that it was read here.
    pub(crate) fn was_read(&self, inode: InodeId, read: &TimeChange) {
        if let Some(kept) = self.bucket(inode).files.get_mut(&inode)
            && kept.attr.atime == read.before
        {
            kept.attr.atime = read.at;
        }
    }

    /// Something is known of the file.
    pub(crate) fn knows(&self, board: &Board, inode: InodeId, now: Instant) -> bool {
        self.bucket(inode).files.get(&inode).is_some_and(|kept| self.holds(board, kept.lease, now))
    }

    pub(crate) fn look(
        &self,
        board: &Board,
        inode: InodeId,
        now: Instant,
        may_keep: impl FnOnce() -> bool,
    ) -> Option<Content> {
        let mut bucket = self.bucket(inode);
        let kept = bucket.files.get_mut(&inode).filter(|kept| self.holds(board, kept.lease, now))?;
        if !may_keep() {
            return None;
        }
        kept.used |= kept.bytes.is_some();
        kept.read_at = now;
        let is_ending = !board.holds_long(kept.lease, now);
        Some(Content { size: kept.attr.size, bytes: kept.bytes.clone(), number: kept.number, is_ending })
    }

    /// Its attributes, where the lease need not be renewed.
    pub(crate) fn attr(
        &self,
        board: &Board,
        inode: InodeId,
        now: Instant,
        may_keep: impl FnOnce() -> bool,
    ) -> Option<Known> {
        let bucket = self.bucket(inode);
        let kept = bucket
            .files
            .get(&inode)
            .filter(|kept| self.holds(board, kept.lease, now) && board.holds_long(kept.lease, now))?;
        let is_good = kept.renamed == self.renamed.load(Ordering::SeqCst) && may_keep();
        is_good.then_some(Known { attr: kept.attr, lease: kept.lease })
    }

    /// Whether the bytes of a file of this size would be kept.
    pub(crate) fn is_small(&self, size: u64) -> bool {
        size <= FILE_MAX.min(self.bytes_max as u64)
    }

    /// These are all bytes of the file, read since [`Self::look`] gave this number.
    pub(crate) fn keep(&self, board: &Board, inode: InodeId, number: u64, bytes: &Arc<[u8]>, now: Instant) {
        let mut bucket = self.bucket(inode);
        if bucket.files.get(&inode).is_some_and(|kept| self.holds(board, kept.lease, now)) {
            bucket.keep(inode, number, bytes, self.bytes_max);
        }
    }

    /// How many changes of names that were made here have ended.
    pub(crate) fn renames(&self) -> u64 {
        self.renamed.load(Ordering::SeqCst)
    }

    /// A change of names that was made here has ended.
    pub(crate) fn renamed(&self) {
        self.renamed.fetch_add(1, Ordering::SeqCst);
    }

    /// It was changed here, or its lease is recalled.
    pub(crate) fn forget(&self, inode: InodeId) {
        let mut bucket = self.bucket(inode);
        self.forgotten(inode).fetch_add(1, Ordering::SeqCst);
        bucket.remove(inode);
    }
}

impl Bucket {
    fn remove(&mut self, inode: InodeId) {
        if let Some(kept) = self.files.remove(&inode) {
            let bytes = kept.bytes.map_or(0, |bytes| bytes.len());
            self.bytes -= bytes;
            self.total.change(bytes, 0);
        }
    }

    fn keep(&mut self, inode: InodeId, number: u64, bytes: &Arc<[u8]>, bytes_max: usize) {
        let Some(kept) = self.files.get_mut(&inode) else { return };
        let is_whole = bytes.len() as u64 == kept.attr.size && bytes.len() as u64 <= FILE_MAX;
        if kept.number == number && kept.bytes.is_none() && is_whole {
            self.bytes += bytes.len();
            self.total.change(0, bytes.len());
            kept.bytes = Some(Arc::clone(bytes));
            self.make_room(bytes_max);
        }
    }

    /// What was not asked for since it had its turn goes first.
    fn make_room(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max || self.files.len() > FILES_MAX || self.order.len() > 2 * FILES_MAX {
            let Some((inode, number)) = self.order.pop_front() else { return };
            let Some(kept) = self.files.get_mut(&inode).filter(|kept| kept.number == number) else { continue };
            if std::mem::take(&mut kept.used) {
                self.order.push_back((inode, number));
            } else {
                self.remove(inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Subject;
    use crate::test_client;
    use types::time::Timestamp;

    const FILE: InodeId = InodeId(7);

    struct Bed {
        board: Board,
        contents: Contents,
        now: Instant,
    }

    fn bed() -> Bed {
        Bed { board: Board::new(), contents: Contents::new(BUCKETS * 100_000, &Bytes::default()), now: Instant::now() }
    }

    impl Bed {
        fn lease(&self, inode: InodeId) -> Lease {
            Lease::granted(self.board.ticket(), Subject::inode(inode), 10_000)
        }

        fn told(&self, inode: InodeId, size: u64) -> Told {
            let attr = Attr { size, ..test_client::reply(inode).attr };
            Told { asked: self.contents.asks(inode), lease: self.lease(inode), attr, bytes: None }
        }

        fn learn(&self, inode: InodeId, size: u64) {
            self.contents.learn(&self.board, self.told(inode, size), self.now, || true);
        }

        fn attr(&self) -> Option<Known> {
            self.contents.attr(&self.board, FILE, self.now, || true)
        }

        fn look(&self, inode: InodeId) -> Option<Content> {
            self.contents.look(&self.board, inode, self.now, || true)
        }

        fn keep(&self, inode: InodeId, number: u64, bytes: &[u8]) {
            self.contents.keep(&self.board, inode, number, &bytes.into(), self.now);
        }

        fn bytes(&self, inode: InodeId) -> Option<Vec<u8>> {
            self.look(inode).and_then(|content| content.bytes).map(|bytes| bytes.to_vec())
        }
    }

    #[test]
    fn what_was_read_is_good_while_the_lease_is_held() {
        let mut bed = bed();
        assert!(bed.look(FILE).is_none());
        bed.learn(FILE, 3);
        let content = bed.look(FILE).expect("it is known");
        assert!(content.size == 3 && content.bytes.is_none());
        bed.keep(FILE, content.number, b"abc");
        assert_eq!(bed.bytes(FILE), Some(b"abc".to_vec()));
        assert!(!content.is_ending);
        bed.now += Duration::from_secs(9);
        assert!(bed.look(FILE).expect("it is known").is_ending);
        // Told again in time.
        let later = Lease::granted(bed.board.ticket(), Subject::inode(FILE), 100_000);
        bed.contents.extend(&bed.board, FILE, later, bed.now);
        bed.now += Duration::from_secs(9);
        assert!(!bed.look(FILE).expect("it is known").is_ending);
        assert_eq!(bed.bytes(FILE), Some(b"abc".to_vec()));
        bed.board.recall([Subject::inode(FILE)].into_iter());
        assert!(bed.look(FILE).is_none() && !bed.contents.knows(&bed.board, FILE, bed.now));
        bed.contents.extend(&bed.board, FILE, bed.lease(FILE), bed.now);
        assert!(bed.look(FILE).is_none(), "there was a time without a lease");
        bed.learn(FILE, 3);
        assert_eq!(bed.bytes(FILE), None, "the bytes are of another lease");
    }

    #[test]
    fn bytes_that_come_with_an_answer_are_kept_with_it() {
        let bed = bed();
        let told = |bytes: &[u8], size| Told { bytes: Some(bytes.into()), ..bed.told(FILE, size) };
        bed.contents.learn(&bed.board, told(b"abc", 3), bed.now, || true);
        assert_eq!(bed.bytes(FILE), Some(b"abc".to_vec()));
        bed.contents.forget(FILE);
        bed.learn(FILE, 3);
        bed.contents.learn(&bed.board, told(b"xyz", 3), bed.now, || true);
        assert_eq!(bed.bytes(FILE), Some(b"xyz".to_vec()), "to what is known already");
        let before = told(b"old", 3);
        bed.contents.forget(FILE);
        bed.contents.learn(&bed.board, before, bed.now, || true);
        assert!(bed.look(FILE).is_none());
        bed.contents.learn(&bed.board, told(b"ab", 3), bed.now, || true);
        assert_eq!(bed.bytes(FILE), None, "not all of it");
    }

    #[test]
    fn bytes_that_were_read_before_a_change_are_not_kept() {
        let bed = bed();
        bed.learn(FILE, 3);
        let before = bed.look(FILE).expect("it is known").number;
        bed.contents.forget(FILE);
        bed.keep(FILE, before, b"old");
        assert!(bed.look(FILE).is_none());
        bed.learn(FILE, 3);
        bed.keep(FILE, before, b"old");
        assert_eq!(bed.bytes(FILE), None);
        let number = bed.look(FILE).expect("it is known").number;
        bed.board.recall([Subject::inode(FILE)].into_iter());
        bed.learn(FILE, 3);
        bed.keep(FILE, number, b"old");
        assert_eq!(bed.bytes(FILE), None);
    }

    #[test]
    fn an_answer_from_before_the_end_of_own_writes_is_not_learnt() {
        let bed = bed();
        let before = bed.told(FILE, 3);
        bed.contents.forget(FILE);
        bed.contents.learn(&bed.board, before, bed.now, || true);
        assert!(bed.look(FILE).is_none());
    }

    #[test]
    fn a_file_that_may_be_written_here_is_not_known() {
        let bed = bed();
        bed.contents.learn(&bed.board, bed.told(FILE, 3), bed.now, || false);
        assert!(bed.look(FILE).is_none());
        bed.learn(FILE, 3);
        assert!(bed.contents.look(&bed.board, FILE, bed.now, || false).is_none());
        assert!(bed.look(FILE).is_some());
    }

    #[test]
    fn attributes_are_good_until_names_change_here_or_the_lease_has_to_be_renewed() {
        let mut bed = bed();
        bed.learn(FILE, 3);
        assert_eq!(bed.attr().map(|known| known.attr.size), Some(3));
        let before = bed.told(FILE, 3);
        bed.contents.renamed();
        assert!(bed.attr().is_none() && bed.look(FILE).is_some());
        bed.contents.learn(&bed.board, before, bed.now, || true);
        assert!(bed.attr().is_none(), "asked before");
        bed.learn(FILE, 3);
        assert!(bed.attr().is_some());
        bed.now += Duration::from_secs(8);
        assert!(bed.attr().is_none() && bed.look(FILE).is_some());
    }

    #[test]
    fn after_a_change_that_was_given_up_nothing_is_kept_for_a_while() {
        let mut bed = bed();
        bed.learn(FILE, 3);
        bed.contents.doubt(bed.now);
        assert!(bed.look(FILE).is_none() && bed.attr().is_none());
        bed.learn(FILE, 3);
        assert!(bed.look(FILE).is_none());
        bed.now += DOUBT + Duration::from_millis(1);
        let late = Lease::granted(bed.board.ticket(), Subject::inode(FILE), 100_000);
        let told = Told { lease: late, ..bed.told(FILE, 3) };
        bed.contents.learn(&bed.board, told, bed.now, || true);
        assert!(bed.look(FILE).is_some());
    }

    #[test]
    fn what_was_read_lately_is_renewed_before_its_lease_is_over() {
        const LATELY: Duration = Duration::from_secs(3600);
        let mut bed = bed();
        let renewed = |bed: &Bed, within| bed.contents.to_be_renewed(&bed.board, bed.now, within);
        bed.learn(FILE, 3);
        assert!(renewed(&bed, LATELY).is_empty(), "it is new");
        bed.now += Duration::from_secs(6);
        assert_eq!(renewed(&bed, LATELY), [FILE]);
        assert!(renewed(&bed, Duration::from_secs(6)).is_empty(), "nobody reads it");
        assert!(bed.look(FILE).is_some());
        assert_eq!(renewed(&bed, Duration::from_secs(6)), [FILE], "it was just read");
        let late = Lease::granted(bed.board.ticket(), Subject::inode(FILE), 100_000);
        bed.contents.extend(&bed.board, FILE, late, bed.now);
        assert!(renewed(&bed, LATELY).is_empty());
        bed.board.recall([Subject::inode(FILE)].into_iter());
        bed.now += Duration::from_secs(60);
        assert!(renewed(&bed, LATELY).is_empty(), "it was taken back");
    }

    #[test]
    fn a_read_that_was_told_is_in_the_attributes() {
        let bed = bed();
        bed.learn(FILE, 3);
        let before = bed.attr().expect("it is known").attr.atime;
        let (at, other) = (Timestamp(before.0 + 5), Timestamp(before.0 + 1));
        bed.contents.was_read(FILE, &TimeChange { at, before: other });
        assert_eq!(bed.attr().map(|known| known.attr.atime), Some(before), "somebody else has set it");
        bed.contents.was_read(FILE, &TimeChange { at, before });
        assert_eq!(bed.attr().map(|known| known.attr.atime), Some(at));
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let bed = bed();
        // All in one bucket.
        let file = |index: u64| InodeId(index * BUCKETS as u64);
        for index in 1..1000 {
            bed.learn(file(index), 1000);
            let number = bed.look(file(index)).expect("it is known").number;
            bed.keep(file(index), number, &[0; 1000]);
            assert!(bed.look(file(1)).is_some(), "{index}");
            assert!(bed.contents.bucket(file(1)).bytes <= 100_000);
        }
        assert!(bed.bytes(file(1)).is_some() && bed.bytes(file(999)).is_some() && bed.bytes(file(500)).is_none());
        for index in 1..3 * FILES_MAX as u64 {
            bed.learn(file(index), 1 << 30);
        }
        let bucket = bed.contents.bucket(file(1));
        assert!(bucket.files.len() <= FILES_MAX && bucket.order.len() <= 2 * FILES_MAX, "{} files", bucket.files.len());
        assert_eq!(bucket.bytes, 0);
    }
}
