//! The store on RocksDB: one database per shard, one column family, one writer.
//!
//! What a reader must know:
//! - **A commit is in the write-ahead log, not on the disk.** The log's bytes are handed to the operating system before
//!   `commit` returns, so a killed process loses nothing; a power cut loses what [`RocksSyncer::sync`] had not covered. It
//!   loses a suffix of the batches, never one from the middle, and never half of one.
//! - **After a failed write RocksDB takes no more writes**, whatever the disk does later: it can't know what the log ends
//!   with. Reads go on. Its `Resume` is not in the C interface, so [`RocksKv::reopen`] closes and opens the database; that
//!   replays the log, which holds every batch whose commit succeeded, unless the disk that failed to sync it has forgotten
//!   some: then it says [`KvError::Lost`]. [`RocksKv::is_failed`] says when that is needed.
//! - **What was synced and is gone is missed**: [`RocksKv::open`] compares with what was noted at the last sync (see
//!   `noted`), and says [`KvError::Lost`]. Who wants to go on without it removes the note; [`Kv::kept`] says so then.
//! - **Reopening needs space**: the replayed log becomes a table file of up to `write_buffer_bytes`. Where it fails, the
//!   store stays closed, all its calls fail with `Io`, and `reopen` may be tried again. So who wants to go on reading asks
//!   [`RocksKv::room_to_reopen`] before.
//! - **Memory is bounded** by the block cache (which holds indexes and filters too), the write buffers with their filter
//!   (a fiftieth on top), and some kilobytes per open file.

mod error;
mod noted;
mod options;
mod room;
mod threads;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{DB, ReadOptions, WriteBatch, WriteOptions};

use crate::{Batch, Kept, Kv, KvError, Syncer};
pub use noted::NOTE_FILE;
use noted::{Note, Noted};
pub use options::{Grouping, RocksConfig};
pub use room::Room;
pub use threads::share_threads;

/// A RocksDB database. `Send` but not `Sync`: one thread reads and commits, its syncers may live on others.
pub struct RocksKv {
    /// `None` while a reopening is under way, or has not succeeded.
    db: RefCell<Option<Arc<DB>>>,
    shared: Arc<Shared>,
    path: PathBuf,
    config: RocksConfig,
    kept: Kept,
    write: WriteOptions,
    /// Made once: each costs an allocation, and a `get` needs none of its own.
    point_read: ReadOptions,
}

/// What syncers on other threads see.
struct Shared {
    /// The same database as `RocksKv::db`. Locked for as long as a sync runs, so that a reopening waits for it.
    db: Mutex<Option<Arc<DB>>>,
    failed: AtomicBool,
    /// RocksDB's number of the last change that was committed.
    committed: AtomicU64,
    /// The last of them that a sync has covered.
    synced: AtomicU64,
    /// `None` where the disk gives no file for it: what is not noted is not missed at the next start, and no other harm.
    note: Option<Note>,
    page_cache_epoch: u64,
}

/// Figures for metrics, each an estimate of RocksDB's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RocksStats {
    pub memtable_bytes: u64,
    pub block_cache_bytes: u64,
    pub live_data_bytes: u64,
    pub keys: u64,
    pub pending_compaction_bytes: u64,
    pub running_compactions: u64,
}

impl RocksKv {
    /// Opens the database in directory `path`, which is made if `config.create`.
    ///
    /// # Errors
    /// `Locked` where another process or handle has it open, `Corrupt` where it is damaged, `Lost` where changes that were
    /// synced are gone, `Io` where it is not there and may not be made.
    pub fn open(path: &Path, config: &RocksConfig) -> Result<Self, KvError> {
        // RocksDB makes this file last.
        let is_new = config.create && !path.join("CURRENT").exists();
        let noted = Note::read(path);
        if let Some(Noted { synced, .. }) = noted {
            // What is missed may come back, as with a disk that was not there: RocksDB would remove the rest of the log.
            let options = config.options(false);
            let db = DB::open_for_read_only(&options, path, false).map_err(error::from_rocksdb)?;
            let missing = synced.saturating_sub(db.latest_sequence_number());
            if missing > 0 {
                return Err(KvError::Lost(format!(
                    "the last {missing} changes that had been synced are not in the log"
                )));
            }
        }
        let db = open_db(path, config, config.create)?;
        let mut write = WriteOptions::default();
        write.set_sync(false);
        let (found, note) = (db.latest_sequence_number(), Note::open(path).ok());
        let kept = match noted {
            _ if is_new => Kept::All,
            Some(noted) => noted.kept(found, config.page_cache_epoch),
            None => Kept::Unknown,
        };
        let shared = Shared {
            db: Mutex::new(Some(Arc::clone(&db))),
            failed: AtomicBool::new(false),
            committed: AtomicU64::new(found),
            synced: AtomicU64::new(0),
            note,
            page_cache_epoch: config.page_cache_epoch,
        };
        Ok(Self {
            db: RefCell::new(Some(db)),
            shared: Arc::new(shared),
            path: path.to_path_buf(),
            config: config.clone(),
            kept,
            write,
            point_read: ReadOptions::default(),
        })
    }

    /// A commit or a sync has failed: every later commit will, until [`Self::reopen`].
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// What a reopening will take. `None` where the store is closed: then trying costs nothing.
    #[must_use]
    pub fn room_to_reopen(&self) -> Option<Room> {
        let in_memory = self.with(|db| db.property_int_value("rocksdb.cur-size-all-mem-tables")).ok()?;
        Some(Room::new(&self.path, in_memory.unwrap_or_default()))
    }

    /// Closes the database and opens it again with all that was committed. Waits for a sync that is under way, and for the
    /// disk: see [`Self::begin_reopening`] for how not to.
    ///
    /// # Errors
    /// Why it can't be opened. The store is closed then, and this may be called again.
    ///
    /// # Panics
    /// If called from inside a `get` or `scan` of the same store.
    pub fn reopen(&self) -> Result<(), KvError> {
        self.end_reopening(self.begin_reopening().run())
    }

    /// Takes the database out of this thread's hands, for [`Reopening::run`] on a thread that may wait for a disk that
    /// hangs, and then [`Self::end_reopening`] on this one. Until then the store is closed.
    ///
    /// # Panics
    /// As [`Self::reopen`].
    #[must_use]
    pub fn begin_reopening(&self) -> Reopening {
        let old = self.db.borrow_mut().take();
        Reopening { old, shared: Arc::clone(&self.shared), path: self.path.clone(), config: self.config.clone() }
    }

    /// # Errors
    /// Why it couldn't be opened: it may be begun again.
    pub fn end_reopening(&self, reopened: Reopened) -> Result<(), KvError> {
        *self.db.borrow_mut() = Some(reopened.0?);
        Ok(())
    }

    /// Writes what is in memory to table files and waits for it: for tests and for a quick next start.
    ///
    /// # Errors
    /// Where the store cannot be written.
    pub fn flush(&self) -> Result<(), KvError> {
        self.with(|db| db.flush())
    }

    /// # Errors
    /// Where the store is closed.
    pub fn stats(&self) -> Result<RocksStats, KvError> {
        self.with(|db| {
            let figure = |name: &str| db.property_int_value(name).map(Option::unwrap_or_default);
            Ok(RocksStats {
                memtable_bytes: figure("rocksdb.cur-size-all-mem-tables")?,
                block_cache_bytes: figure("rocksdb.block-cache-usage")?,
                live_data_bytes: figure("rocksdb.estimate-live-data-size")?,
                keys: figure("rocksdb.estimate-num-keys")?,
                pending_compaction_bytes: figure("rocksdb.estimate-pending-compaction-bytes")?,
                running_compactions: figure("rocksdb.num-running-compactions")?,
            })
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn visit(
        &self,
        mut options: ReadOptions,
        (from, to): (&[u8], &[u8]),
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        if from >= to {
            return Ok(());
        }
        self.with(|db| {
            options.set_iterate_upper_bound(to);
            let mut entries = db.raw_iterator_opt(options);
            entries.seek(from);
            while let Some((key, value)) = entries.item() {
                if visit(key, value).is_break() {
                    return Ok(());
                }
                entries.next();
            }
            // An iterator that meets an error looks as if it were at the end.
            entries.status()
        })
    }

    fn with<R>(&self, act: impl FnOnce(&DB) -> Result<R, rocksdb::Error>) -> Result<R, KvError> {
        let db = self.db.borrow();
        let db = db.as_deref().ok_or_else(error::closed)?;
        act(db).map_err(error::from_rocksdb)
    }
}

/// The slow part of a reopening. May wait for a sync and for the disk, without bound.
pub struct Reopening {
    old: Option<Arc<DB>>,
    shared: Arc<Shared>,
    path: PathBuf,
    config: RocksConfig,
}

/// What a reopening came to.
pub struct Reopened(Result<Arc<DB>, KvError>);

impl Reopening {
    #[must_use]
    pub fn run(self) -> Reopened {
        let Self { old, shared, path, config } = self;
        let (mut db, failed) = (shared.db(), &shared.failed);
        // RocksDB refuses a second handle in one process, so the old one goes first.
        *db = None;
        drop(old);
        let opened = open_db(&path, &config, false).and_then(|db| shared.has_all(&db).map(|()| db));
        match opened {
            // What was replayed is in a table file now, which is synced.
            Ok(_) => shared.note_synced(shared.committed.load(Ordering::Acquire)),
            Err(KvError::Lost(_)) => shared.note_loss(),
            Err(_) => {}
        }
        // Before a syncer has it: a failure of the new database is not to be taken for one of the old.
        failed.store(opened.is_err(), Ordering::Release);
        *db = opened.as_ref().ok().map(Arc::clone);
        Reopened(opened)
    }
}

impl Shared {
    // The lock guards a pointer that is whole at every moment, so a panic elsewhere spoils nothing.
    fn db(&self) -> MutexGuard<'_, Option<Arc<DB>>> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A log that was not synced may have lost its end where the kernel has dropped its pages since; to RocksDB that looks like
    /// a power cut.
    fn has_all(&self, db: &DB) -> Result<(), KvError> {
        let (found, committed) = (db.latest_sequence_number(), self.committed.load(Ordering::Acquire));
        if found < committed {
            return Err(KvError::Lost(format!("the last {} changes are not in the log", committed - found)));
        }
        Ok(())
    }

    fn note_synced(&self, synced: u64) {
        self.synced.store(synced, Ordering::Release);
        self.note(Noted { synced, ended: 0, epoch: self.page_cache_epoch });
    }

    /// What the disk has refused the kernel may forget, in this epoch: a later start is to take it for another one.
    fn note_loss(&self) {
        // Where nothing is noted, a start takes even less for kept.
        let Some(noted) = self.note.as_ref().and_then(Note::get) else { return };
        self.note(noted.lost_since(self.page_cache_epoch));
    }

    fn note(&self, noted: Noted) {
        if let Some(note) = &self.note {
            // Where it is refused, as by a full disk, the one before stands.
            let _ = note.set(noted);
        }
    }

    fn noting_failure<R>(&self, result: Result<R, KvError>) -> Result<R, KvError> {
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }
}

impl Drop for Shared {
    /// The store and its syncers have ended: in good order where nothing is left to be synced.
    fn drop(&mut self) {
        let (synced, committed) = (*self.synced.get_mut(), *self.committed.get_mut());
        if synced == committed {
            self.note(Noted { synced, ended: committed, epoch: self.page_cache_epoch });
        }
    }
}

fn open_db(path: &Path, config: &RocksConfig, create: bool) -> Result<Arc<DB>, KvError> {
    DB::open(&config.options(create), path).map(Arc::new).map_err(error::from_rocksdb)
}

impl Kv for RocksKv {
    type Batch = RocksBatch;
    type Syncer = RocksSyncer;

    fn get<R>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KvError> {
        self.with(|db| Ok(read(db.get_pinned_opt(key, &self.point_read)?.as_deref())))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<(), KvError> {
        let mut options = ReadOptions::default();
        // Else only what belongs together with `from` would be looked for.
        options.set_total_order_seek(true);
        self.visit(options, (from, to), visit)
    }

    fn scan_group(
        &self,
        from: &[u8],
        to: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), KvError> {
        let mut options = ReadOptions::default();
        match self.config.grouping {
            Some(_) => options.set_prefix_same_as_start(true),
            None => options.set_total_order_seek(true),
        }
        self.visit(options, (from, to), visit)
    }

    fn batch(&self) -> RocksBatch {
        RocksBatch::new()
    }

    fn commit(&self, batch: &mut RocksBatch) -> Result<(), KvError> {
        let changes = std::mem::replace(batch, RocksBatch::new()).changes;
        if changes.is_empty() {
            return Ok(());
        }
        if self.db.borrow().is_none() {
            return Err(error::closed());
        }
        let result = self.with(|db| {
            db.write_opt(changes, &self.write)?;
            self.shared.committed.store(db.latest_sequence_number(), Ordering::Release);
            Ok(())
        });
        self.shared.noting_failure(result)
    }

    fn syncer(&self) -> RocksSyncer {
        RocksSyncer { shared: Arc::clone(&self.shared) }
    }

    fn kept(&self) -> Kept {
        self.kept
    }
}

/// RocksDB's own batch: the bytes that go to the log.
pub struct RocksBatch {
    changes: WriteBatch,
}

impl RocksBatch {
    /// Room for some tens of changes without growing.
    const CAPACITY_BYTES: usize = 8 << 10;

    fn new() -> Self {
        Self { changes: WriteBatch::with_capacity_bytes(Self::CAPACITY_BYTES) }
    }
}

impl Batch for RocksBatch {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.changes.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.changes.delete(key);
    }

    fn len(&self) -> usize {
        self.changes.len()
    }

    fn clear(&mut self) {
        self.changes.clear();
    }
}

/// Syncs the write-ahead log from any thread, while the shard goes on committing.
#[derive(Clone)]
pub struct RocksSyncer {
    shared: Arc<Shared>,
}

impl Syncer for RocksSyncer {
    fn sync(&self) -> Result<(), KvError> {
        let db = self.shared.db();
        let covered = self.shared.committed.load(Ordering::Acquire);
        let result = match db.as_deref() {
            Some(db) => db.flush_wal(true).map_err(error::from_rocksdb),
            None => return Err(error::closed()),
        };
        match result {
            Ok(()) => self.shared.note_synced(covered),
            // RocksDB says again how a write has failed, and does not ask the disk.
            Err(_) if self.shared.failed.load(Ordering::Acquire) => {}
            Err(_) => self.shared.note_loss(),
        }
        self.shared.noting_failure(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sync that the disk never ends holds a reopening up, but not the thread that uses the store.
    #[test]
    fn a_reopening_that_hangs_leaves_the_stores_thread_free() {
        let dir = tempfile::tempdir().expect("temp dir");
        let kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
        let mut batch = kv.batch();
        batch.put(b"key", b"value");
        kv.commit(&mut batch).expect("commits");
        let shared = Arc::clone(&kv.shared);
        let hanging = shared.db();
        let reopening = kv.begin_reopening();
        let helper = std::thread::spawn(move || reopening.run());
        let got = kv.get(b"key", |value| value.is_some());
        assert_eq!(got, Err(error::closed()));
        batch.put(b"key", b"other");
        assert_eq!(kv.commit(&mut batch), Err(error::closed()));
        assert!(!helper.is_finished());
        drop(hanging);
        kv.end_reopening(helper.join().expect("no panic")).expect("opens again");
        assert!(!kv.is_failed());
        assert_eq!(kv.get(b"key", |value| value == Some(b"value")), Ok(true));
        assert_eq!(kv.syncer().sync(), Ok(()));
    }

    /// The new database may fail before the thread that uses the store takes it up.
    #[test]
    fn a_failure_just_after_a_reopening_is_not_forgotten() {
        let dir = tempfile::tempdir().expect("temp dir");
        let kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
        let fail = || kv.shared.noting_failure::<()>(Err(KvError::Io("test".into())));
        assert!(fail().is_err() && kv.is_failed());
        let reopened = kv.begin_reopening().run();
        assert!(!kv.is_failed());
        assert!(fail().is_err());
        kv.end_reopening(reopened).expect("is open");
        assert!(kv.is_failed(), "it is to be opened once more");
    }

    /// The disk has failed to sync the log, and its pages have gone since.
    #[test]
    fn who_opens_again_hears_of_what_the_log_has_lost() {
        let dir = tempfile::tempdir().expect("temp dir");
        let kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
        let put = |key: &[u8]| {
            let mut batch = kv.batch();
            batch.put(key, b"value");
            kv.commit(&mut batch).expect("commits");
        };
        put(b"first");
        assert_eq!(kv.reopen(), Ok(()));
        put(b"second");
        put(b"third");
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        let files = std::fs::read_dir(dir.path()).expect("a directory").map(|entry| entry.expect("an entry").path());
        let log = files.filter(is_log).max().expect("a log");
        let log = std::fs::File::options().write(true).open(log).expect("opens");
        log.set_len(log.metadata().expect("is there").len() - 1).expect("is cut");
        for _ in 0..2 {
            assert!(matches!(kv.reopen(), Err(KvError::Lost(_))));
            assert!(kv.is_failed());
        }
        drop(kv);
        let kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
        assert_eq!(kv.kept(), Kept::Synced, "its epoch is over");
    }

    /// It may be opened again later, and nothing is lost.
    #[test]
    fn a_reopening_that_only_fails_takes_nothing_for_lost() {
        let dir = tempfile::tempdir().expect("temp dir");
        let kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
        kv.syncer().sync().expect("syncs");
        let mut batch = kv.batch();
        batch.put(b"key", b"value");
        kv.commit(&mut batch).expect("commits");
        let (current, away) = (dir.path().join("CURRENT"), dir.path().join("away"));
        std::fs::rename(&current, &away).expect("is renamed");
        assert!(kv.reopen().is_err());
        std::fs::rename(&away, &current).expect("is renamed");
        drop(kv);
        assert_eq!(RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens").kept(), Kept::All);
    }

    /// As after a backup was put back, and a first sync that failed.
    #[test]
    fn a_loss_makes_no_note_where_nothing_is_known() {
        let dir = tempfile::tempdir().expect("temp dir");
        let open = || RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
        drop(open());
        std::fs::remove_file(dir.path().join(NOTE_FILE)).expect("is removed");
        let kv = open();
        kv.shared.note_loss();
        let mut batch = kv.batch();
        batch.put(b"key", b"value");
        kv.commit(&mut batch).expect("commits");
        drop(kv);
        assert_eq!(open().kept(), Kept::Unknown);
    }

    /// What a log is replayed into is synced.
    #[test]
    fn a_store_that_was_opened_again_may_end_in_good_order() {
        let dir = tempfile::tempdir().expect("temp dir");
        let open_in = |epoch| {
            let config = RocksConfig { page_cache_epoch: epoch, ..RocksConfig::small() };
            RocksKv::open(dir.path(), &config).expect("opens")
        };
        let kv = open_in(1);
        let mut batch = kv.batch();
        batch.put(b"key", b"value");
        kv.commit(&mut batch).expect("commits");
        kv.reopen().expect("opens again");
        drop(kv);
        assert_eq!(open_in(2).kept(), Kept::All);
    }
}
