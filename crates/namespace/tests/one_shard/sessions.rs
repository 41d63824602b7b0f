//! What sessions hold, and what they are told twice.

use namespace::error::Error;
use namespace::shard::{Config, Limits};
use namespace::view::{Create, Exactly, Settle, Settled, Telling};
use types::attr::{FileType, SetAttr};
use types::cred::Conditions;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::name::Name;
use types::time::Timestamp;

use crate::common::{A, B, Bed, CRED, EXPIRY_MS, ROOT, creation, full, held, name, refused};

#[test]
fn a_repeated_change_happens_once() {
    let mut bed = Bed::new();
    let exactly = bed.next(A);
    let first = bed.shard.mkdir(exactly, ROOT, &name("d"), 0o755, CRED).unwrap();
    let again = bed.shard.mkdir(exactly, ROOT, &name("d"), 0o755, CRED).unwrap();
    assert_eq!(first, again, "in the same turn");
    bed.turn();
    assert_eq!(bed.shard.mkdir(exactly, ROOT, &name("d"), 0o755, CRED).unwrap(), first);
    bed.restart();
    assert_eq!(refused(bed.shard.mkdir(exactly, ROOT, &name("d"), 0o755, CRED)), Errno::ENOTCONN);
    bed.shard.session_open(A, b"").unwrap();
    assert_eq!(bed.shard.mkdir(exactly, ROOT, &name("d"), 0o755, CRED).unwrap().attr, first.attr);
    let other = Exactly { session: B, ..exactly };
    bed.shard.session_open(B, b"").unwrap();
    assert_eq!(refused(bed.shard.mkdir(other, ROOT, &name("d"), 0o755, CRED)), Errno::EEXIST, "another session's");
    assert_eq!(refused(bed.shard.unlink(exactly, ROOT, &name("d"))), Errno::EPROTO, "another change");
    let exactly = bed.next(A);
    bed.shard.rmdir(exactly, ROOT, &name("d")).unwrap();
    bed.turn();
    bed.shard.rmdir(exactly, ROOT, &name("d")).unwrap();
    bed.turn();
}

#[test]
fn a_refused_change_is_tried_again() {
    let mut bed = Bed::new();
    let exactly = bed.next(A);
    assert_eq!(refused(bed.shard.rmdir(exactly, ROOT, &name("d"))), Errno::ENOENT);
    let made = Exactly { session: B, sequence: 1, answered_below: 1, given: Conditions::default() };
    bed.shard.mkdir(made, ROOT, &name("d"), 0o755, CRED).unwrap();
    bed.shard.rmdir(exactly, ROOT, &name("d")).unwrap();
    bed.turn();
}

#[test]
fn a_repeated_create_opens_again_after_a_restart() {
    let mut bed = Bed::new();
    let exactly = bed.next(A);
    let text = name("f");
    let create = creation(&text);
    let f = bed.shard.create(exactly, &create).unwrap().attr.inode;
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    bed.shard.session_open(B, b"").unwrap();
    let unlink = bed.next(B);
    bed.shard.unlink(unlink, ROOT, &name("f")).unwrap();
    let view = bed.shard.create(exactly, &create).unwrap();
    assert_eq!((view.attr.inode, view.attr.nlink), (f, 0));
    bed.wait_ms(EXPIRY_MS);
    bed.shard.touch(A);
    bed.shard.touch(B);
    assert!(bed.tick().grace_ended);
    bed.turn();
    assert!(bed.stat(f).is_ok(), "the session holds it");
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
}

#[test]
fn stored_answers_are_bounded() {
    let limits = Limits { replies_per_session: 3, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..crate::common::config() });
    let exactly =
        |sequence, answered_below| Exactly { session: A, sequence, answered_below, given: Conditions::default() };
    for sequence in 1..=3 {
        bed.shard.mkdir(exactly(sequence, 1), ROOT, &name(&sequence.to_string()), 0, CRED).unwrap();
    }
    let mkdir = |bed: &mut Bed, sequence: u64| {
        bed.shard.mkdir(exactly(sequence, 1), ROOT, &name(&sequence.to_string()), 0, CRED)
    };
    assert_eq!(mkdir(&mut bed, 4).err(), Some(Error::Again));
    bed.shard.answered(A, 4, vec![1, 2]).unwrap();
    mkdir(&mut bed, 4).unwrap();
    assert_eq!(mkdir(&mut bed, 5).err(), Some(Error::Again));
    mkdir(&mut bed, 1).unwrap();
    assert_eq!(refused(mkdir(&mut bed, 3)), Errno::EPROTO);
    assert_eq!(refused(bed.shard.answered(SessionId(99), 4, vec![])), Errno::ENOTCONN);
    assert_eq!(refused(bed.shard.mkdir(exactly(0, 0), ROOT, &name("5"), 0, CRED)), Errno::EPROTO);
    bed.turn();
}

#[test]
fn slots_do_not_grow_without_end() {
    let mut bed = Bed::new();
    for n in 0..100 {
        bed.file(ROOT, &n.to_string());
        bed.turn();
    }
    for n in 0..100 {
        bed.unlink(ROOT, &n.to_string()).unwrap();
        bed.turn();
    }
    assert!(bed.kv.len() < 12, "{} records left", bed.kv.len());
}

#[test]
fn what_is_open_stays_after_its_last_unlink() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    let d = bed.dir(ROOT, "d");
    bed.shard.open_inode(A, f, false).unwrap();
    bed.shard.open_inode(B, f, false).unwrap();
    bed.shard.open_inode(B, f, false).unwrap();
    bed.shard.open_inode(A, d, false).unwrap();
    bed.write_intent(A, f).unwrap();
    bed.turn();
    bed.unlink(ROOT, "f").unwrap();
    bed.rmdir(ROOT, "d").unwrap();
    bed.turn();
    assert_eq!(bed.stat(f).unwrap().attr.nlink, 0);
    assert_eq!(refused(bed.create(d, "late")), Errno::ENOENT);
    assert_eq!(refused(bed.mkdir(d, "late")), Errno::ENOENT);
    assert_eq!(refused(bed.rename((ROOT, "x"), (d, "late"), 0)), Errno::ENOENT);
    assert_eq!(refused(bed.link(f, ROOT, "again")), Errno::ENOENT);
    assert!(bed.shard.readdir(A, d, 0, 10, true).unwrap().entries.is_empty());
    bed.shard.close_inode(A, f, None).unwrap();
    bed.shard.close_inode(A, d, None).unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(d)), Errno::ESTALE);
    assert!(bed.shard.deletions(None, 9).unwrap().deletions.is_empty());
    bed.shard.close_inode(B, f, None).unwrap();
    bed.shard.close_inode(B, f, None).unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
    assert_eq!(bed.shard.deletions(None, 9).unwrap().deletions.len(), 4);
}

#[test]
fn a_replaced_file_that_is_open_stays() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.file(ROOT, "g");
    bed.shard.open_inode(B, f, false).unwrap();
    bed.rename((ROOT, "g"), (ROOT, "f"), 0).unwrap();
    bed.turn();
    assert_eq!(bed.stat(f).unwrap().attr.nlink, 0);
    bed.shard.session_close(B).unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
    assert_eq!(refused(bed.shard.open_inode(B, ROOT, false)), Errno::ENOTCONN);
    bed.shard.session_close(B).unwrap();
}

#[test]
fn sessions_and_opens_are_bounded() {
    let limits = Limits { sessions: 2, opens_per_session: 2, ..Limits::default() };
    let mut bed = Bed::with(Config { limits, ..crate::common::config() });
    assert_eq!(refused(bed.shard.session_open(SessionId(3), b"")), Errno::EBUSY);
    assert_eq!(refused(bed.shard.session_open(SessionId(0), b"")), Errno::EINVAL);
    let f = bed.file(ROOT, "f");
    bed.shard.open_inode(A, f, false).unwrap();
    bed.make(ROOT, "g", FileType::Regular, true, true).unwrap();
    assert_eq!(refused(bed.shard.open_inode(A, ROOT, false)), Errno::EBUSY);
    assert_eq!(refused(bed.make(ROOT, "h", FileType::Regular, true, true)), Errno::EBUSY);
    assert_eq!(refused(bed.lookup(ROOT, "h")), Errno::ENOENT);
    bed.shard.open_inode(A, f, false).unwrap();
    bed.write_intent(A, f).unwrap();
    bed.turn();
}

#[test]
fn one_writer_is_exclusive_and_settles() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.shard.open_inode(A, f, false).unwrap();
    bed.turn();
    let view = bed.write_intent(A, f).unwrap();
    assert!(view.exclusive && view.unsettled && view.has_objects && view.layout.is_some());
    assert!(!bed.shard.getattr(B, f).unwrap().exclusive);
    bed.turn();
    assert!(bed.settle(A, f, 1000, None, false).settled);
    let view = bed.stat(f).unwrap();
    assert_eq!((view.attr.size, view.attr.blocks, view.attr.mtime), (1000, 2, Timestamp(500)));
    assert!(view.unsettled, "it may write on");
    bed.turn();
    assert!(bed.settle(A, f, 2000, None, true).settled);
    let view = bed.stat(f).unwrap();
    assert!(!view.unsettled && !view.exclusive && view.has_objects && view.layout.is_none());
    assert_eq!((view.attr.size, view.attr.ctime), (2000, Timestamp(500)));
    bed.turn();
}

#[test]
fn of_two_writers_the_last_one_gathers() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    assert!(bed.write_intent(A, f).unwrap().exclusive);
    let view = bed.write_intent(B, f).unwrap();
    assert!(!view.exclusive && view.unsettled);
    assert!(!bed.stat(f).unwrap().exclusive);
    let answer = bed.settle(A, f, 10, None, true);
    assert!(!answer.settled);
    assert!(!bed.settle(A, f, 10, Some(answer.intents), false).settled, "another may be writing");
    assert!(!bed.settle(B, f, 20, None, false).settled, "it is not alone since its intent");
    let intents = bed.shard.getattr(B, f).unwrap().intents;
    assert!(!bed.settle(B, f, 20, Some(view.intents), false).settled, "asked before another ended its intent");
    assert!(bed.settle(B, f, 20, Some(intents), true).settled);
    let view = bed.stat(f).unwrap();
    assert!(!view.unsettled && view.attr.size == 20);
    bed.turn();
}

/// Its objects would bring back what was cut off here alone.
#[test]
fn a_size_is_set_under_an_intent_where_there_are_objects() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    bed.set(f, size(0)).expect("there are no objects");
    bed.turn();
    bed.write_intent(B, f).expect("given");
    assert_eq!(refused(bed.set(f, size(0))), Errno::EOPNOTSUPP, "another one writes it");
    assert!(bed.settle(B, f, 5, None, true).settled);
    bed.turn();
    assert_eq!(refused(bed.set(f, size(0))), Errno::EOPNOTSUPP, "another one has written it");
    assert_eq!(bed.stat(f).unwrap().attr.size, 5);
    bed.write_intent(A, f).expect("given");
    assert_eq!(bed.set(f, size(0)).expect("set").attr.size, 0);
    bed.turn();
    // Who was away so long that its session has ended has lost its intent.
    bed.shard.session_close(A).expect("ends");
    bed.tick();
    bed.turn();
    bed.shard.session_open(A, b"a").expect("anew");
    assert_eq!(refused(bed.set(f, size(3))), Errno::EOPNOTSUPP);
    bed.set(f, SetAttr { mode: Some(0o600), ..SetAttr::default() }).expect("of a mode nothing is asked");
    bed.turn();
}

#[test]
fn a_truncate_is_told_until_it_ends() {
    type End = fn(&mut Bed, InodeId);
    let ends: [(&str, End); 5] = [
        ("the size", |bed, f| drop(bed.set(f, SetAttr { size: Some(3), ..SetAttr::default() }).unwrap())),
        ("given up", |bed, f| drop(bed.write_intent(A, f).unwrap())),
        ("the end of the intent", |bed, f| {
            bed.settle(A, f, 0, None, true);
        }),
        ("silence", |bed, _| bed.shard.listen(A, false)),
        ("the end of the session", |bed, _| {
            bed.shard.session_close(A).unwrap();
            bed.tick();
        }),
    ];
    for (what, end) in ends {
        let mut bed = Bed::new();
        let f = bed.file(ROOT, "f");
        bed.shard.open_inode(B, f, false).unwrap();
        let intended = bed.write_intent(A, f).unwrap();
        bed.turn();
        let look = |bed: &mut Bed| bed.shard.getattr(B, f).map(|view| (view.cutting, view.cuts)).unwrap();
        let before = look(&mut bed);
        assert_eq!(before, (false, intended.cuts));
        let exactly = bed.next(A);
        bed.shard.write_intent(exactly, f, true).unwrap();
        bed.turn();
        let (cutting, cuts) = look(&mut bed);
        bed.shard.write_intent(exactly, f, true).expect("sent again");
        assert_eq!(look(&mut bed), (cutting, cuts), "{what}");
        assert!(cutting && cuts != before.1, "{what}");
        assert!(bed.shard.getattr(B, f).unwrap().intents > intended.intents, "sizes asked before are refused");
        end(&mut bed, f);
        bed.turn();
        let after = look(&mut bed);
        assert!(!after.0 && after.1 != before.1, "{what}");
        bed.turn();
    }
}

#[test]
fn a_stale_gathering_is_refused() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.write_intent(B, f).unwrap();
    bed.turn();
    bed.shard.session_close(B).unwrap();
    bed.tick();
    bed.turn();
    let before = bed.stat(f).unwrap();
    assert!(before.unsettled);
    // Another session comes and goes between the asking and the settling.
    bed.shard.session_open(SessionId(3), b"").unwrap();
    bed.write_intent(SessionId(3), f).unwrap();
    bed.shard.close_inode(SessionId(3), f, None).unwrap();
    let answer = bed.settle(A, f, 30, Some(before.intents), true);
    assert!(!answer.settled);
    assert!(bed.settle(A, f, 40, Some(answer.intents), true).settled);
    let view = bed.stat(f).unwrap();
    assert!(!view.unsettled && view.attr.size == 40);
    // One more that asked then finds it settled, and changes nothing.
    assert!(bed.settle(A, f, 35, Some(answer.intents), true).settled);
    assert_eq!(bed.stat(f).unwrap().attr.size, 40);
    bed.turn();
}

#[test]
fn after_a_restart_nobody_is_exclusive_and_the_grace_leaves_files_unsettled() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.shard.open_inode(A, f, false).unwrap();
    let intent = bed.next(A);
    let old = bed.shard.write_intent(intent, f, false).unwrap();
    bed.turn();
    bed.restart();
    bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, true)], &[])).unwrap();
    let view = bed.shard.write_intent(intent, f, false).unwrap();
    assert!(!view.exclusive && view.unsettled && view.intents > old.intents);
    assert!(!bed.settle(A, f, 5, None, false).settled);
    assert!(!bed.settle(A, f, 5, Some(old.intents), false).settled);
    assert!(bed.settle(A, f, 6, Some(view.intents), true).settled);
    let view = bed.stat(f).unwrap();
    assert!(view.unsettled && view.attr.size == 6, "the other session may yet say that it writes");
    // Each of its threads may ask before one of them tells.
    bed.shard.session_open(B, b"").unwrap();
    bed.shard.session_open(B, b"").unwrap();
    assert!(!bed.tick().grace_ended);
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    assert!(bed.tick().grace_ended);
    assert!(bed.settle(A, f, 7, Some(view.intents), true).settled);
    let view = bed.stat(f).unwrap();
    assert!(!view.unsettled && view.attr.size == 7);
    bed.turn();
}

#[test]
fn write_intents_are_for_files() {
    let mut bed = Bed::new();
    let p = bed.make(ROOT, "p", FileType::Fifo, false, true).unwrap().attr.inode;
    assert_eq!(refused(bed.write_intent(A, ROOT)), Errno::EISDIR);
    assert_eq!(refused(bed.write_intent(A, p)), Errno::EINVAL);
    assert_eq!(refused(bed.write_intent(A, InodeId(0xffff))), Errno::ESTALE);
}

#[test]
fn a_failed_commit_takes_everything_back() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.shard.open_inode(A, f, false).unwrap();
    bed.turn();
    let before = bed.stat(ROOT).unwrap();
    bed.kv.fail_commit(1, full());
    let made = Exactly { answered_below: 1, ..bed.next(A) };
    bed.sequences[1] += 10;
    bed.shard.mkdir(made, ROOT, &name("d"), 0o755, CRED).unwrap();
    let unlink = Exactly { sequence: made.sequence + 1, ..made };
    bed.shard.unlink(unlink, ROOT, &name("f")).unwrap();
    bed.shard.close_inode(A, f, None).unwrap();
    bed.shard.session_close(B).unwrap();
    bed.shard.session_open(SessionId(3), b"").unwrap();
    let error = bed.shard.commit().unwrap_err();
    assert_eq!(namespace::error::store_errno(&error), Errno::ENOSPC);
    assert!(bed.shard.is_clean());
    bed.check();
    assert_eq!(bed.stat(ROOT).unwrap(), before);
    assert_eq!(bed.shard.inode_count(), 2);
    assert!(bed.shard.touch(B) && !bed.shard.touch(SessionId(3)));
    // The same identity, for it did not happen.
    bed.shard.rmdir(made, ROOT, &name("d")).unwrap_err();
    bed.shard.mkdir(made, ROOT, &name("e"), 0o755, CRED).unwrap();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(bed.stat(f).unwrap().attr.nlink, 0, "the close was taken back");
    bed.shard.close_inode(A, f, None).unwrap();
    bed.turn();
    assert_eq!(bed.names(ROOT), ["e"]);
}

#[test]
fn counts_survive_the_end_of_their_session() {
    let mut bed = Bed::new();
    for n in 0..5 {
        bed.file(ROOT, &n.to_string());
        bed.turn();
    }
    bed.shard.session_close(A).unwrap();
    bed.turn();
    bed.restart();
    assert_eq!(bed.shard.inode_count(), 6);
}

fn to_write(text: &Name) -> Create<'_> {
    Create {
        parent: ROOT,
        name: text,
        kind: FileType::Regular,
        mode: 0o600,
        rdev: 0,
        cred: CRED,
        open: true,
        write_intent: true,
        exclusive: true,
        draft: false,
    }
}

fn settle_and_close(inode: InodeId, size: u64, untouched: bool) -> Settle {
    let blocks = size.div_ceil(512);
    Settle { inode, size, blocks, mtime: None, gathered: None, release: true, close: true, untouched, read: None }
}

#[test]
fn making_gives_the_intent_and_settling_closes() {
    let mut bed = Bed::in_objects();
    let (text, exactly) = (name("f"), bed.next(A));
    let made = bed.shard.create(exactly, &to_write(&text)).unwrap();
    assert!(made.exclusive && made.unsettled && made.has_objects && made.layout.is_some());
    let f = made.attr.inode;
    bed.turn();
    let exactly = bed.next(A);
    assert!(bed.shard.settle(exactly, &settle_and_close(f, 1000, false), None).unwrap().settled);
    bed.turn();
    let after = bed.stat(f).unwrap();
    assert_eq!((after.attr.size, after.unsettled, after.has_objects), (1000, false, true));
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE, "it was closed, so its last name was all that held it");
}

#[test]
fn who_settles_while_others_intend_to_write_leaves_it_to_the_last_of_them() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    for session in [A, B] {
        bed.write_intent(session, f).unwrap();
    }
    let left = Settled { settled: false, intents: Settled::LEFT_TO_OTHERS };
    let epoch = bed.stat(f).unwrap().intents;
    assert_eq!(bed.settle(A, f, 0, Some(epoch), true), left);
    assert_eq!(
        bed.settle(A, f, 0, Some(Settled::LEFT_TO_OTHERS), true),
        left,
        "it is nothing to ask the objects under"
    );
    let refused = bed.settle(B, f, 0, Some(epoch), true);
    assert_eq!((refused.settled, refused.intents), (false, bed.stat(f).unwrap().intents), "it was the last one");
    assert!(!bed.settle(B, f, 0, Some(Settled::LEFT_TO_OTHERS), true).settled);
    assert!(bed.settle(B, f, 5, Some(refused.intents), true).settled);
    bed.turn();
}

/// Nobody holds the file when its last writer settles it with what the objects say.
#[test]
fn what_the_objects_said_is_taken_over_also_where_other_files_were_closed_meanwhile() {
    let mut bed = Bed::in_objects();
    let [f, g] = ["f", "g"].map(|text| bed.file(ROOT, text));
    bed.turn();
    for session in [A, B] {
        bed.write_intent(session, f).unwrap();
    }
    assert!(!bed.settle(B, f, 0, None, true).settled);
    let refused = bed.settle(A, f, 0, None, true);
    assert!(!refused.settled, "others wrote as well");
    bed.turn();
    let told = bed.stat(f).unwrap();
    assert_eq!(told.intents, refused.intents);
    bed.write_intent(B, g).unwrap();
    assert!(bed.settle(B, g, 5, None, true).settled);
    bed.turn();
    assert_eq!(bed.stat(f).unwrap().cuts, told.cuts, "nobody has cut it");
    assert!(bed.settle(A, f, 100, Some(refused.intents), true).settled);
    bed.turn();
    assert_eq!(bed.stat(f).unwrap().attr.size, 100);
}

#[test]
fn a_file_that_was_never_written_has_no_objects_to_remove() {
    let mut bed = Bed::in_objects();
    let (text, exactly) = (name("f"), bed.next(A));
    let f = bed.shard.create(exactly, &to_write(&text)).unwrap().attr.inode;
    let exactly = bed.next(A);
    assert!(bed.shard.settle(exactly, &settle_and_close(f, 0, true), None).unwrap().settled);
    bed.turn();
    assert!(!bed.stat(f).unwrap().has_objects);
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(bed.shard.deletions(None, 10).unwrap().deletions, []);
}

#[test]
fn a_repeated_create_to_write_holds_both_again_but_never_alone() {
    let mut bed = Bed::in_objects();
    let (text, exactly) = (name("f"), bed.next(A));
    let f = bed.shard.create(exactly, &to_write(&text)).unwrap().attr.inode;
    bed.turn();
    bed.restart();
    bed.shard.session_open(A, b"").unwrap();
    bed.shard.session_open(B, b"").unwrap();
    let again = bed.shard.create(exactly, &to_write(&text)).unwrap();
    assert_eq!(again.attr.inode, f);
    assert!(again.unsettled && !again.exclusive);
    bed.turn();
    let settled = bed.settle(A, f, 7, None, false);
    assert!(!settled.settled, "only the objects know now");
}

/// The answer was lost with the shard's process; its client tells of the file as long as it has none.
#[test]
fn a_repeated_close_closes_what_was_told_since() {
    let mut bed = Bed::in_objects();
    let (text, exactly) = (name("f"), bed.next(A));
    let f = bed.shard.create(exactly, &to_write(&text)).unwrap().attr.inode;
    bed.turn();
    let (exactly, settle) = (bed.next(A), settle_and_close(f, 1000, false));
    let settled = bed.shard.settle(exactly, &settle, None).unwrap();
    bed.turn();
    bed.restart();
    // Of another thread, the intent may have been told as well.
    bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, true)], &[])).unwrap();
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    assert_eq!(bed.shard.settle(exactly, &settle, None).unwrap(), settled);
    assert_eq!(bed.shard.held_count(), 0);
    assert_eq!(bed.shard.settle(exactly, &settle, None).unwrap(), settled);
    assert!(bed.tick().grace_ended);
    bed.turn();
    bed.unlink(ROOT, "f").unwrap();
    bed.turn();
    assert_eq!(refused(bed.stat(f)), Errno::ESTALE);
    assert_eq!(bed.shard.settle(exactly, &settle, None).unwrap_err().errno(), Errno::EPROTO, "answered by now");
}

/// What a session acknowledges in the turn that makes it is written nowhere.
#[test]
fn what_is_acknowledged_in_its_own_turn_leaves_no_slot() {
    let mut bed = Bed::new();
    bed.turn();
    for n in 0..100 {
        let text = n.to_string();
        bed.file(ROOT, &text);
        bed.unlink(ROOT, &text).unwrap();
        bed.turn();
    }
    assert!(bed.kv.len() < 12, "{} records left", bed.kv.len());
}
