//! The locks that this mount holds, as its shards know them. After a restart of a shard it is told from here what was
//! held there.
//!
//! The rules that keep the two in step, whatever threads and restarts do:
//! - What is given up is taken out *before* the shard is asked to, so that nobody reclaims it meanwhile.
//! - What is got is put in *after* the shard has answered, and only if nothing happened in between that may have undone it
//!   (a [`Stamp`] tells): else the shard is asked once more, which is harmless where the lock is there.
//! - What is given up while the shard is being told what was held before, it is asked to give up when it has heard that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustc_hash::FxHashMap;
use types::id::{InodeId, ShardId};
use types::lock::{Held, HeldRanges, LockKind, LockMode, LockRange};
use wire::v1::lock::HeldLock;

use crate::mutex::lock;

/// An owner among those of this mount.
pub(crate) type Key = (LockKind, u64);

#[derive(Default)]
pub(crate) struct LockTable {
    inner: Mutex<Inner>,
    /// Files in the table, so that those who only close need no lock.
    files: AtomicUsize,
    numbers: AtomicU64,
}

#[derive(Default)]
struct Inner {
    files: FxHashMap<InodeId, FileLocks>,
    tellings: BTreeMap<ShardId, Tellings>,
}

/// A shard is told what is held there.
#[derive(Default)]
struct Tellings {
    /// How often it was.
    count: u64,
    /// What was told and not answered: the shard may yet take it up.
    unanswered: u32,
}

impl Inner {
    fn tellings(&self, shard: ShardId) -> u64 {
        self.tellings.get(&shard).map_or(0, |tellings| tellings.count)
    }
}

#[derive(Default)]
struct FileLocks {
    owners: BTreeMap<Key, Owned>,
    /// Unlocks that are on their way to the shard, and how many were begun.
    unlocking: u32,
    unlocks: u64,
}

#[derive(Default)]
struct Owned {
    held: HeldRanges,
    /// Of what is or was held: got since the shard was last told.
    fresh: HeldRanges,
    /// Open files through which it was locked.
    handles: BTreeSet<u64>,
    asking: u32,
    unlocking: u32,
    /// Requests of which nobody knows whether the shard has executed them.
    doubts: u32,
    /// Changes with every unlock, at its beginning and its end, and with the end of each doubt.
    version: u64,
}

impl Owned {
    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.asking == 0 && self.unlocking == 0 && self.doubts == 0
    }
}

/// A moment in the life of an owner, to see later whether an answer can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    telling: u64,
    version: u64,
    unlocking: u32,
}

/// What a part of a file should look like for its owner.
pub(crate) struct Pieces {
    pub(crate) held: Vec<Held>,
    pub(crate) free: Vec<LockRange>,
    version: u64,
}

impl LockTable {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// For one request.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn change<R>(&self, inode: InodeId, key: Key, change: impl FnOnce(&mut FileLocks, Key) -> R) -> R {
        let mut inner = self.lock();
        let file = inner.files.entry(inode).or_default();
        let result = change(file, key);
        if file.owners.get(&key).is_some_and(Owned::is_idle) {
            file.owners.remove(&key);
        }
        if file.owners.is_empty() && file.unlocking == 0 {
            inner.files.remove(&inode);
        }
        self.files.store(inner.files.len(), Ordering::Release);
        result
    }

    fn owned<R>(&self, inode: InodeId, key: Key, change: impl FnOnce(&mut Owned) -> R) -> R {
        self.change(inode, key, |file, key| change(file.owners.entry(key).or_default()))
    }

    /// A request for a lock begins. `flock` gives the old lock up before it gets another.
    pub(crate) fn ask(&self, inode: InodeId, key: Key, handle: u64, wanted: Held) {
        self.owned(inode, key, |owned| {
            owned.asking += 1;
            owned.handles.insert(handle);
            if key.0 == LockKind::Flock && !owned.held.is(wanted.range, wanted.mode) {
                owned.held.clear(LockRange::ALL);
            }
        });
    }

    pub(crate) fn asked(&self, inode: InodeId, key: Key) {
        self.owned(inode, key, |owned| owned.asking -= 1);
    }

    /// How often the shard was told what is held there: an answer of a life before that says nothing any more.
    pub(crate) fn tellings(&self, shard: ShardId) -> u64 {
        self.lock().tellings(shard)
    }

    /// Before a request is sent.
    pub(crate) fn stamp(&self, inode: InodeId, key: Key) -> Stamp {
        let inner = self.lock();
        let telling = inner.tellings(inode.home());
        let owned = inner.files.get(&inode).and_then(|file| file.owners.get(&key));
        let (version, unlocking) = owned.map_or((0, 0), |owned| (owned.version, owned.unlocking));
        Stamp { telling, version, unlocking }
    }

    /// The shard has given the lock. False where it may be gone again: ask once more.
    pub(crate) fn got(&self, inode: InodeId, key: Key, wanted: Held, before: Stamp) -> bool {
        let mut inner = self.lock();
        let telling = inner.tellings(inode.home());
        let Some(owned) = inner.files.get_mut(&inode).and_then(|file| file.owners.get_mut(&key)) else { return false };
        let now = Stamp { telling, version: owned.version, unlocking: owned.unlocking };
        let good = now == before && now.unlocking == 0 && owned.doubts == 0;
        if good {
            owned.held.set(wanted);
            owned.fresh.set(wanted);
        }
        good
    }

    /// A range is given up. False where the shard need not be asked.
    pub(crate) fn begin_unlock(&self, inode: InodeId, key: Key, range: LockRange) -> bool {
        if self.files.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut inner = self.lock();
        let Some(file) = inner.files.get_mut(&inode) else { return false };
        let Some(owned) = file.owners.get_mut(&key) else { return false };
        owned.version += 1;
        let needed = owned.held.clear(range) || owned.asking > 0;
        if needed {
            owned.unlocking += 1;
            file.unlocking += 1;
            file.unlocks += 1;
        }
        needed
    }

    pub(crate) fn end_unlock(&self, inode: InodeId, key: Key) {
        self.change(inode, key, |file, key| {
            file.unlocking -= 1;
            let owned = file.owners.entry(key).or_default();
            owned.unlocking -= 1;
            owned.version += 1;
        });
    }

    /// Something is held of the file, or asked for.
    pub(crate) fn are_on(&self, inode: InodeId) -> bool {
        self.files.load(Ordering::Acquire) > 0 && self.lock().files.contains_key(&inode)
    }

    /// How many unlocks of the file were begun; `None` while some are on their way.
    pub(crate) fn unlocks(&self, inode: InodeId) -> Option<u64> {
        let inner = self.lock();
        inner.files.get(&inode).map_or(Some(0), |file| (file.unlocking == 0).then_some(file.unlocks))
    }

    /// Somebody else on this mount holds what keeps `wanted` from the owner.
    pub(crate) fn is_in_the_way(&self, inode: InodeId, (kind, owner): Key, wanted: Held) -> bool {
        let inner = self.lock();
        let owners = inner.files.get(&inode).map(|file| &file.owners).into_iter().flatten();
        let mut others = owners.filter(|(key, _)| key.0 == kind && key.1 != owner);
        others.any(|(_, owned)| owned.held.within(wanted.range).any(|held| held.mode.conflicts(wanted.mode)))
    }

    /// This open file is no more: owners that locked through it, and through no other one since. The kernel may number a new
    /// open file as it did one whose end it has yet to tell of, and a process that has closed one may lock through another.
    pub(crate) fn end_handle(&self, inode: InodeId, handle: u64) -> Vec<Key> {
        if self.files.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut inner = self.lock();
        let owners = inner.files.get_mut(&inode).map(|file| &mut file.owners).into_iter().flatten();
        let ends = |owned: &mut Owned| owned.handles.remove(&handle) && owned.handles.is_empty();
        owners.filter_map(|(key, owned)| ends(owned).then_some(*key)).collect()
    }

    pub(crate) fn doubt(&self, inode: InodeId, key: Key) {
        self.owned(inode, key, |owned| owned.doubts += 1);
    }

    /// Nothing is given up of what the owner has, and nothing is in doubt.
    pub(crate) fn is_settled(&self, inode: InodeId, key: Key) -> bool {
        let inner = self.lock();
        let owned = inner.files.get(&inode).and_then(|file| file.owners.get(&key));
        owned.is_none_or(|owned| owned.unlocking == 0 && owned.doubts == 0)
    }

    /// What is and is not held of `range`.
    pub(crate) fn pieces(&self, inode: InodeId, key: Key, range: LockRange) -> Pieces {
        let inner = self.lock();
        let owned = inner.files.get(&inode).and_then(|file| file.owners.get(&key));
        let Some(owned) = owned else { return Pieces { held: Vec::new(), free: vec![range], version: 0 } };
        let clip = |held: &Held| held.range.overlap(range).map(|range| Held { range, ..*held });
        let held: Vec<Held> = owned.held.within(range).filter_map(clip).collect();
        Pieces { held, free: not_held(&owned.held, range), version: owned.version }
    }

    /// The shard has been made to agree with `pieces`. False where the owner has changed them meanwhile.
    pub(crate) fn resolve(&self, inode: InodeId, key: Key, pieces: &Pieces) -> bool {
        self.owned(inode, key, |owned| {
            let unchanged = owned.version == pieces.version;
            if unchanged {
                owned.doubts -= 1;
                // What was asked for before that may have been given up by it.
                owned.version += 1;
            }
            unchanged
        })
    }

    /// All that is held in `shard`, for a shard that has forgotten it. What its earlier life answers from here on counts
    /// no more.
    pub(crate) fn tell(&self, shard: ShardId) -> Vec<HeldLock> {
        let mut inner = self.lock();
        let tellings = inner.tellings.entry(shard).or_default();
        tellings.count += 1;
        tellings.unanswered += 1;
        let mut locks = Vec::new();
        for (&inode, file) in inner.files.iter_mut().filter(|(inode, _)| inode.home() == shard) {
            for (&(kind, owner), owned) in &mut file.owners {
                owned.fresh = HeldRanges::default();
                locks.extend(owned.held.iter().map(|&held| HeldLock { inode, kind, owner, held }));
            }
        }
        locks
    }

    /// The shard has taken up what it was told, or will never. Of what it has taken up the first counts: what was told before
    /// and not answered is worth nothing any more.
    pub(crate) fn told(&self, shard: ShardId, is_taken_up: bool) {
        let mut inner = self.lock();
        let tellings = inner.tellings.entry(shard).or_default();
        tellings.unanswered = if is_taken_up { 0 } else { tellings.unanswered.saturating_sub(1) };
    }

    /// The shard may yet take up what was held when it was told, though it was given up since.
    pub(crate) fn is_being_told(&self, shard: ShardId) -> bool {
        self.lock().tellings.get(&shard).is_some_and(|tellings| tellings.unanswered > 0)
    }

    /// Others had taken it when the shard was told of it. False where it was given up meanwhile, or got again.
    pub(crate) fn lose(&self, lock: &HeldLock) -> bool {
        self.owned(lock.inode, (lock.kind, lock.owner), |owned| {
            owned.version += 1;
            let lost = not_held(&owned.fresh, lock.held.range);
            lost.into_iter().filter(|range| owned.held.clear(*range)).count() > 0
        })
    }
}

fn not_held(held: &HeldRanges, range: LockRange) -> Vec<LockRange> {
    held.missing(range, LockMode::Shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: InodeId = InodeId(33);
    const KEY: Key = (LockKind::Posix, 7);

    fn held(start: u64, end: u64) -> Held {
        Held { range: LockRange::new(start, end).expect("a range"), mode: LockMode::Exclusive, pid: 1 }
    }

    fn lock(table: &LockTable, key: Key, handle: u64, wanted: Held) {
        table.ask(FILE, key, handle, wanted);
        let stamp = table.stamp(FILE, key);
        assert!(table.got(FILE, key, wanted, stamp));
        table.asked(FILE, key);
    }

    #[test]
    fn tells_what_is_held_and_forgets_what_is_not() {
        let table = LockTable::default();
        lock(&table, KEY, 1, held(0, 99));
        assert!(table.begin_unlock(FILE, KEY, held(10, 19).range));
        let told: Vec<_> = table.tell(FILE.home()).iter().map(|lock| lock.held).collect();
        assert_eq!(told, [held(0, 9), held(20, 99)], "not what is being given up");
        table.end_unlock(FILE, KEY);
        assert!(!table.begin_unlock(FILE, KEY, held(12, 13).range), "nothing is held there");
        assert!(table.end_handle(FILE, 2).is_empty());
        assert_eq!(table.end_handle(FILE, 1), [KEY]);
        assert!(table.begin_unlock(FILE, KEY, LockRange::ALL));
        assert_eq!(table.unlocks(FILE), None);
        table.end_unlock(FILE, KEY);
        assert_eq!((table.files.load(Ordering::Relaxed), table.unlocks(FILE)), (0, Some(0)));
    }

    #[test]
    fn what_was_told_is_on_its_way_until_it_or_a_later_one_is_taken_up() {
        let (table, shard) = (LockTable::default(), FILE.home());
        assert!(!table.is_being_told(shard));
        table.tell(shard);
        assert!(table.is_being_told(shard) && !table.is_being_told(ShardId(shard.0 + 1)));
        // The connection broke; the next one is refused.
        table.tell(shard);
        table.told(shard, false);
        assert!(table.is_being_told(shard));
        table.tell(shard);
        table.told(shard, true);
        assert!(!table.is_being_told(shard));
    }

    #[test]
    fn tells_who_is_in_the_way() {
        let table = LockTable::default();
        let other = (LockKind::Posix, 8);
        let shared = |start, end| Held { mode: LockMode::Shared, ..held(start, end) };
        lock(&table, KEY, 1, held(0, 9));
        lock(&table, KEY, 1, shared(10, 19));
        assert!(table.is_in_the_way(FILE, other, shared(9, 30)));
        assert!(!table.is_in_the_way(FILE, other, shared(10, 30)));
        assert!(table.is_in_the_way(FILE, other, held(19, 30)));
        assert!(!table.is_in_the_way(FILE, other, held(20, 30)));
        assert!(!table.is_in_the_way(FILE, KEY, held(0, 30)), "it is the owner's own");
        assert!(!table.is_in_the_way(FILE, (LockKind::Flock, 8), held(0, 30)), "the kinds know nothing of each other");
        assert!(table.begin_unlock(FILE, KEY, LockRange::ALL));
        assert!(!table.is_in_the_way(FILE, other, held(0, 30)), "whoever is told so sees the unlock");
        assert_eq!(table.unlocks(FILE), None);
        table.end_unlock(FILE, KEY);
    }

    #[test]
    fn an_answer_that_may_be_outdated_does_not_count() {
        let table = LockTable::default();
        table.ask(FILE, KEY, 1, held(0, 9));
        let before = table.stamp(FILE, KEY);
        // An unlock by another thread, which the shard may have executed before or after.
        assert!(table.begin_unlock(FILE, KEY, LockRange::ALL));
        assert!(!table.got(FILE, KEY, held(0, 9), before));
        let during = table.stamp(FILE, KEY);
        assert!(!table.got(FILE, KEY, held(0, 9), during));
        table.end_unlock(FILE, KEY);
        assert!(!table.got(FILE, KEY, held(0, 9), during));
        let before = table.stamp(FILE, KEY);
        // The shard begins anew, and is told before its earlier life's answer came.
        assert!(table.tell(FILE.home()).is_empty());
        assert!(!table.got(FILE, KEY, held(0, 9), before));
        let before = table.stamp(FILE, KEY);
        assert!(table.got(FILE, KEY, held(0, 9), before));
    }

    #[test]
    fn doubts_last_until_nothing_changed_while_they_were_cleared() {
        let table = LockTable::default();
        lock(&table, KEY, 1, held(10, 19));
        table.doubt(FILE, KEY);
        let pieces = table.pieces(FILE, KEY, held(5, 30).range);
        assert_eq!(pieces.held, [held(10, 19)]);
        assert_eq!(pieces.free, [held(5, 9).range, held(20, 30).range]);
        assert!(table.begin_unlock(FILE, KEY, LockRange::ALL));
        table.end_unlock(FILE, KEY);
        assert!(!table.resolve(FILE, KEY, &pieces) && !table.is_settled(FILE, KEY));
        let pieces = table.pieces(FILE, KEY, held(5, 30).range);
        assert_eq!((pieces.held.len(), pieces.free.as_slice()), (0, &[held(5, 30).range][..]));
        assert!(table.resolve(FILE, KEY, &pieces) && table.is_settled(FILE, KEY));
    }

    #[test]
    fn what_is_got_while_a_doubt_of_the_owner_is_cleared_is_asked_for_again() {
        let table = LockTable::default();
        table.ask(FILE, KEY, 1, held(5, 30));
        let before = table.stamp(FILE, KEY);
        table.doubt(FILE, KEY);
        let pieces = table.pieces(FILE, KEY, held(0, 9).range);
        assert!(!table.got(FILE, KEY, held(5, 30), before), "what clears the doubt may come after it");
        assert!(table.resolve(FILE, KEY, &pieces));
        assert!(!table.got(FILE, KEY, held(5, 30), before), "and have come already");
        assert!(table.got(FILE, KEY, held(5, 30), table.stamp(FILE, KEY)));
    }

    #[test]
    fn what_was_got_after_the_telling_is_not_lost() {
        let table = LockTable::default();
        lock(&table, KEY, 1, held(0, 9));
        lock(&table, KEY, 1, held(20, 29));
        let told = table.tell(FILE.home());
        // Given up and got again while the telling was on its way: the shard did not find it.
        assert!(table.begin_unlock(FILE, KEY, held(0, 9).range));
        table.end_unlock(FILE, KEY);
        lock(&table, KEY, 1, held(5, 9));
        assert!(!table.lose(&told[0]));
        assert!(table.lose(&told[1]) && !table.lose(&told[1]));
        assert_eq!(table.tell(FILE.home()).iter().map(|lock| lock.held).collect::<Vec<_>>(), [held(5, 9)]);
    }

    #[test]
    fn the_end_of_an_open_file_takes_nothing_that_was_locked_through_another() {
        let table = LockTable::default();
        // Two open files of one process, one of which it closes while a thread waits for a lock through the other.
        lock(&table, KEY, 1, held(0, 9));
        table.ask(FILE, KEY, 2, held(20, 29));
        assert!(table.begin_unlock(FILE, KEY, LockRange::ALL));
        table.end_unlock(FILE, KEY);
        let stamp = table.stamp(FILE, KEY);
        assert!(table.got(FILE, KEY, held(20, 29), stamp));
        table.asked(FILE, KEY);
        assert!(table.end_handle(FILE, 1).is_empty());
        assert_eq!(table.end_handle(FILE, 2), [KEY]);
        // A new open file has the number of one before, whose end is told late.
        let flock = (LockKind::Flock, 3);
        let whole = Held { range: LockRange::ALL, ..held(0, 0) };
        lock(&table, flock, 5, whole);
        lock(&table, flock, 6, whole);
        assert!(table.end_handle(FILE, 5).is_empty());
        assert_eq!(table.end_handle(FILE, 6), [flock]);
    }

    #[test]
    fn flock_is_given_up_before_it_is_converted() {
        let table = LockTable::default();
        let key = (LockKind::Flock, 3);
        let all = |mode| Held { range: LockRange::ALL, mode, pid: 1 };
        lock(&table, key, 1, all(LockMode::Shared));
        table.ask(FILE, key, 1, all(LockMode::Shared));
        assert_eq!(table.tell(FILE.home()).len(), 1);
        table.ask(FILE, key, 1, all(LockMode::Exclusive));
        assert!(table.tell(FILE.home()).is_empty());
    }
}
