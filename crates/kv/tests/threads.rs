//! How many threads the stores of one process have together. A test binary of its own: the pools are the whole process's.

#![cfg(feature = "rocksdb")]

use kv::rocks::{RocksConfig, RocksKv, share_threads};
use kv::{Batch, Kv};

const STORES: usize = 6;

/// Threads of RocksDB in this process, by their names.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a directory");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("rocksdb:")).count()
}

#[test]
fn stores_share_their_threads() {
    let dir = tempfile::tempdir().expect("temp dir");
    share_threads(STORES).expect("an environment");
    let open =
        |number: usize| RocksKv::open(&dir.path().join(number.to_string()), &RocksConfig::small()).expect("opens");
    let stores: Vec<RocksKv> = (0..STORES).map(open).collect();
    for store in &stores {
        let mut batch = store.batch();
        batch.put(b"key", b"value");
        store.commit(&mut batch).expect("commits");
        store.flush().expect("flushes");
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let most = 2 * STORES.min(cpus / 2).max(1);
    assert!((1..=most).contains(&threads()), "{} threads, of {most}", threads());
}
