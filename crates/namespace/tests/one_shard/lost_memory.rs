//! What a power cut has taken from a store, and what may not come again after it.

use types::error::Errno;

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
