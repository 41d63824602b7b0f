//! The whole protocol of a shard in one match: message in, operation of the namespace, message out. Versions of messages
//! end here; what an operation means is the namespace's business.
//!
//! A new message is a line in `execute`, and, where it makes the store grow, one in `grows`.

use kv::Kv;
use namespace::error::{Error, Result};
use namespace::shard::Shard;
use namespace::view::{Create, Exactly, HeldOpen, PolicyChange, Rename, Settle, Settled};
use types::error::Errno;
use types::id::{GroupId, SessionId, ShardId};
use wire::codec::{Bytes, DecodeError, Wire, decode_body};
use wire::frame::Status;
use wire::op::Op;
use wire::v1::{meta, session};

use crate::answer::Answer;
use crate::convert;

/// Records of one page of a check, and entries of one page of a directory.
const SCAN_MAX: u32 = 1000;
const PAGE_MAX: u32 = 4096;

/// What the shard's thread knows beside the namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Context {
    pub(crate) shard: ShardId,
    pub(crate) group: GroupId,
    /// Bytes of the file system under the store.
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
}

/// One message, decoded and done. What it changes is not yet committed.
pub(crate) fn execute<K: Kv>(
    shard: &mut Shard<K>,
    context: &Context,
    session: SessionId,
    op: Op,
    body: &[u8],
) -> Answer {
    match dispatch(shard, context, session, op, body) {
        Ok(answer) => answer,
        Err(refusal) => Answer::Failed(refusal.status(op)),
    }
}

/// Why there is no answer but a status.
enum Refusal {
    Body(DecodeError),
    Namespace(Error),
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        Self::Body(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Namespace(error)
    }
}

impl Refusal {
    fn status(&self, op: Op) -> Status {
        let error = match self {
            Self::Body(error) => {
                tracing::warn!(op = op.name(), %error, "a message that cannot be understood");
                return Status::Errno(Errno::EPROTO);
            }
            Self::Namespace(error) => error,
        };
        match error {
            Error::Refused(Errno::ENOTCONN) => Status::NoSession,
            // A session that ends this very moment, or one too many: the next try may be luckier.
            Error::Refused(Errno::EBUSY) if op == Op::SessionOpen => Status::Busy,
            Error::Refused(errno) => Status::Errno(*errno),
            Error::Damaged(_) | Error::Store(_) => {
                tracing::error!(op = op.name(), %error, "the store cannot be read");
                Status::Errno(error.errno())
            }
        }
    }
}

#[expect(clippy::too_many_lines, reason = "the whole protocol in one list, a line or two per message")]
fn dispatch<K: Kv>(
    shard: &mut Shard<K>,
    context: &Context,
    session: SessionId,
    op: Op,
    body: &[u8],
) -> std::result::Result<Answer, Refusal> {
    let exactly = |e: meta::Exactly| Exactly { session, sequence: e.sequence, answered_below: e.answered_below };
    Ok(match op {
        Op::Lookup => {
            let m: meta::Lookup = decode_body(body)?;
            inode(shard.lookup(session, m.parent, &m.name))?
        }
        Op::GetAttr => {
            let m: meta::GetAttr = decode_body(body)?;
            inode(shard.getattr(session, m.inode))?
        }
        Op::Set => {
            let m: meta::Set = decode_body(body)?;
            inode(shard.set(exactly(m.exactly), m.inode, &m.change))?
        }
        Op::Create => {
            let m: meta::Create = decode_body(body)?;
            let meta::Create { exactly: e, parent, ref name, kind, mode, rdev, cred, open, write_intent, exclusive } =
                m;
            let create = Create { parent, name, kind, mode, rdev, cred, open, write_intent, exclusive };
            inode(shard.create(exactly(e), &create))?
        }
        Op::Mkdir => {
            let m: meta::Mkdir = decode_body(body)?;
            inode(shard.mkdir(exactly(m.exactly), m.parent, &m.name, m.mode, m.cred))?
        }
        Op::Symlink => {
            let m: meta::Symlink = decode_body(body)?;
            inode(shard.symlink(exactly(m.exactly), m.parent, &m.name, &m.target.0, m.cred))?
        }
        Op::Link => {
            let m: meta::Link = decode_body(body)?;
            inode(shard.link(exactly(m.exactly), m.inode, m.parent, &m.name))?
        }
        Op::Unlink => {
            let m: meta::Unlink = decode_body(body)?;
            done(shard.unlink(exactly(m.exactly), m.parent, &m.name))?
        }
        Op::Rmdir => {
            let m: meta::Rmdir = decode_body(body)?;
            done(shard.rmdir(exactly(m.exactly), m.parent, &m.name))?
        }
        Op::Rename => {
            let m: meta::Rename = decode_body(body)?;
            let rename = Rename {
                source_parent: m.source_parent,
                source_name: &m.source_name,
                target_parent: m.target_parent,
                target_name: &m.target_name,
                flags: m.flags,
            };
            done(shard.rename(exactly(m.exactly), &rename))?
        }
        Op::Readlink => {
            let m: meta::Readlink = decode_body(body)?;
            Answer::Target(meta::ReadlinkReply { target: Bytes(shard.readlink(m.inode)?) })
        }
        Op::ReadDir => {
            let m: meta::ReadDir = decode_body(body)?;
            let count = m.count.clamp(1, PAGE_MAX);
            Answer::Page(convert::page(shard.readdir(session, m.inode, m.cookie, count, m.attributes)?))
        }
        Op::Open => {
            let m: meta::Open = decode_body(body)?;
            inode(shard.open_inode(session, m.inode))?
        }
        Op::Close => {
            let m: meta::Close = decode_body(body)?;
            done(shard.close_inode(session, m.inode))?
        }
        Op::WriteIntent => {
            let m: meta::WriteIntent = decode_body(body)?;
            inode(shard.write_intent(exactly(m.exactly), m.inode))?
        }
        Op::Settle => {
            let m: meta::Settle = decode_body(body)?;
            let meta::Settle { exactly: e, inode, size, blocks, mtime, gathered, release, close, untouched } = m;
            let settle = Settle { inode, size, blocks, mtime, gathered, release, close, untouched };
            let Settled { settled, intents } = shard.settle(exactly(e), &settle)?;
            Answer::Settled(meta::SettleReply { settled, intents })
        }
        Op::GetXattr => {
            let m: meta::GetXattr = decode_body(body)?;
            Answer::Xattr(meta::XattrReply { value: Bytes(shard.get_xattr(m.inode, &m.name.0)?) })
        }
        Op::SetXattr => {
            let m: meta::SetXattr = decode_body(body)?;
            done(shard.set_xattr(exactly(m.exactly), m.inode, &m.name.0, &m.value.0, m.flags))?
        }
        Op::ListXattr => {
            let m: meta::ListXattr = decode_body(body)?;
            let names = shard.list_xattr(m.inode)?.into_iter().map(Bytes).collect();
            Answer::Names(meta::XattrNames { names })
        }
        Op::RemoveXattr => {
            let m: meta::RemoveXattr = decode_body(body)?;
            done(shard.remove_xattr(exactly(m.exactly), m.inode, &m.name.0))?
        }
        Op::Fsync => {
            let _: meta::Fsync = decode_body(body)?;
            Answer::Synced
        }
        Op::StatFs => {
            let _: meta::StatFs = decode_body(body)?;
            let Context { total_bytes, free_bytes, .. } = *context;
            Answer::StatFs(meta::StatFsReply { inodes: shard.inode_count(), total_bytes, free_bytes })
        }
        Op::EntryInfo => {
            let m: meta::EntryInfo = decode_body(body)?;
            entry(context, shard.entry_info(session, m.inode))?
        }
        Op::SetPolicy => {
            let m: meta::SetPolicy = decode_body(body)?;
            let change = PolicyChange { chunk_size: m.chunk_size, stripe_count: m.stripe_count, pool: m.pool };
            entry(context, shard.set_policy(exactly(m.exactly), m.inode, &change))?
        }
        Op::Scan => {
            let m: meta::Scan = decode_body(body)?;
            Answer::Scan(convert::scan(shard.scan(&m.after.0, m.count.clamp(1, SCAN_MAX))?))
        }
        Op::SessionOpen => {
            let m: session::SessionOpen = decode_body(body)?;
            let held = |open: &session::HeldOpen| HeldOpen { inode: open.inode, write_intent: open.write_intent };
            let opens: Vec<_> = m.opens.iter().map(held).collect();
            let opened = shard.session_open(m.session, &m.description.0, &opens)?;
            Answer::Opened(session::SessionOpened { incarnation: opened.incarnation, expiry_ms: opened.expiry_ms })
        }
        Op::SessionClose => {
            let m: session::SessionClose = decode_body(body)?;
            done(shard.session_close(m.session))?
        }
        Op::Ping => Answer::Done,
        Op::Read
        | Op::Write
        | Op::Truncate
        | Op::Sync
        | Op::Remove
        | Op::Stat
        | Op::List
        | Op::TargetStat
        | Op::Place => Answer::errno(Errno::EOPNOTSUPP),
    })
}

fn inode(result: Result<namespace::view::InodeView>) -> Result<Answer> {
    result.map(|view| Answer::Inode(convert::inode(view)))
}

fn done(result: Result<()>) -> Result<Answer> {
    result.map(|()| Answer::Done)
}

fn entry(context: &Context, result: Result<namespace::view::EntryInfo>) -> Result<Answer> {
    result.map(|info| Answer::Entry(Box::new(convert::entry_info(info, context.shard, context.group))))
}

/// The session that a `SessionOpen` names.
pub(crate) fn opened_session(body: &[u8]) -> Option<SessionId> {
    SessionId::decode(&mut wire::codec::Reader::new(body)).ok()
}

/// Adds records: refused below the reserve of free space. Everything that gives space back, ends something, or is needed
/// to settle what clients have written goes on.
pub(crate) fn grows(op: Op) -> bool {
    matches!(op, Op::Create | Op::Mkdir | Op::Symlink | Op::Link | Op::SetXattr | Op::SetPolicy)
}

/// Writes to the store.
pub(crate) fn changes(op: Op) -> bool {
    grows(op)
        || removes(op)
        || matches!(op, Op::Set | Op::Rmdir | Op::WriteIntent | Op::Settle | Op::RemoveXattr | Op::SessionOpen)
}

/// May leave objects to be removed from the storage groups.
pub(crate) fn removes(op: Op) -> bool {
    matches!(op, Op::Unlink | Op::Rename | Op::Close | Op::Settle | Op::SessionClose)
}

/// Answered also on a connection without a session: changes nothing and holds nothing.
pub(crate) fn is_open_to_all(op: Op) -> bool {
    matches!(
        op,
        Op::Ping
            | Op::SessionOpen
            | Op::SessionClose
            | Op::Lookup
            | Op::GetAttr
            | Op::Readlink
            | Op::ReadDir
            | Op::GetXattr
            | Op::ListXattr
            | Op::Fsync
            | Op::StatFs
            | Op::EntryInfo
            | Op::Scan
    )
}

#[cfg(test)]
mod tests {
    use types::id::InodeId;

    use super::*;

    #[test]
    fn the_session_stands_first_in_its_message() {
        let message = session::SessionOpen {
            session: SessionId(77),
            description: Bytes(b"host:/mnt".to_vec()),
            opens: vec![session::HeldOpen { inode: InodeId(5), write_intent: true }],
        };
        let mut body = Vec::new();
        message.encode(&mut body);
        assert_eq!(opened_session(&body), Some(SessionId(77)));
        assert_eq!(opened_session(&body[..3]), None);
    }
}
