//! What RocksDB adds to the seam: files that are locked, lost, damaged and opened again.

#![cfg(feature = "rocksdb")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kv::rocks::{NOTE_FILE, RocksConfig, RocksKv};
use kv::{Batch, Kept, Kv, KvError, Syncer};

fn commit(kv: &RocksKv, key: &[u8]) {
    let mut batch = kv.batch();
    batch.put(key, b"value");
    kv.commit(&mut batch).expect("commit");
}

fn has(kv: &RocksKv, key: &[u8]) -> bool {
    kv.get(key, |value| value.is_some()).expect("get")
}

#[test]
fn a_second_handle_is_refused_as_locked() {
    let dir = tempfile::tempdir().expect("temp dir");
    let _kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
    let second = RocksKv::open(dir.path(), &RocksConfig::small()).map(|_| ());
    assert!(matches!(second, Err(KvError::Locked(_))), "{second:?}");
}

#[test]
fn what_may_not_be_made_is_not_made() {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("db");
    let result = RocksKv::open(&path, &RocksConfig { create: false, ..RocksConfig::small() }).map(|_| ());
    assert!(matches!(result, Err(KvError::Io(_))), "{result:?}");
    let left = std::fs::read_dir(&path).map_or(0, Iterator::count);
    assert!(!path.join("CURRENT").exists(), "{left} files");
}

#[test]
fn reopening_keeps_what_was_committed_and_old_syncers_go_on() {
    let dir = tempfile::tempdir().expect("temp dir");
    let kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
    let syncer = kv.syncer();
    commit(&kv, b"a");
    kv.reopen().expect("reopens");
    assert!(has(&kv, b"a"));
    commit(&kv, b"b");
    syncer.sync().expect("syncs the new database");
    drop(kv);
    drop(syncer);
    assert!(has(&RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens"), b"b"));
}

#[test]
fn a_damaged_database_is_told_from_a_failing_disk() {
    let dir = tempfile::tempdir().expect("temp dir");
    drop(RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens"));
    std::fs::write(dir.path().join("CURRENT"), b"nonsense").expect("writes");
    let result = RocksKv::open(dir.path(), &RocksConfig::small()).map(|_| ());
    assert!(matches!(result, Err(KvError::Corrupt(_))), "{result:?}");
}

/// The log that is written to.
fn log(dir: &Path) -> PathBuf {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let files = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    files.filter(is_log).max().expect("a log")
}

/// A record that is not whole ends the log: this one, and all that come behind it.
fn damage(path: &Path, back: u64) {
    let log = File::options().write(true).open(path).expect("opens");
    let length = log.metadata().expect("is there").len();
    log.write_all_at(b"damage", length - back).expect("is written");
}

fn open(dir: &Path) -> Result<RocksKv, KvError> {
    RocksKv::open(dir, &RocksConfig::small())
}

#[test]
fn what_was_synced_and_is_gone_is_missed() {
    for lose in [|path: &Path| damage(path, 20), |path: &Path| std::fs::remove_file(path).expect("is removed")] {
        let dir = tempfile::tempdir().expect("temp dir");
        let kv = open(dir.path()).expect("opens");
        assert_eq!(kv.kept(), Kept::All, "it is new");
        commit(&kv, b"before");
        kv.syncer().sync().expect("syncs");
        drop(kv);
        let kv = open(dir.path()).expect("opens");
        assert!(kv.kept() == Kept::All && has(&kv, b"before"));
        commit(&kv, b"a");
        commit(&kv, b"b");
        kv.syncer().sync().expect("syncs");
        drop(kv);
        lose(&log(dir.path()));
        for _ in 0..2 {
            assert!(matches!(open(dir.path()).map(|_| ()), Err(KvError::Lost(_))));
        }
        // Whoever goes on without it says so.
        std::fs::remove_file(dir.path().join(NOTE_FILE)).expect("is removed");
        let kv = open(dir.path()).expect("opens");
        assert!(kv.kept() == Kept::Unknown && has(&kv, b"before"));
        assert!(!has(&kv, b"b"));
        commit(&kv, b"c");
        kv.syncer().sync().expect("syncs");
        drop(kv);
        let kv = open(dir.path()).expect("opens");
        assert!(kv.kept() == Kept::All && has(&kv, b"c"));
    }
}

/// As of a disk that was not whole: nothing is thrown away meanwhile.
#[test]
fn what_is_missed_may_come_back() {
    let dir = tempfile::tempdir().expect("temp dir");
    let kv = open(dir.path()).expect("opens");
    commit(&kv, b"a");
    commit(&kv, b"b");
    kv.syncer().sync().expect("syncs");
    drop(kv);
    let log = log(dir.path());
    let whole = std::fs::read(&log).expect("reads");
    damage(&log, 20);
    for _ in 0..2 {
        assert!(matches!(open(dir.path()).map(|_| ()), Err(KvError::Lost(_))));
    }
    std::fs::write(&log, whole).expect("writes");
    assert!(has(&open(dir.path()).expect("opens"), b"b"));
}

#[test]
fn what_no_sync_has_covered_may_be_gone() {
    let dir = tempfile::tempdir().expect("temp dir");
    let kv = open(dir.path()).expect("opens");
    commit(&kv, b"a");
    kv.syncer().sync().expect("syncs");
    commit(&kv, b"b");
    drop(kv);
    damage(&log(dir.path()), 1);
    let kv = open(dir.path()).expect("opens");
    assert!(kv.kept() == Kept::All && has(&kv, b"a") && !has(&kv, b"b"));
}

/// A store is opened in another epoch where the power went, or its file system was mounted anew.
#[test]
fn what_a_power_cut_may_have_taken_is_told_unless_all_was_synced_at_an_end() {
    let dir = tempfile::tempdir().expect("temp dir");
    let open_in = |epoch| {
        let config = RocksConfig { page_cache_epoch: epoch, ..RocksConfig::small() };
        RocksKv::open(dir.path(), &config).expect("opens")
    };
    let life = |epoch, syncs| {
        let kv = open_in(epoch);
        commit(&kv, b"a");
        if syncs {
            kv.syncer().sync().expect("syncs");
        }
        commit(&kv, b"b");
        kv.kept()
    };
    assert_eq!(life(1, true), Kept::All);
    assert_eq!(life(1, true), Kept::All, "it was killed");
    assert_eq!(life(2, true), Kept::Synced);
    let kv = open_in(2);
    commit(&kv, b"c");
    kv.syncer().sync().expect("syncs");
    drop(kv);
    assert_eq!(life(3, true), Kept::All, "it had ended in good order");
    assert_eq!(life(4, false), Kept::Synced);
    // Killed before anything of this epoch was noted.
    assert_eq!(life(4, true), Kept::Synced);
    assert_eq!(life(4, true), Kept::All);
}

/// The logs that a store goes through, and what it flushes, change nothing about what is noted.
#[test]
fn a_long_life_is_known_whole() {
    let dir = tempfile::tempdir().expect("temp dir");
    for life in 0..4_u32 {
        let kv = open(dir.path()).expect("opens");
        assert_eq!(kv.kept(), Kept::All);
        let syncer = kv.syncer();
        let mut batch = kv.batch();
        for number in 0..500_u32 {
            batch.put(&[life, number].map(u32::to_be_bytes).concat(), &[7; 4000]);
            kv.commit(&mut batch).expect("commits");
            if number % 7 == 0 {
                syncer.sync().expect("syncs");
            }
        }
        if life % 2 == 0 {
            syncer.sync().expect("syncs");
            kv.reopen().expect("reopens");
        }
    }
    open(dir.path()).expect("opens");
}
