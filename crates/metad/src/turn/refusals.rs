//! What is answered where the store takes no change.

use kv::KvError;
use types::error::Errno;
use types::id::SessionId;
use wire::frame::Status;
use wire::op::Op;

use super::{Answered, Core, Queued, State};
use crate::answer::Answer;
use crate::dispatch;

/// What the target's directory allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    Good,
    /// Less free space than the reserve: nothing may grow.
    LowSpace,
    /// The directory is not ours any more: nothing may change.
    Vanished,
}

impl Condition {
    fn refuses(self, op: Op) -> Option<Errno> {
        match self {
            Self::Good => None,
            Self::LowSpace => op.grows_metadata().then_some(Errno::ENOSPC),
            Self::Vanished => op.changes_metadata().then_some(Errno::EIO),
        }
    }
}

impl Core {
    /// Whether anything new can be made here, as of the last look. Space that runs out is told otherwise.
    pub(crate) fn takes_changes(&self) -> bool {
        let state = self.state.borrow();
        state.condition != Condition::Vanished && !state.reopening && !self.store.is_failed()
    }
}

impl State {
    /// A change that has begun already is not refused by that: see [`State::has_begun`].
    pub(super) fn refuses(&self, op: Op) -> Option<Errno> {
        self.condition.refuses(op).or_else(|| self.failed_store_refuses(op))
    }

    /// Where the store takes nothing, a change would come to nothing, and all others of its turn would have to ask again for
    /// it. A new session does without, and of a close the shard knows whether it can.
    fn failed_store_refuses(&self, op: Op) -> Option<Errno> {
        let changes = op.changes_metadata() && !matches!(op, Op::SessionOpen | Op::Close);
        (changes && self.shard.store().is_failed()).then(|| self.failure.unwrap_or(Errno::EIO))
    }

    /// It happened, or a transaction is about it: whoever asks again gets the answer to that.
    pub(super) fn has_begun(&self, session: SessionId, sequence: Option<u64>) -> bool {
        sequence.is_some_and(|sequence| self.shard.has_begun(session, sequence))
    }

    pub(super) fn is_begun(&self, queued: &Queued) -> bool {
        let session = self.connections.session(queued.connection);
        session.is_some_and(|session| self.has_begun(session, dispatch::sequence(queued.header.op, &queued.body)))
    }

    /// The turn's batch was refused. Its error is for those alone who have changed something in it: the others, though what
    /// they were to be told may rest on that, are no part of it and ask again.
    pub(super) fn not_committed(&mut self, answered: &mut [Answered], error: &KvError) {
        // They may have been all that there was to write, and reads must not fail by them. Until the next look at the disk.
        self.context.keeps_access_times = false;
        for one in answered {
            let is_to_blame = self.has_changed(one);
            one.answer = if is_to_blame { Answer::not_committed(error) } else { Answer::Failed(Status::Busy) };
        }
    }

    fn has_changed(&self, one: &Answered) -> bool {
        // Who opens a session may want to read alone.
        if !one.op.changes_metadata() || one.op == Op::SessionOpen || one.answer.status() != Status::Ok {
            return false;
        }
        let session = self.connections.session(one.connection);
        !session.is_some_and(|session| self.has_begun(session, one.sequence))
    }
}
