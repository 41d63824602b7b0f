//! Sessions that end: by themselves, by their silence, late, and not yet.

use kv::{Batch, Kv, KvError};
use namespace::error::Error;
use namespace::shard::{Config, Ticked};
use namespace::view::Telling;
use types::error::Errno;

use crate::common::{A, B, Bed, EXPIRY_MS, ROOT, full, held, refused};

#[test]
fn a_shard_that_stood_still_blames_nobody() {
    let mut bed = Bed::new();
    bed.shard.session_open(B, b"").unwrap();
    bed.turn();
    bed.wait_ms(EXPIRY_MS / 2);
    // What both have sent since is yet to be read.
    bed.wait_ms(EXPIRY_MS);
    bed.shard.stood_still(EXPIRY_MS);
    assert_eq!(bed.tick().expired, []);
    assert!(bed.shard.touch(A));
    bed.wait_ms(EXPIRY_MS / 2);
    assert_eq!(bed.tick().expired, [B], "half of the time had passed before");
}

#[test]
fn a_shard_that_stood_still_in_the_grace_waits_as_long_for_those_who_come_back() {
    let mut bed = Bed::new();
    bed.shard.session_open(B, b"").unwrap();
    bed.turn();
    bed.restart();
    bed.shard.session_tell(A, b"", &Telling::whole(&[], &[])).unwrap();
    bed.wait_ms(EXPIRY_MS + 1000);
    bed.shard.stood_still(EXPIRY_MS);
    let ticked = bed.shard.tick();
    assert!(!ticked.grace_ended && ticked.to_fence.is_empty() && ticked.expired.is_empty(), "{ticked:?}");
    assert!(bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap().opened.keeps_intents);
    assert!(bed.tick().grace_ended);
    bed.turn();
}

#[test]
fn a_shorter_expiry_ends_no_session_that_was_told_a_longer_one() {
    let mut bed = Bed::new();
    for expiry_ms in [EXPIRY_MS / 5, EXPIRY_MS / 10] {
        bed.config.session_expiry_ms = expiry_ms;
        bed.restart();
        bed.shard.session_tell(A, b"", &Telling::whole(&[], &[])).unwrap();
        bed.wait_ms(EXPIRY_MS - 1);
        assert!(bed.shard.touch(A));
        let ticked = bed.shard.tick();
        assert_eq!(ticked, Ticked::default(), "B, which is cut off, still counts on what it has locked");
    }
    bed.wait_ms(1);
    let ticked = bed.tick();
    assert_eq!((&ticked.expired[..], ticked.grace_ended), (&[B][..], true));
    bed.turn();
    // Who comes now is told of the new one.
    bed.shard.session_open(B, b"").unwrap();
    bed.wait_ms(EXPIRY_MS / 10);
    assert_eq!(bed.tick().expired, [A, B]);
    bed.turn();
}

/// A mount that was aborted leaves at once, and what it had sent may come out of its host's sockets later.
#[test]
fn a_session_that_may_still_write_is_fenced_before_its_close_ends_it() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    bed.shard.session_open(B, b"").unwrap();
    bed.shard.open_inode(B, f, false).unwrap();
    bed.write_intent(B, f).unwrap();
    bed.turn();
    bed.shard.session_close(B).unwrap();
    bed.turn();
    assert!(bed.shard.knows(B) && bed.shard.touch(B), "what comes behind changes nothing about it");
    let ticked = bed.shard.tick();
    assert_eq!((&ticked.to_fence[..], &ticked.expired[..]), (&[B][..], &[][..]));
    assert_eq!(bed.shard.session_fenced(B), Ok(true));
    bed.turn();
    assert!(!bed.shard.knows(B));
}

#[test]
fn a_session_whose_end_cannot_be_written_goes_on_and_is_told_of_changes() {
    let mut bed = Bed::with(Config { lease_term_ms: 3_000, ..crate::common::config() });
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.shard.session_open(B, b"").unwrap();
    bed.shard.listen(B, true);
    bed.turn();
    bed.wait_ms(EXPIRY_MS);
    assert!(bed.shard.touch(A));
    assert_eq!(bed.tick().expired, [B]);
    bed.kv.fail_commit(1, KvError::NoSpace("full".into()));
    bed.shard.commit().unwrap_err();
    assert!(bed.shard.touch(B));
    let view = bed.shard.getattr(B, f).unwrap();
    assert!(view.lease_ms > 0, "it still listens");
    bed.turn();
}

#[test]
fn a_silent_session_expires() {
    let mut bed = Bed::new();
    let first = bed.shard.session_open(B, b"").unwrap();
    let f = bed.file(ROOT, "f");
    bed.shard.open_inode(B, f, false).unwrap();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    bed.wait_ms(EXPIRY_MS / 2);
    assert!(bed.shard.touch(A));
    assert_eq!(bed.tick().expired, []);
    bed.wait_ms(EXPIRY_MS / 2);
    assert_eq!(bed.tick().expired, [B]);
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
    assert!(!bed.shard.touch(B) && bed.shard.touch(A));
    let again = bed.shard.session_tell(B, b"", &Telling::whole(&[held(f, true)], &[])).unwrap().opened;
    assert!(again.incarnation > first.incarnation, "it must say what it holds");
    assert_eq!(bed.shard.session_open(B, b"").unwrap(), again);
    bed.turn();
}

#[test]
fn a_silent_session_that_may_write_ends_when_its_writes_are_over() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    bed.shard.open_inode(B, f, false).unwrap();
    bed.write_intent(B, f).unwrap();
    bed.turn();
    let silent = |bed: &mut Bed| {
        bed.wait_ms(EXPIRY_MS);
        bed.shard.touch(A);
        bed.shard.tick()
    };
    let asked = Ticked { to_fence: vec![B], ..Ticked::default() };
    assert_eq!(silent(&mut bed), asked);
    assert_eq!(bed.shard.tick(), Ticked::default(), "once is enough");
    assert!(bed.stat(f).unwrap().unsettled && bed.stat(f).unwrap().lease_ms == 0);
    // It comes back meanwhile: nothing is lost.
    assert!(bed.shard.touch(B));
    assert!(!bed.shard.session_fenced(B).unwrap());
    assert!(bed.settle(B, f, 5, None, false).settled);
    bed.write_intent(B, f).unwrap();
    bed.turn();

    assert_eq!(silent(&mut bed), asked);
    assert!(bed.shard.session_fenced(B).unwrap());
    bed.turn();
    assert!(!bed.shard.touch(B));
    let told = bed.shard.session_tell(B, b"", &Telling::whole(&[held(f, true)], &[])).unwrap().opened;
    assert!(!told.keeps_intents, "others may have been told that nobody writes");
    bed.turn();
    // So it has none, and nothing is to be ended when it is silent again.
    assert_eq!(silent(&mut bed), Ticked { expired: vec![B], ..Ticked::default() });
    bed.turn();
}

#[test]
fn after_a_restart_nobody_s_intents_end_before_their_writes_are_over() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    bed.shard.open_inode(B, f, false).unwrap();
    bed.write_intent(B, f).unwrap();
    bed.turn();
    bed.restart();
    assert!(bed.shard.session_tell(A, b"", &Telling::whole(&[], &[])).unwrap().opened.keeps_intents);
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(A);
    assert_eq!(bed.shard.tick(), Ticked { to_fence: vec![B], ..Ticked::default() }, "it may have told of one yet");
    assert!(!bed.shard.tick().grace_ended);
    assert!(bed.shard.session_fenced(B).unwrap());
    assert!(bed.shard.tick().grace_ended);
    bed.turn();

    // One that is back, but has not said by the end of the grace what it holds, is too late with it.
    bed.shard.session_open(B, b"").unwrap();
    bed.turn();
    bed.restart();
    bed.shard.session_tell(A, b"", &Telling::whole(&[], &[])).unwrap();
    assert!(bed.shard.session_open(B, b"").unwrap().keeps_intents);
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(A);
    bed.shard.touch(B);
    let late = Ticked { to_fence: vec![B], ..Ticked::default() };
    assert_eq!(bed.shard.tick(), late, "what it has sent to objects comes before others hear that nobody writes");
    assert!(!bed.shard.tick().grace_ended);
    assert!(!bed.shard.session_fenced(B).unwrap(), "it lives");
    assert_eq!(bed.shard.tick(), Ticked { grace_ended: true, ..Ticked::default() });
    assert!(!bed.shard.session_tell(B, b"", &Telling::whole(&[held(f, true)], &[])).unwrap().opened.keeps_intents);
    bed.turn();
}

/// It keeps no session from its end, nor what else is due from being done.
#[test]
fn what_cannot_be_read_is_in_nobody_else_s_way() {
    let mut bed = Bed::in_objects();
    let (f, g) = (bed.file(ROOT, "f"), bed.file(ROOT, "g"));
    bed.shard.open_inode(A, f, false).unwrap();
    bed.write_intent(A, f).unwrap();
    bed.shard.open_inode(B, g, false).unwrap();
    bed.turn();
    bed.unlink(ROOT, "g").unwrap();
    bed.turn();
    bed.restart();
    bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, true)], &[])).unwrap();
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    bed.shard.commit().unwrap();
    let mut key = Vec::new();
    namespace::schema::inode::ser_key(&mut key, g);
    let mut batch = bed.kv.batch();
    batch.put(&key, b"nonsense");
    bed.kv.commit(&mut batch).unwrap();
    bed.wait_ms(EXPIRY_MS);
    let ticked = bed.shard.tick();
    assert_eq!((&ticked.to_fence[..], ticked.grace_ended), (&[A][..], true));
    assert!(matches!(ticked.failed[..], [Error::Damaged(_)]), "{:?}", ticked.failed);
    assert!(bed.shard.session_fenced(A).unwrap());
    bed.shard.commit().unwrap();
    assert!(!bed.shard.knows(A) && !bed.shard.knows(B));
}

#[test]
fn an_end_that_was_not_committed_leaves_a_session_as_it_was() {
    let mut bed = Bed::new();
    bed.restart();
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    bed.shard.session_open(A, b"").unwrap();
    bed.turn();
    bed.kv.fail_commit(1, full());
    bed.shard.session_close(A).unwrap();
    bed.shard.commit().unwrap_err();
    assert!(bed.shard.touch(A));
    assert!(!bed.tick().grace_ended, "it has yet to tell what it has open");
}

#[test]
fn grace_ends_again_after_a_failed_commit() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(A);
    bed.kv.fail_commit(1, full());
    assert!(bed.tick().grace_ended);
    bed.shard.commit().unwrap_err();
    assert!(bed.stat(f).is_ok());
    assert_eq!(bed.tick().expired, [B]);
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
}
