//! What RocksDB adds to the seam: files that are locked, lost, damaged and opened again.

#![cfg(feature = "rocksdb")]

use kv::rocks::{RocksConfig, RocksKv};
use kv::{Batch, Kv, KvError, Syncer};

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
