//! Lock requests, and those of them that are answered in a later turn.

use kv::Kv;
use namespace::locks::{HeldLock, LockAnswer, LockOwner, LockQuery, LockRequest, Ticket};
use types::error::Errno;
use types::lock::{LockKind, Wait};
use wire::codec::decode_body;
use wire::frame::Status;
use wire::v1::lock;

use crate::answer::Answer;
use crate::call::{Call, Outcome};

/// Most of an answer that tells of waits.
const WAITS_MAX: usize = 4096;

impl<K: Kv> Call<'_, K> {
    pub(crate) fn lock(self) -> Outcome {
        let m: lock::Lock = decode_body(self.body)?;
        let wait = Wait::new(m.wait, m.detect);
        let owner = LockOwner { session: self.session, kind: m.kind, id: m.owner };
        let ticket = Ticket { session: self.session, number: m.number };
        let answered = self.shard.lock(ticket, LockRequest { inode: m.inode, owner, wanted: m.wanted, wait })?;
        Ok(answered.map_or(Answer::Later(ticket), answer))
    }

    pub(crate) fn unlock(self) -> Outcome {
        let m: lock::Unlock = decode_body(self.body)?;
        let owner = LockOwner { session: self.session, kind: m.kind, id: m.owner };
        self.shard.unlock(m.inode, owner, m.range)?;
        Ok(Answer::Done)
    }

    pub(crate) fn get_lock(self) -> Outcome {
        let m: lock::GetLock = decode_body(self.body)?;
        let owner = LockOwner { session: self.session, kind: m.kind, id: m.owner };
        let ticket = Ticket { session: self.session, number: m.number };
        let answered =
            self.shard.get_lock(ticket, LockQuery { inode: m.inode, owner, range: m.range, mode: m.mode })?;
        Ok(answered.map_or(Answer::Later(ticket), answer))
    }

    pub(crate) fn cancel_lock(self) -> Outcome {
        let m: lock::CancelLock = decode_body(self.body)?;
        self.shard.cancel_lock(Ticket { session: self.session, number: m.number })?;
        Ok(Answer::Done)
    }

    pub(crate) fn lock_waits(self) -> Outcome {
        let m: lock::LockWaits = decode_body(self.body)?;
        let owner =
            |process: &lock::Process| LockOwner { session: process.session, kind: LockKind::Posix, id: process.owner };
        let process = |owner: LockOwner| lock::Process { session: owner.session, owner: owner.id };
        let waits = m.processes.iter().flat_map(|process| self.shard.lock_waits(owner(process)));
        let waits = waits.take(WAITS_MAX).map(|wait| lock::LockWait {
            waiter: process(wait.waiter),
            number: wait.ticket.number,
            holder: process(wait.holder),
        });
        Ok(Answer::LockWaits(lock::LockWaitsReply { waits: waits.collect() }))
    }
}

/// What the shard decided, now or later.
pub(crate) fn answer(answer: LockAnswer) -> Answer {
    match answer {
        LockAnswer::Done => Answer::Done,
        LockAnswer::Refused(Errno::ENOTCONN) => Answer::Failed(Status::NoSession),
        LockAnswer::Refused(errno) => Answer::errno(errno),
        LockAnswer::Holder(holder) => {
            let holder = holder.map(|holder| lock::LockHolder {
                session: holder.owner.session,
                owner: holder.owner.id,
                held: holder.held,
            });
            Answer::LockHolder(lock::GetLockReply { holder })
        }
    }
}

pub(crate) fn told(lock: &lock::HeldLock) -> HeldLock {
    HeldLock { inode: lock.inode, kind: lock.kind, owner: lock.owner, held: lock.held }
}

pub(crate) fn lost(lock: &HeldLock) -> lock::HeldLock {
    lock::HeldLock { inode: lock.inode, kind: lock.kind, owner: lock.owner, held: lock.held }
}
