//! Conversions of `flock` locks, and what is left of locks to who comes back for them.

use namespace::locks::{HeldLock, LockAnswer, LockLimits, LockOwner, LockRequest, Locks, Ticket, Wait};
use namespace::view::Telling;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::lock::{Held, LockKind, LockMode, LockRange};

use LockMode::{Exclusive, Shared};

use crate::common::{Bed, EXPIRY_MS, ROOT};

const A: SessionId = SessionId(1);
const B: SessionId = SessionId(2);
const F: InodeId = InodeId(100);

fn owner(session: SessionId, kind: LockKind) -> LockOwner {
    LockOwner { session, kind, id: 1 }
}

/// What came of a request for the whole file.
fn lock(locks: &mut Locks, (session, number): (SessionId, u64), mode: LockMode, wait: Wait) -> Option<LockAnswer> {
    let wanted = Held { range: LockRange::ALL, mode, pid: 7 };
    let owner = owner(session, LockKind::Flock);
    locks.lock(Ticket { session, number }, LockRequest { inode: F, owner, wanted, wait })
}

const DONE: Option<LockAnswer> = Some(LockAnswer::Done);

#[test]
fn the_old_lock_is_given_up_where_another_is_in_the_way() {
    let mut locks = Locks::new(LockLimits::default(), false);
    for session in [A, B] {
        assert_eq!(lock(&mut locks, (session, 1), Shared, Wait::No), DONE);
    }
    assert_eq!(lock(&mut locks, (A, 2), Exclusive, Wait::No), Some(LockAnswer::Refused(Errno::EAGAIN)));
    assert_eq!(locks.held().map(|(_, holder)| holder.owner.session).collect::<Vec<_>>(), [B]);
    // fcntl locks are another world.
    let wanted = Held { range: LockRange::new(0, 9).unwrap(), mode: Exclusive, pid: 7 };
    let posix = LockRequest { inode: F, owner: owner(A, LockKind::Posix), wanted, wait: Wait::No };
    assert_eq!(locks.lock(Ticket { session: A, number: 3 }, posix), DONE);
}

#[test]
fn who_waits_gets_nothing_between_the_halves_of_a_conversion() {
    let mut locks = Locks::new(LockLimits::default(), false);
    assert_eq!(lock(&mut locks, (A, 1), Exclusive, Wait::No), DONE);
    assert_eq!(lock(&mut locks, (B, 1), Exclusive, Wait::Yes), None);
    for (number, mode) in [(2, Shared), (3, Exclusive), (4, Shared)] {
        assert_eq!(lock(&mut locks, (A, number), mode, Wait::No), DONE, "{mode:?}");
        assert_eq!(locks.take_answers(), []);
    }
    locks.unlock(F, owner(A, LockKind::Flock), LockRange::ALL);
    assert_eq!(locks.take_answers(), [(Ticket { session: B, number: 1 }, LockAnswer::Done)]);
    // Whom a conversion lets go on, it does.
    assert_eq!(lock(&mut locks, (A, 5), Shared, Wait::Yes), None);
    assert_eq!(lock(&mut locks, (B, 2), Shared, Wait::No), DONE);
    assert_eq!(locks.take_answers(), [(Ticket { session: A, number: 5 }, LockAnswer::Done)]);
}

/// Of ten bytes each, from `start` on.
fn piece(session: SessionId, start: u64, mode: LockMode) -> HeldLock {
    let range = LockRange::new(start, start + 9).unwrap();
    HeldLock { inode: F, kind: LockKind::Posix, owner: session.0, held: Held { range, mode, pid: 7 } }
}

fn take(locks: &mut Locks, session: SessionId, piece: &HeldLock) {
    let owner = LockOwner { session, kind: LockKind::Posix, id: session.0 };
    let request = LockRequest { inode: F, owner, wanted: piece.held, wait: Wait::No };
    assert_eq!(locks.lock(Ticket { session, number: 1 }, request), DONE);
}

#[test]
fn who_comes_back_loses_what_others_have_had_meanwhile() {
    let mut locks = Locks::new(LockLimits::default(), false);
    let [all, read, other, alone] =
        [(0, Exclusive), (20, Shared), (40, Shared), (60, Exclusive)].map(|(start, mode)| piece(A, start, mode));
    for lock in [&all, &read, &other, &alone] {
        take(&mut locks, A, lock);
    }
    locks.release_session(A);
    for (start, mode) in [(5, Shared), (20, Shared), (40, Exclusive)] {
        take(&mut locks, B, &piece(B, start, mode));
    }
    locks.release_session(B);
    assert_eq!(locks.held().count(), 0);
    let kept = [all, read, other, alone].map(|lock| locks.reclaim(A, &lock));
    assert_eq!(kept, [false, true, false, true]);
    // It is told once.
    locks.has_reclaimed(A);
    assert!(!locks.reclaim(A, &alone));
}

/// Of so many that nothing is remembered of it: others may have had anything since.
#[test]
fn who_comes_back_and_is_not_remembered_has_lost_all() {
    let mut locks = Locks::new(LockLimits::default(), false);
    let held = piece(A, 0, Exclusive);
    take(&mut locks, A, &held);
    locks.release_session(A);
    for session in [3, 4, 5].map(SessionId) {
        for start in 0..30_000 {
            let inode = InodeId(1000 + start);
            let owner = LockOwner { session, kind: LockKind::Posix, id: session.0 };
            let wanted = Held { mode: Shared, ..held.held };
            let request = LockRequest { inode, owner, wanted, wait: Wait::No };
            assert_eq!(locks.lock(Ticket { session, number: 1 }, request), DONE);
        }
        locks.release_session(session);
    }
    take(&mut locks, B, &piece(B, 0, Exclusive));
    locks.release_session(B);
    assert!(!locks.reclaim(A, &held));
}

/// It was waited for, and then others could have its locks.
#[test]
fn who_comes_back_after_the_grace_has_lost_all_but_ends() {
    let mut locks = Locks::new(LockLimits::default(), true);
    let held = piece(A, 0, Exclusive);
    assert!(locks.reclaim(A, &piece(A, 40, Exclusive)));
    locks.end_grace();
    take(&mut locks, B, &piece(B, 0, Exclusive));
    locks.release_session(B);
    assert!(!locks.reclaim(A, &held));
    let end = HeldLock { kind: LockKind::End, owner: 0, ..held };
    assert!(locks.reclaim(A, &end), "whoever has had it since, the objects tell");
}

#[test]
fn a_session_that_had_expired_is_told_what_it_has_lost() {
    let mut bed = Bed::new();
    let inode = bed.file(ROOT, "f");
    let [kept, lost] = [0, 20].map(|start| HeldLock { inode, ..piece(A, start, Exclusive) });
    let ask = |bed: &mut Bed, session: SessionId, lock: &HeldLock| {
        let owner = LockOwner { session, kind: lock.kind, id: lock.owner };
        let request = LockRequest { inode, owner, wanted: lock.held, wait: Wait::No };
        assert_eq!(bed.shard.lock(Ticket { session, number: 1 }, request).unwrap(), DONE);
        owner
    };
    for lock in [&kept, &lost] {
        ask(&mut bed, A, lock);
    }
    bed.wait_ms(EXPIRY_MS);
    assert!(bed.shard.touch(B));
    assert_eq!(bed.tick().expired, [A]);
    bed.turn();
    let owner = ask(&mut bed, B, &lost);
    bed.shard.unlock(inode, owner, LockRange::ALL).unwrap();
    bed.shard.session_open(A, b"a").unwrap();
    let told = bed.shard.session_tell(A, b"a", &Telling::whole(&[], &[kept, lost])).unwrap();
    assert_eq!(told.lost, [lost]);
}

/// Two threads of a client tell one after the other what both have looked up before a third one unlocked the middle of it.
#[test]
fn what_is_told_again_is_lost_only_where_it_is_not_held() {
    let mut bed = Bed::new();
    let inode = bed.file(ROOT, "f");
    bed.restart();
    bed.shard.session_open(A, b"a").unwrap();
    let told = HeldLock { inode, ..piece(A, 0, Exclusive) };
    let part = |start, end| {
        let range = LockRange::new(start, end).unwrap();
        HeldLock { held: Held { range, ..told.held }, ..told }
    };
    let tell = |bed: &mut Bed| bed.shard.session_tell(A, b"a", &Telling::whole(&[], &[told])).unwrap().lost;
    assert_eq!(tell(&mut bed), []);
    let owner = LockOwner { session: A, kind: told.kind, id: told.owner };
    for middle in [2, 5] {
        bed.shard.unlock(inode, owner, LockRange::new(middle, middle).unwrap()).unwrap();
    }
    assert_eq!(tell(&mut bed), [part(2, 2), part(5, 5)]);
    bed.shard.unlock(inode, owner, LockRange::ALL).unwrap();
    assert_eq!(tell(&mut bed), [told]);
}

/// It has got something, through a thread that goes on, between its new birth and the telling by another one.
#[test]
fn what_was_got_since_the_birth_is_not_lost_with_the_telling() {
    let mut bed = Bed::new();
    let inode = bed.file(ROOT, "f");
    let [old, new] = [0, 10].map(|start| HeldLock { inode, ..piece(A, start, Exclusive) });
    let owner = LockOwner { session: A, kind: old.kind, id: old.owner };
    let ask = |bed: &mut Bed, lock: &HeldLock| {
        let request = LockRequest { inode, owner, wanted: lock.held, wait: Wait::No };
        assert_eq!(bed.shard.lock(Ticket { session: A, number: 1 }, request).unwrap(), DONE);
    };
    ask(&mut bed, &old);
    bed.wait_ms(EXPIRY_MS);
    assert_eq!(bed.tick().expired, [A, B]);
    bed.turn();
    bed.shard.session_open(A, b"a").unwrap();
    ask(&mut bed, &new);
    let both = Held { range: LockRange::new(0, 19).unwrap(), ..old.held };
    let told = HeldLock { held: both, ..old };
    assert_eq!(bed.shard.session_tell(A, b"a", &Telling::whole(&[], &[told])).unwrap().lost, []);
}
