//! The whole protocol of a shard in one match. Versions of messages end here and in `call`; what an operation means is
//! the namespace's business.
//!
//! A new message is a line in `dispatch`, a function in `call`, and a line in each class of `wire::op` that it belongs
//! to.

use kv::Kv;
use namespace::error::Error;
use namespace::shard::Shard;
use namespace::view::Awaited;
use types::error::Errno;
use types::id::{GroupId, InodeId, SessionId, ShardId};
use wire::codec::{Reader, Wire};
use wire::frame::Status;
use wire::op::Op;
use wire::storage_op;
use wire::v1::meta::Exactly;

use crate::answer::Answer;
use crate::call::{Call, Outcome, Refusal};

/// What the shard's thread knows beside the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Context {
    pub(crate) shard: ShardId,
    pub(crate) group: GroupId,
    /// Bytes of the file system under the store.
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    /// Reading may write: not where the store is short of space, or gone.
    pub(crate) keeps_access_times: bool,
    /// There is more free space than the reserve.
    pub(crate) may_grow: bool,
}

/// One message, decoded and done. What it changes is not yet committed.
pub(crate) fn execute<K: Kv>(
    shard: &mut Shard<K>,
    context: &Context,
    session: SessionId,
    op: Op,
    body: &[u8],
) -> Answer {
    match dispatch(op, Call { shard: &mut *shard, context, session, body }) {
        Ok(answer) => answer,
        Err(Refusal::Namespace(Error::Recalling)) => Answer::Parked(shard.awaited()),
        Err(Refusal::Namespace(Error::Growing)) => Answer::Parked(Awaited::default()),
        Err(Refusal::Namespace(Error::Blocked(transaction))) => Answer::Blocked(transaction),
        Err(refusal) => Answer::Failed(status_of(&refusal, op)),
    }
}

pub(crate) fn status_of(refusal: &Refusal, op: Op) -> Status {
    let error = match refusal {
        Refusal::Body(error) => {
            tracing::warn!(op = op.name(), %error, "a message that cannot be understood");
            return Status::Errno(Errno::EPROTO);
        }
        Refusal::Namespace(error) => error,
    };
    match error {
        Error::Refused(Errno::ENOTCONN) => Status::NoSession,
        // A session that ends this very moment, or one too many: the next try may be luckier.
        Error::Refused(Errno::EBUSY) if op == Op::SessionOpen => Status::Busy,
        Error::Refused(errno) => Status::Errno(*errno),
        Error::Recalling | Error::Growing | Error::Blocked(_) | Error::Again => Status::Busy,
        Error::Damaged(_) | Error::Store(_) => {
            tracing::error!(op = op.name(), %error, "the store cannot be read");
            Status::Errno(error.errno())
        }
    }
}

/// Tells the shard what a request will look at, for the most frequent ones, whose looks are most of what they cost. What
/// cannot be understood is told when it is executed.
pub(crate) fn foresee<K: Kv>(shard: &mut Shard<K>, op: Op, body: &[u8]) {
    let mut reader = Reader::new(body);
    match op {
        Op::GetAttr => {
            if let Ok(inode) = InodeId::decode(&mut reader) {
                shard.foresee_inode(inode);
            }
        }
        // Of a walk, the first name: in which directories the others are is not known yet.
        Op::Lookup | Op::Walk => {
            let directory = InodeId::decode(&mut reader);
            let count = if op == Op::Walk { u32::decode(&mut reader) } else { Ok(1) };
            let name = u8::decode(&mut reader).and_then(|len| reader.take(len.into()));
            if let (Ok(directory), Ok(_), Ok(name)) = (directory, count, name) {
                shard.foresee_name(directory, name);
            }
        }
        _ => {}
    }
}

fn dispatch<K: Kv>(op: Op, call: Call<'_, K>) -> Outcome {
    match op {
        Op::Lookup => call.lookup(),
        Op::Walk => call.walk(),
        Op::GetAttr => call.get_attr(),
        Op::Set => call.set(),
        Op::Create => call.create(),
        Op::TmpFile => call.tmp_file(),
        Op::Mkdir => call.mkdir(),
        Op::Symlink => call.symlink(),
        Op::Link => call.link(),
        Op::Unlink => call.unlink(),
        Op::Rmdir => call.rmdir(),
        Op::Rename => call.rename(),
        Op::Readlink => call.readlink(),
        Op::ReadDir => call.read_dir(),
        Op::Open => call.open(),
        Op::Close => call.close(),
        Op::WasRead => call.was_read(),
        Op::Renew => call.renew(),
        Op::Answered => call.answered(),
        Op::WriteIntent => call.write_intent(),
        Op::Settle => call.settle(),
        Op::WriteInline => call.write_inline(),
        Op::ReadInline => call.read_inline(),
        Op::GetXattr => call.get_xattr(),
        Op::SetXattr => call.set_xattr(),
        Op::ListXattr => call.list_xattr(),
        Op::RemoveXattr => call.remove_xattr(),
        Op::Fsync => call.fsync(),
        Op::StatFs => call.stat_fs(),
        Op::EntryInfo => call.entry_info(),
        Op::SetPolicy => call.set_policy(),
        Op::Scan => call.scan(),
        Op::Parts => call.parts(),
        Op::Split => call.split(),
        Op::Lock => call.lock(),
        Op::Unlock => call.unlock(),
        Op::GetLock => call.get_lock(),
        Op::CancelLock => call.cancel_lock(),
        Op::LockWaits => call.lock_waits(),
        Op::SessionOpen => call.session_open(),
        Op::SessionClose => call.session_close(),
        Op::Prepare => call.prepare(),
        Op::AskOutcome => call.ask_outcome(),
        Op::Climb => call.climb(),
        Op::Transact => call.transact(),
        // These are the turn's.
        Op::Ping | Op::Recalls => Ok(Answer::Done),
        storage_op!()
        // The connection itself answers it.
        | Op::Share
        | Op::Fence | Op::FenceSession => Ok(Answer::errno(Errno::EOPNOTSUPP)),
    }
}

/// Its number among the changes of its session, where it has one.
pub(crate) fn sequence(op: Op, body: &[u8]) -> Option<u64> {
    let exactly = op.is_numbered().then(|| Exactly::decode(&mut Reader::new(body)))?;
    Some(exactly.ok()?.sequence)
}
