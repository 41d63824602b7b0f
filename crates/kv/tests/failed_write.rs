//! A write that fails, and going on after it. A test binary of its own: the limit on file sizes, which stands in for a
//! full disk without needing root, is the whole process's.

#![cfg(feature = "rocksdb")]

use kv::rocks::{RocksConfig, RocksKv};
use kv::{Batch, Kv, KvError};

fn limit_file_size(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `setrlimit` reads the struct and keeps no pointer to it; `signal` only sets a disposition.
    let result = unsafe {
        // Without this the process would be killed rather than get `EFBIG`.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn commit(kv: &RocksKv, key: u64) -> Result<(), KvError> {
    let mut batch = kv.batch();
    batch.put(&key.to_be_bytes(), &[7; 4000]);
    kv.commit(&mut batch)
}

fn has(kv: &RocksKv, key: u64) -> bool {
    kv.get(&key.to_be_bytes(), |value| value.is_some()).expect("reads go on")
}

#[test]
fn after_a_failed_write_the_store_reads_on_and_can_be_opened_again() {
    let dir = tempfile::tempdir().expect("temp dir");
    let kv = RocksKv::open(dir.path(), &RocksConfig::small()).expect("opens");
    commit(&kv, 0).expect("there is room");

    limit_file_size(60_000);
    let failed = (1..100).find(|&key| commit(&kv, key).is_err()).expect("the limit is met");
    assert!(failed > 1, "some fit");
    assert!(kv.is_failed());
    assert!((0..failed).all(|key| has(&kv, key)), "what was committed can be read");
    assert!(!has(&kv, failed), "a failed batch is not visible");
    assert!(commit(&kv, failed).is_err(), "the limit is still there");
    let room = kv.room_to_reopen().expect("it is open");
    assert!(room.try_out().is_err(), "opening it again would fail as well");

    limit_file_size(libc::RLIM_INFINITY);
    assert!(commit(&kv, failed).is_err(), "RocksDB does not recover by itself: if it does now, reopening can go");
    assert_eq!(room.try_out(), Ok(()));
    kv.reopen().expect("opens again");
    assert!(!kv.is_failed());
    assert!((0..failed).all(|key| has(&kv, key)), "nothing that was committed is lost");
    assert!(!has(&kv, failed), "what failed did not happen");
    commit(&kv, failed).expect("writes again");
    assert!(has(&kv, failed));
}
