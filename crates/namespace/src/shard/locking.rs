//! Locks of sessions. They change nothing in the store, so they do not wait for the turn's commit: where it fails, they
//! stay as they are, and a request is answered so that the client asks again.

use std::collections::BTreeSet;

use kv::Kv;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::lock::{LockKind, LockRange};

use crate::error::Result;
use crate::locks::{HeldLock, LockAnswer, LockOwner, LockQuery, LockRequest, LockWait, Ticket};
use crate::shard::Shard;
use crate::view::Telling;

/// So many parts of locks may be named as lost one by one: an answer has to fit into a frame.
const LOST_PARTS_MAX: usize = 1 << 14;

impl<K: Kv> Shard<K> {
    /// Locks a range. `None`: the answer comes from [`Self::take_lock_answers`] under `ticket`.
    ///
    /// # Errors
    /// `ENOTCONN` without the session; `EAGAIN`, `EDEADLK`, `ENOLCK`; `EBADF` for the end of a file that the session does
    /// not intend to write.
    pub fn lock(&mut self, ticket: Ticket, request: LockRequest) -> Result<Option<LockAnswer>> {
        self.must_be_open(ticket.session)?;
        if request.owner.kind == LockKind::End && !self.holds.intends(ticket.session, request.inode) {
            return Err(Errno::EBADF.into());
        }
        refusal(self.locks.lock(ticket, request))
    }

    /// Gives up what the owner holds of the range.
    ///
    /// # Errors
    /// `ENOTCONN` without the session.
    pub fn unlock(&mut self, inode: InodeId, owner: LockOwner, range: LockRange) -> Result<()> {
        self.must_be_open(owner.session)?;
        self.locks.unlock(inode, owner, range);
        Ok(())
    }

    /// Who would be in the way of a lock. `None`: later, as with [`Self::lock`].
    ///
    /// # Errors
    /// `ENOTCONN` without the session, `ENOLCK`.
    pub fn get_lock(&mut self, ticket: Ticket, query: LockQuery) -> Result<Option<LockAnswer>> {
        self.must_be_open(ticket.session)?;
        refusal(self.locks.get(ticket, query))
    }

    /// Ends the wait under `ticket`, if there is one: its request is answered with `EINTR`.
    ///
    /// # Errors
    /// `ENOTCONN` without the session.
    pub fn cancel_lock(&mut self, ticket: Ticket) -> Result<()> {
        self.must_be_open(ticket.session)?;
        self.locks.cancel(ticket);
        Ok(())
    }

    /// What `owner` waits for here.
    pub fn lock_waits(&self, owner: LockOwner) -> impl Iterator<Item = LockWait> {
        self.locks.waits_of(owner)
    }

    /// What the session held before the shard, or the session, began anew. The first time counts. Answers what it has lost
    /// to others.
    pub(super) fn reclaim_locks(&mut self, session: SessionId, telling: &Telling<'_>) -> Vec<HeldLock> {
        let Some(known) = self.sessions.get_mut(&session) else { return telling.locks.to_vec() };
        let again = known.has_told_locks;
        known.has_told_locks |= !telling.more;
        let mut lost = Vec::new();
        for lock in telling.locks {
            // What the session has got since its birth is there. The answer to the first telling may have been lost; and what
            // was unlocked after that, the session does not miss.
            let missing = self.locks.missing(session, lock);
            let is_lost = |part: &HeldLock| again || !self.locks.reclaim(session, part);
            let gone: Vec<HeldLock> = missing.into_iter().filter(is_lost).collect();
            if lost.len() + gone.len() <= LOST_PARTS_MAX {
                lost.extend(gone);
            } else {
                let owner = LockOwner { session, kind: lock.kind, id: lock.owner };
                self.locks.unlock(lock.inode, owner, lock.held.range);
                lost.push(*lock);
            }
        }
        if !telling.more {
            self.locks.has_reclaimed(session);
        }
        lost
    }

    /// Sessions that hold ends of files which others wait for, and were not told.
    #[must_use]
    pub fn sessions_to_tell(&self) -> BTreeSet<SessionId> {
        self.locks.sessions_to_tell()
    }

    /// The ends that `session` has to give back: it is told of them now.
    pub fn tell_wanted_ends(&mut self, session: SessionId) -> Vec<InodeId> {
        self.locks.tell_wanted(session)
    }

    /// `session` listens anew: what it was told before may not have come.
    pub fn tell_wanted_ends_again(&mut self, session: SessionId) {
        self.locks.tell_again(session);
    }

    /// Answers to requests that had to wait. Take them at the end of each turn, after its commit.
    pub fn take_lock_answers(&mut self) -> Vec<(Ticket, LockAnswer)> {
        self.locks.take_answers()
    }
}

fn refusal(answer: Option<LockAnswer>) -> Result<Option<LockAnswer>> {
    match answer {
        Some(LockAnswer::Refused(errno)) => Err(errno.into()),
        other => Ok(other),
    }
}
