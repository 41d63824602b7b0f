//! What every store must do, as functions that any implementation can be put through. Each panics where the store is
//! wrong, so they are called from tests.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use crate::{Batch, Kv, Syncer};

/// Runs every check. `fresh` makes an empty store, one per check.
pub fn suite<K: Kv>(mut fresh: impl FnMut() -> K) {
    absent_keys_read_as_none(&fresh());
    a_commit_shows_all_changes(&fresh());
    the_last_change_of_a_key_wins(&fresh());
    a_batch_can_be_used_again(&fresh());
    nothing_shows_before_the_commit(&fresh());
    scans_are_ordered_and_half_open(&fresh());
    scans_compare_bytes_as_unsigned(&fresh());
    scans_stop_when_told(&fresh());
    groups_are_scanned_whole(&fresh());
    reads_may_nest(&fresh());
    odd_keys_and_values_survive(&fresh());
    a_sync_from_another_thread_works(&fresh());
    replay(&fresh(), &scripted(7, 3000));
}

/// One step of a random history.
#[derive(Clone, Debug)]
pub enum Step {
    /// `None` deletes.
    Commit(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    /// Fills a batch and throws it away.
    Abandon(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Get(Vec<u8>),
    /// From, to, and how many entries to look at before breaking.
    Scan(Vec<u8>, Vec<u8>, usize),
    Sync,
}

/// Plays `steps` on an empty store and on a plain map; they must agree at every step and at the end.
///
/// # Panics
/// Where they do not.
pub fn replay<K: Kv>(kv: &K, steps: &[Step]) {
    let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for step in steps {
        match step {
            Step::Commit(changes) => {
                let mut batch = filled(kv, changes);
                kv.commit(&mut batch).expect("commit");
                assert!(batch.is_empty());
                for (key, value) in changes {
                    match value {
                        Some(value) => model.insert(key.clone(), value.clone()),
                        None => model.remove(key),
                    };
                }
            }
            Step::Abandon(changes) => drop(filled(kv, changes)),
            Step::Get(key) => assert_eq!(get(kv, key).as_ref(), model.get(key), "get {key:?}"),
            Step::Scan(from, to, count) => {
                assert_eq!(scan(kv, from, to, *count), model_scan(&model, from, to, *count), "scan {from:?}..{to:?}");
            }
            Step::Sync => kv.syncer().sync().expect("sync"),
        }
    }
    let all: Vec<_> = model.into_iter().collect();
    assert_eq!(scan(kv, b"", &[0xff; 300], usize::MAX), all);
}

/// A repeatable history of `count` steps over few keys, so that they meet.
#[must_use]
pub fn scripted(seed: u64, count: usize) -> Vec<Step> {
    let mut dice = Dice(seed.wrapping_mul(2).wrapping_add(1));
    (0..count).map(|_| dice.step()).collect()
}

/// Xorshift64 (Marsaglia): repeatable, and no dependency.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn key(&mut self) -> Vec<u8> {
        let mut key = vec![b'a' + self.below(3) as u8];
        key.extend_from_slice(&self.below(40).to_be_bytes()[8 - self.below(8) as usize..]);
        key
    }

    fn changes(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        (0..self.below(6))
            .map(|_| {
                let value = (self.below(3) > 0).then(|| vec![self.below(256) as u8; self.below(200) as usize]);
                (self.key(), value)
            })
            .collect()
    }

    fn step(&mut self) -> Step {
        match self.below(20) {
            0..8 => Step::Commit(self.changes()),
            8 => Step::Abandon(self.changes()),
            9..15 => Step::Get(self.key()),
            15..19 => Step::Scan(self.key(), self.key(), self.below(20) as usize + 1),
            _ => Step::Sync,
        }
    }
}

fn filled<K: Kv>(kv: &K, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> K::Batch {
    let mut batch = kv.batch();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
    }
    assert_eq!(batch.len(), changes.len());
    batch
}

fn get<K: Kv>(kv: &K, key: &[u8]) -> Option<Vec<u8>> {
    kv.get(key, |value| value.map(<[u8]>::to_vec)).expect("get")
}

fn put<K: Kv>(kv: &K, entries: &[(&[u8], &[u8])]) {
    let mut batch = kv.batch();
    for (key, value) in entries {
        batch.put(key, value);
    }
    kv.commit(&mut batch).expect("commit");
}

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn scan<K: Kv>(kv: &K, from: &[u8], to: &[u8], count: usize) -> Entries {
    let mut found = Vec::new();
    kv.scan(from, to, |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        if found.len() >= count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .expect("scan");
    found
}

fn model_scan(model: &BTreeMap<Vec<u8>, Vec<u8>>, from: &[u8], to: &[u8], count: usize) -> Entries {
    if from >= to {
        return Vec::new();
    }
    model
        .range::<[u8], _>((Bound::Included(from), Bound::Excluded(to)))
        .take(count)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn keys(entries: &Entries) -> Vec<&[u8]> {
    entries.iter().map(|(key, _)| key.as_slice()).collect()
}

fn absent_keys_read_as_none<K: Kv>(kv: &K) {
    assert_eq!(get(kv, b"nothing"), None);
    assert!(scan(kv, b"", b"\xff", usize::MAX).is_empty());
    let mut batch = kv.batch();
    batch.delete(b"nothing");
    kv.commit(&mut batch).expect("deleting what is not there is no error");
}

fn a_commit_shows_all_changes<K: Kv>(kv: &K) {
    put(kv, &[(b"a", b"1"), (b"b", b"2")]);
    let mut batch = kv.batch();
    batch.delete(b"a");
    batch.put(b"c", b"3");
    kv.commit(&mut batch).expect("commit");
    assert_eq!((get(kv, b"a"), get(kv, b"b"), get(kv, b"c")), (None, Some(b"2".to_vec()), Some(b"3".to_vec())));
}

fn the_last_change_of_a_key_wins<K: Kv>(kv: &K) {
    let mut batch = kv.batch();
    batch.put(b"a", b"1");
    batch.delete(b"a");
    batch.put(b"a", b"2");
    batch.put(b"b", b"1");
    batch.delete(b"b");
    kv.commit(&mut batch).expect("commit");
    assert_eq!((get(kv, b"a"), get(kv, b"b")), (Some(b"2".to_vec()), None));
}

fn a_batch_can_be_used_again<K: Kv>(kv: &K) {
    let mut batch = kv.batch();
    assert!(batch.is_empty());
    kv.commit(&mut batch).expect("an empty batch is no error");
    batch.put(b"a", b"1");
    assert_eq!(batch.len(), 1);
    kv.commit(&mut batch).expect("commit");
    assert!(batch.is_empty());
    batch.put(b"b", b"1");
    batch.clear();
    assert!(batch.is_empty());
    batch.put(b"c", b"1");
    kv.commit(&mut batch).expect("commit");
    assert_eq!(keys(&scan(kv, b"", b"z", usize::MAX)), [b"a", b"c"]);
}

fn nothing_shows_before_the_commit<K: Kv>(kv: &K) {
    let mut batch = kv.batch();
    batch.put(b"a", b"1");
    assert_eq!(get(kv, b"a"), None);
    drop(batch);
    assert_eq!(get(kv, b"a"), None);
}

fn scans_are_ordered_and_half_open<K: Kv>(kv: &K) {
    put(kv, &[(b"b", b"2"), (b"d", b"4"), (b"a", b"1"), (b"c", b"3"), (b"ab", b"5")]);
    assert_eq!(keys(&scan(kv, b"a", b"c", usize::MAX)), [&b"a"[..], b"ab", b"b"]);
    assert_eq!(keys(&scan(kv, b"aa", b"z", usize::MAX)), [&b"ab"[..], b"b", b"c", b"d"]);
    assert!(scan(kv, b"c", b"c", usize::MAX).is_empty());
    assert!(scan(kv, b"d", b"a", usize::MAX).is_empty(), "an upside-down range is empty");
}

fn scans_compare_bytes_as_unsigned<K: Kv>(kv: &K) {
    put(kv, &[(b"\x7f", b""), (b"\x80", b""), (b"\x00", b""), (b"\xff", b""), (b"\xff\xff", b"")]);
    assert_eq!(
        keys(&scan(kv, b"", b"\xff\xff\xff", usize::MAX)),
        [&b"\x00"[..], b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
    );
}

fn scans_stop_when_told<K: Kv>(kv: &K) {
    put(kv, &[(b"a", b""), (b"b", b""), (b"c", b"")]);
    assert_eq!(keys(&scan(kv, b"a", b"z", 2)), [b"a", b"b"]);
}

/// A group is what begins with the same two bytes, where the store was told so.
fn groups_are_scanned_whole<K: Kv>(kv: &K) {
    put(kv, &[(b"aax", b"1"), (b"aay", b"2"), (b"ab", b"3"), (b"abz", b"4"), (b"c", b"5")]);
    let group = |from: &[u8], to: &[u8]| {
        let mut found = Vec::new();
        let visit = |key: &[u8], _: &[u8]| {
            found.push(key.to_vec());
            ControlFlow::Continue(())
        };
        kv.scan_group(from, to, visit).expect("scan");
        found
    };
    assert_eq!(group(b"aa", b"ab"), [b"aax", b"aay"]);
    assert_eq!(group(b"ab", b"ac"), [&b"ab"[..], b"abz"]);
    assert!(group(b"ac", b"ad").is_empty());
    let mut batch = kv.batch();
    batch.delete(b"aax");
    kv.commit(&mut batch).expect("commit");
    assert_eq!(group(b"aa", b"ab"), [b"aay"]);
}

fn reads_may_nest<K: Kv>(kv: &K) {
    put(kv, &[(b"a", b"b"), (b"b", b"c"), (b"c", b"a")]);
    let mut seen = Vec::new();
    kv.scan(b"a", b"z", |_, value| {
        seen.push(get(kv, value).expect("each value is a key"));
        ControlFlow::Continue(())
    })
    .expect("scan");
    assert_eq!(seen, [b"c", b"a", b"b"]);
    let twice = kv.get(b"a", |value| get(kv, value.expect("there"))).expect("get");
    assert_eq!(twice, Some(b"c".to_vec()));
}

fn odd_keys_and_values_survive<K: Kv>(kv: &K) {
    let long = vec![0xab; 100_000];
    put(kv, &[(b"empty", b""), (b"with\0zero", b"\0\0"), (&long[..1000], &long)]);
    assert_eq!(get(kv, b"empty"), Some(Vec::new()));
    assert_eq!(get(kv, b"with\0zero"), Some(vec![0, 0]));
    assert_eq!(get(kv, &long[..1000]), Some(long));
    assert_eq!(get(kv, b"with"), None);
}

fn a_sync_from_another_thread_works<K: Kv>(kv: &K) {
    let syncer = kv.syncer();
    let thread = std::thread::spawn(move || {
        for _ in 0..20 {
            syncer.sync().expect("sync");
        }
    });
    for n in 0..200u64 {
        put(kv, &[(&n.to_be_bytes(), b"x")]);
    }
    thread.join().expect("the syncing thread ends well");
    assert_eq!(scan(kv, b"", &[0xff; 9], usize::MAX).len(), 200);
}
