//! The ends of files, as sessions of a shard hold them.

use namespace::locks::{END_PATIENCE_MS, HeldLock, LockAnswer, Ticket};
use namespace::view::Telling;
use types::attr::SetAttr;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::lock::LockKind;

use crate::common::{A, B, Bed, EXPIRY_MS, ROOT, WHOLE, held, refused};

fn done(session: SessionId, number: u64) -> Vec<(Ticket, LockAnswer)> {
    vec![(Ticket { session, number }, LockAnswer::Done)]
}

fn of(inode: InodeId) -> HeldLock {
    HeldLock { inode, kind: LockKind::End, owner: 0, held: WHOLE }
}

#[test]
fn an_end_goes_with_the_write_intent_however_that_ends() {
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    assert_eq!(refused(bed.ask_for_end(A, f, 1)), Errno::EBADF, "nobody appends without an intent");
    let mut number = 1;
    let mut holder = A;
    bed.shard.open_inode(A, f, false).unwrap();
    bed.write_intent(A, f).unwrap();
    assert_eq!(bed.ask_for_end(A, f, 1).unwrap(), Some(LockAnswer::Done));
    for way in ["settle", "close", "expire"] {
        let other = if holder == A { B } else { A };
        number += 1;
        bed.shard.open_inode(other, f, false).unwrap();
        bed.write_intent(other, f).unwrap();
        assert_eq!(bed.ask_for_end(other, f, number).unwrap(), None, "{way}");
        bed.turn();
        assert!(bed.shard.take_lock_answers().is_empty(), "{way}");
        match way {
            "settle" => drop(bed.settle(holder, f, 0, Some(0), true)),
            "close" => bed.shard.close_inode(holder, f, None).unwrap(),
            _ => {
                // Before it would be taken away.
                assert!(bed.shard.touch(other));
                bed.shard.session_close(holder).unwrap();
                bed.tick();
            }
        }
        bed.turn();
        assert_eq!(bed.shard.take_lock_answers(), done(other, number), "{way}");
        holder = other;
    }
}

#[test]
fn who_lost_the_end_while_it_cut_the_file_has_not_truncated_it() {
    let mut bed = Bed::in_objects();
    let f = bed.file(ROOT, "f");
    for session in [A, B] {
        bed.shard.open_inode(session, f, false).unwrap();
        bed.write_intent(session, f).unwrap();
    }
    let shorter = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(bed.ask_for_end(A, f, 1).unwrap(), Some(LockAnswer::Done));
    assert_eq!(bed.ask_for_end(B, f, 1).unwrap(), None);
    bed.set(f, shorter).expect("A has cut the objects, and nobody can have appended");
    bed.wait_ms(END_PATIENCE_MS);
    bed.tick();
    bed.turn();
    assert_eq!(bed.shard.take_lock_answers(), done(B, 1));
    assert_eq!(refused(bed.set(f, shorter)), Errno::EOPNOTSUPP, "B may have appended to what A was cutting");
    bed.shard.close_inode(B, f, None).unwrap();
    assert_eq!(refused(bed.set(f, shorter)), Errno::EOPNOTSUPP, "also before it has closed the file");
    assert_eq!(bed.ask_for_end(A, f, 2).unwrap(), Some(LockAnswer::Done));
    bed.set(f, shorter).expect("A has cut the objects once more");
    let alone = bed.file(ROOT, "alone");
    bed.write_intent(A, alone).unwrap();
    bed.set(alone, shorter).expect("who was alone all the time needs not hold the end");
}

#[test]
fn a_restarted_shard_hears_of_ends_before_it_gives_them_to_others() {
    let mut bed = Bed::new();
    let (f, g) = (bed.file(ROOT, "f"), bed.file(ROOT, "g"));
    for inode in [f, g] {
        bed.shard.open_inode(A, inode, false).unwrap();
        bed.write_intent(A, inode).unwrap();
        assert_eq!(bed.ask_for_end(A, inode, 1).unwrap(), Some(LockAnswer::Done));
    }
    bed.turn();
    bed.restart();
    bed.shard.session_tell(B, b"", &Telling::whole(&[held(f, true), held(g, true)], &[])).unwrap();
    assert_eq!((bed.ask_for_end(B, f, 1).unwrap(), bed.ask_for_end(B, g, 2).unwrap()), (None, None));
    // A has lost one of them before, or never says so.
    let lost = bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, true), held(g, true)], &[of(f)])).unwrap().lost;
    assert!(lost.is_empty());
    bed.tick();
    bed.turn();
    assert_eq!(bed.shard.take_lock_answers(), done(B, 2), "all are back");
    assert_eq!(bed.shard.sessions_to_tell().into_iter().collect::<Vec<_>>(), [A]);
    assert_eq!(bed.shard.tell_wanted_ends(A), [f]);
}

#[test]
fn who_does_not_come_back_is_waited_for_a_while() {
    const { assert!(END_PATIENCE_MS < EXPIRY_MS) };
    let mut bed = Bed::new();
    let f = bed.file(ROOT, "f");
    bed.turn();
    bed.restart();
    bed.shard.session_tell(B, b"", &Telling::whole(&[], &[])).unwrap();
    bed.shard.open_inode(B, f, false).unwrap();
    bed.write_intent(B, f).unwrap();
    assert_eq!(bed.ask_for_end(B, f, 1).unwrap(), None);
    for (ms, expected) in [(END_PATIENCE_MS - 10, vec![]), (20, done(B, 1))] {
        bed.wait_ms(ms);
        bed.shard.touch(B);
        bed.tick();
        bed.turn();
        assert_eq!(bed.shard.take_lock_answers(), expected);
    }
    let lost = bed.shard.session_tell(A, b"", &Telling::whole(&[held(f, true)], &[of(f)])).unwrap().lost;
    assert_eq!(lost, [of(f)], "it has to ask anew");
}
