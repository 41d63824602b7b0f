//! What sessions tell a shard after its restart that they held.

mod common;

use common::{A, B, Bed, EXPIRY_MS, ROOT, full, held, name, refused};
use kv::{Batch, Kv};
use namespace::view::Telling;
use types::error::Errno;

#[test]
fn a_restart_keeps_what_sessions_reclaim() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    let g = bed.file(ROOT, "g");
    bed.shard.open_inode(A, f, false).unwrap();
    bed.shard.open_inode(B, g, false).unwrap();
    bed.turn();
    bed.restart();
    let first = bed.shard.session_open(A, b"").unwrap();
    assert!(!bed.tick().grace_ended);
    // Nobody has said that it holds f or g: the grace keeps both.
    bed.unlink(ROOT, "f").unwrap();
    bed.unlink(ROOT, "g").unwrap();
    bed.turn();
    assert_eq!(
        bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, false)], &[])).unwrap().opened,
        first,
        "the same incarnation"
    );
    bed.shard.session_tell(B, b"", &Telling::whole(&[held(f, false)], &[])).unwrap();
    assert!(bed.tick().grace_ended);
    bed.turn();
    assert_eq!(refused(bed.stat(g)), Errno::ESTALE, "nobody reclaimed it");
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert!(bed.stat(f).is_ok());
    bed.restart();
    assert!(bed.shard.session_open(A, b"").unwrap().incarnation > first.incarnation);
    assert!(bed.stat(f).is_ok(), "the orphan record of the other session holds it");
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(A);
    assert_eq!(bed.tick().expired, [B]);
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
}

#[test]
fn what_is_told_in_a_turn_that_fails_is_not_told() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.restart();
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    bed.shard.session_open(A, b"").unwrap();
    bed.turn();
    bed.kv.fail_commit(1, full());
    let unlink = bed.next(B);
    bed.shard.unlink(unlink, ROOT, &name("f")).unwrap();
    bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, false)], &[])).unwrap();
    bed.shard.commit().unwrap_err();
    assert!(!bed.tick().grace_ended, "it has yet to tell what it has open");
    bed.shard.unlink(unlink, ROOT, &name("f")).unwrap();
    bed.turn();
    bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, false)], &[])).unwrap();
    assert!(bed.tick().grace_ended);
    bed.turn();
    assert!(bed.stat(f).is_ok());
}

#[test]
fn a_telling_that_comes_late_opens_nothing_again() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.restart();
    for session in [A, B] {
        bed.shard.session_tell(session, b"", &Telling::whole(&[held(f, false)], &[])).unwrap();
        bed.shard.close_inode(session, f, None).unwrap();
    }
    assert!(bed.tick().grace_ended);
    bed.turn();
    bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, false)], &[])).unwrap();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
}

#[test]
fn what_is_told_in_pieces_is_told_with_the_last() {
    let mut bed = Bed::new();
    let (f, g) = (bed.file(ROOT, "f"), bed.file(ROOT, "g"));
    bed.turn();
    bed.restart();
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    let incarnation = bed.shard.session_open(A, b"").unwrap().incarnation;
    let opens = [held(f, false), held(g, false)];
    let piece = |n: usize| Telling { opens: &opens[n..=n], locks: &[], more: n == 0, incarnation };
    let late = Telling { incarnation: incarnation - 1, ..piece(0) };
    assert_eq!(refused(bed.shard.session_tell(A, b"", &late)), Errno::ENOTCONN, "others were told before");
    bed.shard.session_tell(A, b"", &piece(0)).unwrap();
    assert!(!bed.tick().grace_ended);
    bed.unlink(ROOT, "f").unwrap();
    bed.unlink(ROOT, "g").unwrap();
    bed.turn();
    bed.shard.session_tell(A, b"", &piece(1)).unwrap();
    assert!(bed.tick().grace_ended);
    bed.turn();
    assert!(bed.stat(f).is_ok() && bed.stat(g).is_ok());
}

#[test]
fn what_cannot_be_read_shuts_nobody_out_who_has_it_open() {
    let mut bed = Bed::new();
    let (f, g) = (bed.file(ROOT, "f"), bed.file(ROOT, "g"));
    bed.turn();
    bed.restart();
    let key = [&b"I"[..], &f.0.to_be_bytes()].concat();
    let mut batch = bed.kv.batch();
    batch.put(&key, b"nonsense");
    bed.kv.commit(&mut batch).unwrap();
    let told = bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, false), held(g, false)], &[])).unwrap();
    assert_eq!((told.damaged.len(), &*told.damaged[0].key), (1, &key[..]));
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    assert!(bed.tick().grace_ended);
    bed.unlink(ROOT, "g").unwrap();
    bed.shard.commit().unwrap();
    assert!(bed.stat(g).is_ok(), "it holds the other one");
}
