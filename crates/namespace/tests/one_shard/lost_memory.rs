//! What a power cut has taken from a store, and what may not come again after it.

use std::ops::ControlFlow;

use kv::memory::MemoryKv;
use kv::{Batch, Kv, Syncer};
use types::error::Errno;
use types::id::InodeId;

use crate::common::{A, B, Bed, ROOT, refused};

#[test]
fn ids_are_not_used_again_after_a_power_cut() {
    let mut bed = Bed::new();
    let lost = bed.file(ROOT, "lost");
    bed.turn();
    bed.kv.crash();
    bed.restart();
    bed.check();
    bed.shard.session_open(A, b"").unwrap();
    assert_eq!(refused(bed.lookup(ROOT, "lost")), Errno::ENOENT);
    assert!(bed.file(ROOT, "new") > lost, "objects of the lost file may be on storage");
}

#[test]
fn ids_are_not_used_again_where_the_store_may_have_lost_what_was_synced() {
    let mut bed = Bed::new();
    let first = bed.file(ROOT, "first");
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    let second = bed.file(ROOT, "second");
    bed.turn();
    bed.kv.doubt();
    bed.restart();
    bed.check();
    bed.shard.session_open(A, b"").unwrap();
    let third = bed.file(ROOT, "third");
    let least = first.counter() + 1000 * (second.counter() - first.counter());
    assert!(third.counter() > least, "{first}, {second}, {third}");
}

const SECOND: i64 = 1_000_000_000;
/// A day in 2026.
const TODAY: i64 = 1_795_824_000 * SECOND;

fn copy(kv: &MemoryKv) -> MemoryKv {
    let copy = MemoryKv::new();
    let mut batch = copy.batch();
    let put = |key: &[u8], value: &[u8]| {
        batch.put(key, value);
        ControlFlow::Continue(())
    };
    kv.scan(b"", b"\xff", put).unwrap();
    copy.commit(&mut batch).unwrap();
    copy.syncer().sync().unwrap();
    copy
}

/// The next id, and what a client is told as the incarnation.
fn given_out(bed: &mut Bed, name: &str) -> (InodeId, u64) {
    let told = bed.shard.session_open(A, b"").unwrap().incarnation;
    let given = (bed.file(ROOT, name), told);
    bed.turn();
    given
}

#[test]
fn nothing_is_given_out_again_where_an_older_store_is_put_back_whenever_and_how_often() {
    let mut bed = Bed::new();
    bed.now = TODAY;
    bed.restart();
    let backup = copy(&bed.kv);
    let mut before = given_out(&mut bed, "new");
    // As it is, and by who says that it may lack something.
    for doubted in [false, false, true, true] {
        bed.kv = copy(&backup);
        if doubted {
            bed.kv.doubt();
        }
        bed.now += 60 * SECOND;
        bed.restart();
        let after = given_out(&mut bed, "new");
        assert!(after.0 > before.0 && after.1 > before.1, "{before:?}, {after:?}");
        before = after;
    }
}

#[test]
fn a_clock_that_is_years_ahead_or_behind_uses_up_little() {
    let mut bed = Bed::new();
    let mut before = given_out(&mut bed, "first");
    let mut starts = |times: &[i64]| {
        for &now in times {
            bed.now = now;
            bed.restart();
            let name = format!("{:?}", before.0);
            let after = given_out(&mut bed, &name);
            assert!(after.0 > before.0 && after.1 > before.1, "{before:?}, {after:?}");
            before = after;
        }
        (before.0.counter(), before.1 >> 32)
    };
    // One that does not run without power, and is set right only after each start.
    let in_2021 = TODAY - 5 * 366 * 86_400 * SECOND;
    let (ids, incarnation) = starts(&[in_2021, TODAY].repeat(50));
    assert!(ids < 1 << 46 && incarnation < 1 << 23, "{ids:x}, {incarnation:x}");
    let wild = i64::MAX - 99;
    let (ids, incarnation) = starts(&[wild, 0, -TODAY, TODAY, wild, TODAY, wild]);
    assert!(ids < (3 << 46) + (1 << 30), "a quarter of 2^48 is left: {ids:x}");
    assert!(incarnation < (3 << 22) + 10, "a quarter of 2^24 is left: {incarnation:x}");
}

#[test]
fn who_was_answered_what_a_power_cut_may_have_taken_hears_of_it() {
    let mut bed = Bed::new();
    let first = bed.shard.session_open(B, b"").unwrap();
    assert!(first.kept_since <= first.incarnation);
    bed.turn();
    bed.restart();
    let killed = bed.shard.session_open(B, b"").unwrap();
    assert!(killed.kept_since <= first.incarnation, "the service alone was away");
    bed.turn();
    bed.kv.crash();
    bed.restart();
    let cut = bed.shard.session_open(B, b"").unwrap();
    assert!(killed.incarnation < cut.kept_since && cut.kept_since <= cut.incarnation, "{killed:?}, {cut:?}");
    bed.turn();
    bed.restart();
    let again = bed.shard.session_open(B, b"").unwrap();
    assert_eq!(again.kept_since, cut.kept_since, "who was away over both hears of it still");
    bed.turn();
}
