//! Both stores through the suite, and through random histories against a plain map.

use kv::conformance::{Step, replay, suite};
use kv::memory::MemoryKv;
use proptest::collection::vec;
use proptest::prelude::*;

/// The changes of one batch: keys and their values, or that they go.
type History = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0u8), Just(1), Just(0x7f), Just(0x80), Just(0xff)], 0..4)
}

fn changes() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
    vec((key(), proptest::option::weighted(0.7, vec(any::<u8>(), 0..40))), 0..8)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => changes().prop_map(Step::Commit),
        1 => changes().prop_map(Step::Abandon),
        3 => key().prop_map(Step::Get),
        3 => (key(), key(), 1..30usize).prop_map(|(from, to, count)| Step::Scan(from, to, count)),
        1 => Just(Step::Sync),
    ]
}

#[test]
fn memory_conforms() {
    suite(MemoryKv::new);
}

proptest! {
    #[test]
    fn memory_equals_a_plain_map(steps in vec(step(), 0..60)) {
        replay(&MemoryKv::new(), &steps);
    }

    /// A crash leaves exactly the state after some number of batches, no fewer than were synced.
    #[test]
    fn a_crash_leaves_a_prefix(before in vec(changes(), 0..10), after in vec(changes(), 0..10), kept in 0..10usize) {
        use kv::{Batch, Kv, Syncer};
        let committed = |histories: &[History], kv: &MemoryKv| {
            for changes in histories {
                let mut batch = kv.batch();
                for (key, value) in changes {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.delete(key),
                    }
                }
                kv.commit(&mut batch).expect("commit");
            }
        };
        // Empty batches write nothing, so they count for nothing.
        let after: Vec<_> = after.into_iter().filter(|changes| !changes.is_empty()).collect();
        let kv = MemoryKv::new();
        committed(&before, &kv);
        kv.syncer().sync().expect("sync");
        committed(&after, &kv);
        kv.crash_keeping(kept);

        let expected = MemoryKv::new();
        committed(&before, &expected);
        committed(&after[..kept.min(after.len())], &expected);
        prop_assert_eq!(dump(&kv), dump(&expected));
    }
}

fn dump(kv: &MemoryKv) -> Vec<(Vec<u8>, Vec<u8>)> {
    use kv::Kv;
    let mut all = Vec::new();
    kv.scan(b"", &[0xff; 16], |key, value| {
        all.push((key.to_vec(), value.to_vec()));
        std::ops::ControlFlow::Continue(())
    })
    .expect("scan");
    all
}

#[cfg(feature = "rocksdb")]
mod rocks {
    use kv::rocks::{Grouping, RocksConfig, RocksKv};

    use super::*;

    /// A small write buffer, so that histories also go through files, filters and compactions.
    fn open(dir: &tempfile::TempDir, name: u64) -> RocksKv {
        RocksKv::open(&dir.path().join(name.to_string()), &RocksConfig::small()).expect("opens")
    }

    fn grouping() -> RocksConfig {
        let front: fn(&[u8]) -> &[u8] = |key| &key[..key.len().min(2)];
        RocksConfig { grouping: Some(Grouping { name: "test.two", front }), ..RocksConfig::small() }
    }

    #[test]
    fn rocksdb_conforms() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut count = 0;
        suite(|| {
            count += 1;
            open(&dir, count)
        });
    }

    #[test]
    fn rocksdb_conforms_with_groups() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut count = 0;
        suite(|| {
            count += 1;
            RocksKv::open(&dir.path().join(count.to_string()), &grouping()).expect("opens")
        });
    }

    /// Files that were written without groups have other filters, or none that can be asked: nothing is missed.
    #[test]
    fn groups_are_found_in_files_old_and_new() {
        use kv::{Batch, Kv};
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("db");
        let put = |kv: &RocksKv, keys: &[&[u8]]| {
            let mut batch = kv.batch();
            keys.iter().for_each(|key| batch.put(key, b"v"));
            kv.commit(&mut batch).expect("commits");
            kv.flush().expect("flushes");
        };
        let group = |kv: &RocksKv, from: &[u8], to: &[u8]| {
            let mut count = 0;
            let visit = |_: &[u8], _: &[u8]| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            };
            kv.scan_group(from, to, visit).expect("scan");
            count
        };
        put(&RocksKv::open(&path, &RocksConfig::small()).expect("opens"), &[b"aa1", b"ba1", b"bb1"]);
        let kv = RocksKv::open(&path, &grouping()).expect("opens with groups");
        put(&kv, &[b"aa2", b"ab2", b"bb2"]);
        let (from, to): (Vec<&[u8]>, Vec<&[u8]>) =
            (vec![b"aa", b"ab", b"ac", b"ba", b"bb"], vec![b"ab", b"ac", b"ad", b"bb", b"bc"]);
        let counts: Vec<i32> = from.iter().zip(&to).map(|(from, to)| group(&kv, from, to)).collect();
        assert_eq!(counts, [2, 1, 0, 1, 2]);
        assert_eq!(entries(&kv).len(), 6, "a scan over groups sees them all");
        assert!([b"aa1", b"bb2"].iter().all(|key| kv.get(*key, |value| value.is_some()).expect("get")));
        drop(kv);
        let kv = RocksKv::open(&path, &RocksConfig::small()).expect("opens without groups again");
        assert_eq!((entries(&kv).len(), group(&kv, b"bb", b"bc")), (6, 2));
    }

    #[test]
    fn rocksdb_equals_a_plain_map_across_flushes() {
        let dir = tempfile::tempdir().expect("temp dir");
        for seed in 0..8 {
            let kv = if seed < 4 {
                open(&dir, seed)
            } else {
                RocksKv::open(&dir.path().join(seed.to_string()), &grouping()).expect("opens")
            };
            let steps = kv::conformance::scripted(seed, 2000);
            // The model inside `replay` begins empty, so one replay it is; the flushes come from a second handle's view
            // of the same steps: small buffers rotate by themselves, and the end is flushed and read again.
            replay(&kv, &steps);
            let before = entries(&kv);
            kv.flush().expect("flush");
            assert_eq!(entries(&kv), before);
            drop(kv);
            assert_eq!(entries(&open(&dir, seed)), before);
        }
    }

    fn entries(kv: &RocksKv) -> Vec<(Vec<u8>, Vec<u8>)> {
        use kv::Kv;
        let mut all = Vec::new();
        kv.scan(b"", &[0xff; 300], |key, value| {
            all.push((key.to_vec(), value.to_vec()));
            std::ops::ControlFlow::Continue(())
        })
        .expect("scan");
        all
    }
}
