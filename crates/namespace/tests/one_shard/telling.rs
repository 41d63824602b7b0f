//! What sessions tell a shard after its restart that they held.

use kv::{Batch, Kv};
use namespace::error::Error;
use namespace::shard::Ticked;
use namespace::view::Telling;
use types::attr::FileType;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::time::Timestamp;

use crate::common::{A, B, Bed, EXPIRY_MS, ROOT, full, held, name, refused};

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
    assert!(matches!(&told.unreadable[..], [Error::Damaged(damage)] if *damage.key == key));
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    assert!(bed.tick().grace_ended);
    bed.unlink(ROOT, "g").unwrap();
    bed.shard.commit().unwrap();
    assert!(bed.stat(g).is_ok(), "it holds the other one");
}

/// Makes so many files, which lose their names again by `unlink`.
fn make(bed: &mut Bed, count: usize, open: bool) -> Vec<InodeId> {
    let mut made = Vec::new();
    for n in 0..count {
        made.push(bed.make(ROOT, &n.to_string(), FileType::Regular, open, true).expect("made").attr.inode);
        if n % 1000 == 0 {
            bed.shard.commit().expect("commits");
        }
    }
    bed.shard.commit().expect("commits");
    made
}

fn unlink(bed: &mut Bed, count: usize) {
    for n in 0..count {
        bed.unlink(ROOT, &n.to_string()).expect("unlinked");
        if n % 1000 == 0 {
            bed.shard.commit().expect("commits");
        }
    }
    bed.shard.commit().expect("commits");
}

/// Goes on until nothing is left of what ends. The greatest number of records that went with one commit.
fn end_all(bed: &mut Bed) -> usize {
    let mut most = 0;
    while bed.shard.is_ending() {
        let before = bed.kv.len();
        assert_eq!(bed.shard.go_on_ending(), []);
        bed.shard.commit().expect("commits");
        most = most.max(before.saturating_sub(bed.kv.len()));
    }
    most
}

#[test]
fn what_lost_its_name_after_a_restart_goes_in_pieces() {
    let mut bed = Bed::in_objects();
    make(&mut bed, 50_000, false);
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    unlink(&mut bed, 50_000);
    let before = bed.kv.len();
    bed.shard.session_tell(A, b"", &Telling::whole(&[], &[])).unwrap();
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    assert!(bed.tick().grace_ended && bed.shard.is_ending());
    bed.shard.commit().unwrap();
    let first = before - bed.kv.len();
    assert!((500..5000).contains(&first), "{first} records went with the first turn");
    bed.kv.fail_commit(1, full());
    bed.shard.go_on_ending();
    bed.shard.commit().unwrap_err();
    assert_eq!(bed.tick(), Ticked::default());
    let most = end_all(&mut bed);
    assert!((500..5000).contains(&most), "{most} records went with one turn");
    assert_eq!((bed.shard.inode_count(), bed.shard.held_count()), (1, 0));
    bed.turn();
}

#[test]
fn a_session_that_holds_much_ends_in_pieces() {
    let mut bed = Bed::in_objects();
    let files = make(&mut bed, 5000, true);
    let [shared, named] = [files[0], bed.file(ROOT, "named")];
    bed.write_intent(A, shared).unwrap();
    bed.write_intent(A, named).unwrap();
    bed.shard.open_inode(B, shared, false).unwrap();
    unlink(&mut bed, 5000);
    bed.turn();
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(B);
    assert_eq!(bed.tick().expired, [A]);
    assert!(bed.shard.is_ending());
    bed.turn();
    assert!(!bed.shard.touch(A) && bed.shard.knows(A));
    assert_eq!(refused(bed.shard.session_open(A, b"")), Errno::EBUSY, "not yet");
    bed.shard.session_close(A).unwrap();
    bed.turn();
    let is_written = |bed: &mut Bed, file| bed.shard.getattr(B, file).unwrap().unsettled;
    let left = bed.shard.held_count();
    assert!(bed.shard.go_on_ending().is_empty() && is_written(&mut bed, named) && is_written(&mut bed, shared));
    bed.turn();
    assert!(left - bed.shard.held_count() < 2000);

    // The session is there again after a restart, with what it has left.
    bed.restart();
    bed.shard.session_tell(B, b"", &Telling::whole(&[held(shared, false)], &[])).unwrap();
    let opens = [held(shared, true), held(named, true), held(files[1], false), held(files[4999], false)];
    let told = bed.shard.session_tell(A, b"", &Telling::whole(&opens, &[])).unwrap();
    assert!(told.opened.keeps_intents && told.unreadable.is_empty());
    assert!(bed.tick().grace_ended);
    bed.turn();
    assert!(bed.stat(files[1]).is_err() && bed.stat(files[4999]).is_ok());
    bed.shard.session_close(A).unwrap();
    bed.tick();
    let most = end_all(&mut bed);
    assert!((500..5000).contains(&most), "{most} records went with one turn");
    bed.turn();
    assert!(!bed.shard.knows(A) && bed.shard.getattr(B, shared).is_ok());
    bed.shard.close_inode(B, shared, None).unwrap();
    bed.turn();
    assert_eq!((bed.shard.inode_count(), bed.shard.held_count()), (2, 0));
}

/// Its end does not wait for that, and it leaves no other way to end.
#[test]
fn what_cannot_be_read_keeps_no_session() {
    // One that ends at once, and one in pieces.
    [20, 2000].into_iter().for_each(ends_without_what_cannot_be_read);
}

fn ends_without_what_cannot_be_read(count: usize) {
    let mut bed = Bed::in_objects();
    let files = make(&mut bed, count, true);
    unlink(&mut bed, count);
    bed.restart();
    bed.shard.session_open(A, b"").expect("back");
    let mut key = Vec::new();
    namespace::schema::inode::ser_key(&mut key, files[10]);
    let mut batch = bed.kv.batch();
    batch.put(&key, b"nonsense");
    bed.kv.commit(&mut batch).expect("written");
    bed.shard.session_close(A).expect("closed");
    let told = bed.shard.go_on_ending();
    assert_eq!(matches!(told[..], [Error::Damaged(_)]), count > 1024);
    bed.shard.commit().expect("commits");
    end_all(&mut bed);
    assert!(!bed.shard.knows(A));
    assert!(matches!(bed.tick().failed[..], [] | [Error::Damaged(_)]), "it is tried again, and told");
    assert_eq!((bed.shard.inode_count(), bed.shard.held_count()), (2, 1));
}

/// A mount that is to read what there is, while the disk is full.
#[test]
fn who_comes_while_the_store_takes_nothing_is_written_when_it_does() {
    const C: SessionId = SessionId(3);
    let mut bed = Bed::new();
    let [f, g] = ["f", "g"].map(|text| bed.file(ROOT, text));
    bed.shard.open_inode(B, g, false).unwrap();
    bed.unlink(ROOT, "g").unwrap();
    bed.turn();
    bed.kv.fail_commits(full());
    bed.shard.set_takes_changes(false);
    bed.shard.begin_turn(Timestamp(bed.now), bed.mono_ms);
    let opened = bed.shard.session_open(C, b"c").unwrap();
    bed.shard.open_inode(C, f, false).unwrap();
    bed.turn();
    assert!(bed.shard.touch(C));
    assert_eq!(bed.shard.session_tell(C, b"c", &Telling::whole(&[held(f, false)], &[])).unwrap().opened, opened);
    assert_eq!(refused(bed.shard.close_inode(B, g, None)), Errno::EIO, "it is to be told again");
    bed.shard.close_inode(C, f, None).unwrap();
    bed.turn();
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(A);
    bed.shard.touch(C);
    assert_eq!(bed.shard.tick(), Ticked::default(), "an end is a change");
    bed.turn();

    bed.shard.set_takes_changes(true);
    bed.shard.begin_turn(Timestamp(bed.now), bed.mono_ms);
    bed.shard.commit().unwrap_err();
    bed.kv.heal();
    bed.shard.begin_turn(Timestamp(bed.now), bed.mono_ms);
    assert_eq!(bed.shard.tick().expired, [B]);
    bed.turn();
    assert_eq!(refused(bed.stat(g)), Errno::ESTALE);
    assert!(bed.shard.is_clean() && bed.shard.touch(C));
    bed.restart();
    assert!(bed.shard.knows(C) && !bed.shard.knows(B));
}
