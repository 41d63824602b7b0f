//! Conversions of `flock` locks.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use namespace::locks::{LockAnswer, LockLimits, LockOwner, LockRequest, Locks, Ticket, Wait};
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::lock::{Held, LockKind, LockMode, LockRange};

use LockMode::{Exclusive, Shared};

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
