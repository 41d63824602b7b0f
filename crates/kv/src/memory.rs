//! The store as a map in memory, for tests and simulation. It forgets what was not synced when told to crash, and fails
//! when told to fail.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{Batch, Kept, Kv, KvError, Syncer};

/// Unsynced batches kept for a crash to undo. Older ones count as durable, as an operating system writes back in time,
/// so that a long test without a sync takes no endless memory.
pub const UNSYNCED_MAX: usize = 1 << 14;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// What each changed key held before, in the order of the changes.
type Undo = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A store in memory. Clones are handles on the same store: a test keeps one to crash or break what the code under test
/// uses, and to look at it afterwards.
#[derive(Clone, Default)]
pub struct MemoryKv {
    map: Arc<RwLock<Map>>,
    control: Arc<Mutex<Control>>,
}

/// What is beside the data: the syncer touches only this, so that a nested read never waits for a writer.
#[derive(Default)]
struct Control {
    unsynced: VecDeque<Undo>,
    /// Commits until one fails, counted from 1, and how.
    failing_commit: Option<(u64, KvError)>,
    /// Every commit fails so until healed, as with a full or broken disk.
    broken: Option<KvError>,
    failing_sync: Option<KvError>,
    commits: u64,
    /// Something was lost since the last sync.
    kept: Option<Kept>,
    /// Keys that the disk does not give.
    unreadable: BTreeSet<Vec<u8>>,
}

impl MemoryKv {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The power goes: every batch committed since the last sync is gone.
    pub fn crash(&self) {
        self.crash_keeping(0);
    }

    /// The power goes after the disk got the first `kept` of the batches committed since the last sync. A log is written
    /// in order, so a crash leaves some prefix of it.
    pub fn crash_keeping(&self, kept: usize) {
        let mut map = self.map_mut();
        let mut control = self.control();
        while control.unsynced.len() > kept {
            let undo = control.unsynced.pop_back().expect("longer than `kept`, so not empty");
            for (key, old) in undo.into_iter().rev() {
                set(&mut map, key, old);
            }
        }
        control.unsynced.clear();
        control.kept = control.kept.or(Some(Kept::Synced));
    }

    /// Batches that a crash would undo.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.control().unsynced.len()
    }

    /// It may have lost what was durable, until the next sync.
    pub fn doubt(&self) {
        self.control().kept = Some(Kept::Unknown);
    }

    /// From now on this key cannot be read, as where its block is damaged.
    pub fn fail_reads(&self, key: &[u8]) {
        self.control().unreadable.insert(key.to_vec());
    }

    /// Batches committed in all, failed ones not counted.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.control().commits
    }

    /// The `nth` commit from now fails with `error`; 1 is the next. Those after it work again.
    ///
    /// # Panics
    /// If `nth` is 0.
    pub fn fail_commit(&self, nth: u64, error: KvError) {
        assert!(nth > 0, "commits are counted from 1");
        self.control().failing_commit = Some((nth, error));
    }

    /// Every commit fails with `error` until [`Self::heal`].
    pub fn fail_commits(&self, error: KvError) {
        self.control().broken = Some(error);
    }

    /// Every sync fails with `error`, and makes nothing durable, until [`Self::heal`].
    pub fn fail_syncs(&self, error: KvError) {
        self.control().failing_sync = Some(error);
    }

    /// No commit and no sync fails any more.
    pub fn heal(&self) {
        let mut control = self.control();
        control.failing_commit = None;
        control.broken = None;
        control.failing_sync = None;
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map().len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // A panic inside a caller's closure leaves the map whole, so a poisoned lock says nothing about the data.
    fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn map_mut(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    fn may_read(&self, key: &[u8]) -> Result<(), KvError> {
        if self.unreadable.contains(key) { Err(KvError::Corrupt("a block of the test".into())) } else { Ok(()) }
    }

    fn next_commit_fails(&mut self) -> Option<KvError> {
        if let Some(error) = &self.broken {
            return Some(error.clone());
        }
        match self.failing_commit.take() {
            Some((1, error)) => Some(error),
            Some((nth, error)) => {
                self.failing_commit = Some((nth - 1, error));
                None
            }
            None => None,
        }
    }
}

impl Kv for MemoryKv {
    type Batch = MemoryBatch;
    type Syncer = MemorySyncer;

    fn get<R>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KvError> {
        self.control().may_read(key)?;
        Ok(read(self.map().get(key).map(Vec::as_slice)))
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        if from >= to {
            return Ok(());
        }
        let map = self.map();
        for (key, value) in map.range::<[u8], _>((Bound::Included(from), Bound::Excluded(to))) {
            self.control().may_read(key)?;
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn batch(&self) -> MemoryBatch {
        MemoryBatch::default()
    }

    fn commit(&self, batch: &mut MemoryBatch) -> Result<(), KvError> {
        let changes = std::mem::take(&mut batch.changes);
        if changes.is_empty() {
            return Ok(());
        }
        let mut control = self.control();
        if let Some(error) = control.next_commit_fails() {
            return Err(error);
        }
        let mut map = self.map_mut();
        let undo = changes.into_iter().map(|(key, new)| (key.clone(), set(&mut map, key, new))).collect();
        control.unsynced.push_back(undo);
        if control.unsynced.len() > UNSYNCED_MAX {
            control.unsynced.pop_front();
        }
        control.commits += 1;
        Ok(())
    }

    fn syncer(&self) -> MemorySyncer {
        MemorySyncer { control: Arc::clone(&self.control) }
    }

    fn kept(&self) -> Kept {
        self.control().kept.unwrap_or(Kept::All)
    }
}

/// Puts or removes, and says what was there.
fn set(map: &mut Map, key: Vec<u8>, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

#[derive(Default)]
pub struct MemoryBatch {
    changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Batch for MemoryBatch {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.changes.push((key.to_vec(), Some(value.to_vec())));
    }

    fn delete(&mut self, key: &[u8]) {
        self.changes.push((key.to_vec(), None));
    }

    fn len(&self) -> usize {
        self.changes.len()
    }

    fn clear(&mut self) {
        self.changes.clear();
    }
}

pub struct MemorySyncer {
    control: Arc<Mutex<Control>>,
}

impl Syncer for MemorySyncer {
    fn sync(&self) -> Result<(), KvError> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &control.failing_sync {
            return Err(error.clone());
        }
        control.unsynced.clear();
        control.kept = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(kv: &MemoryKv, key: &[u8], value: &[u8]) -> Result<(), KvError> {
        let mut batch = kv.batch();
        batch.put(key, value);
        kv.commit(&mut batch)
    }

    fn get(kv: &MemoryKv, key: &[u8]) -> Option<Vec<u8>> {
        kv.get(key, |value| value.map(<[u8]>::to_vec)).expect("memory reads do not fail")
    }

    #[test]
    fn a_crash_loses_what_was_not_synced_and_nothing_else() {
        let kv = MemoryKv::new();
        commit(&kv, b"a", b"1").expect("commits");
        commit(&kv, b"b", b"1").expect("commits");
        kv.syncer().sync().expect("syncs");
        let mut batch = kv.batch();
        batch.put(b"a", b"2");
        batch.put(b"a", b"3");
        batch.delete(b"b");
        batch.put(b"c", b"1");
        kv.commit(&mut batch).expect("commits");
        assert_eq!((get(&kv, b"a"), get(&kv, b"b")), (Some(b"3".to_vec()), None));
        kv.crash();
        assert_eq!(get(&kv, b"a"), Some(b"1".to_vec()));
        assert_eq!(get(&kv, b"b"), Some(b"1".to_vec()));
        assert_eq!(get(&kv, b"c"), None);
    }

    #[test]
    fn a_crash_can_leave_any_prefix() {
        let kv = MemoryKv::new();
        for value in [b"1", b"2", b"3"] {
            commit(&kv, b"a", value).expect("commits");
        }
        kv.crash_keeping(2);
        assert_eq!(get(&kv, b"a"), Some(b"2".to_vec()));
        kv.crash();
        assert_eq!(get(&kv, b"a"), Some(b"2".to_vec()), "what survived one crash survives the next");
    }

    #[test]
    fn the_nth_commit_fails_and_leaves_no_trace() {
        let kv = MemoryKv::new();
        kv.fail_commit(2, KvError::NoSpace("test".into()));
        assert_eq!(commit(&kv, b"a", b"1"), Ok(()));
        assert_eq!(commit(&kv, b"a", b"2"), Err(KvError::NoSpace("test".into())));
        assert_eq!(get(&kv, b"a"), Some(b"1".to_vec()));
        assert_eq!(commit(&kv, b"a", b"3"), Ok(()));
        assert_eq!(kv.commits(), 2);
    }

    #[test]
    fn a_broken_store_fails_until_healed() {
        let kv = MemoryKv::new();
        kv.fail_commits(KvError::Io("test".into()));
        kv.fail_syncs(KvError::Io("test".into()));
        assert!(commit(&kv, b"a", b"1").is_err());
        assert!(commit(&kv, b"a", b"1").is_err());
        assert!(kv.syncer().sync().is_err());
        kv.heal();
        assert_eq!(commit(&kv, b"a", b"1"), Ok(()));
        assert_eq!(kv.syncer().sync(), Ok(()));
        assert_eq!(kv.unsynced(), 0);
    }

    #[test]
    fn a_failed_sync_makes_nothing_durable() {
        let kv = MemoryKv::new();
        kv.fail_syncs(KvError::Io("test".into()));
        commit(&kv, b"a", b"1").expect("commits");
        assert!(kv.syncer().sync().is_err());
        kv.crash();
        assert!(kv.is_empty());
    }

    #[test]
    fn memory_for_undoing_is_bounded() {
        let kv = MemoryKv::new();
        for n in 0..UNSYNCED_MAX as u64 + 10 {
            commit(&kv, &n.to_be_bytes(), b"").expect("commits");
        }
        assert_eq!(kv.unsynced(), UNSYNCED_MAX);
        kv.crash();
        assert_eq!(kv.len(), 10);
    }
}
