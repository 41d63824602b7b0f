//! What each message asks of the shard: its words in, the namespace's answer out.

use kv::Kv;
use namespace::error::{Error, Result};
use namespace::schema::transaction::{deser_parts, ser_votes};
use namespace::shard::Shard;
use namespace::transaction::part::Part;
use namespace::transaction::{Finished, Haste};
use namespace::view::{
    Changed, Create, Drafted, EntryInfo, Exactly, HeldOpen, InodeView, Parts, PolicyChange, Rename, Retold, Settle,
    Settled, Telling, TimeChange, WriteInline,
};
use types::cred::Conditions;
use types::error::Errno;
use types::id::SessionId;
use wire::codec::{Bytes, DecodeError, decode_body};
use wire::frame::Status;
use wire::op::Op;
use wire::v1::session::{RENEWED_MAX, UNDER_WAY_MAX};
use wire::v1::transaction::Promise;
use wire::v1::{meta, session, transaction};

use crate::answer::Answer;
use crate::dispatch::{Context, status_of};
use crate::{convert, locking};

/// Records of one page of a check, and entries of one page of a directory.
const SCAN_MAX: u32 = 1000;
const PAGE_MAX: u32 = 4096;

/// One message that waits to be decoded, and the shard that it asks.
pub(crate) struct Call<'a, K: Kv> {
    pub(crate) shard: &'a mut Shard<K>,
    pub(crate) context: &'a Context,
    pub(crate) session: SessionId,
    pub(crate) body: &'a [u8],
}

/// Why there is no answer but a status.
pub(crate) enum Refusal {
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

pub(crate) type Outcome = std::result::Result<Answer, Refusal>;

impl<K: Kv> Call<'_, K> {
    pub(crate) fn lookup(self) -> Outcome {
        let m: meta::Lookup = decode_body(self.body)?;
        Ok(Answer::Looked(convert::looked(self.shard.lookup(self.session, m.parent, &m.name)?)))
    }

    pub(crate) fn walk(self) -> Outcome {
        let m: meta::Walk = decode_body(self.body)?;
        Ok(Answer::Walked(convert::walked(self.shard.walk(self.session, m.start, &m.names, m.leases)?)))
    }

    pub(crate) fn get_attr(self) -> Outcome {
        let m: meta::GetAttr = decode_body(self.body)?;
        inode(self.shard.getattr(self.session, m.inode))
    }

    pub(crate) fn set(self) -> Outcome {
        let m: meta::Set = decode_body(self.body)?;
        let exactly = self.exactly_given(m.exactly, m.given);
        inode(self.shard.set(exactly, m.inode, &m.change, m.inline))
    }

    pub(crate) fn create(self) -> Outcome {
        let m: meta::Create = decode_body(self.body)?;
        let meta::Create { exactly: e, parent, ref name, kind, mode, rdev, cred, open, write_intent, exclusive, draft } =
            m;
        let exactly = self.exactly(e);
        let create = Create { parent, name, kind, mode, rdev, cred, open, write_intent, exclusive, draft };
        inode(self.shard.create(exactly, &create))
    }

    pub(crate) fn tmp_file(self) -> Outcome {
        let m: meta::TmpFile = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        inode(self.shard.tmpfile(exactly, m.parent, m.mode, m.cred, m.write_intent))
    }

    pub(crate) fn mkdir(self) -> Outcome {
        let m: meta::Mkdir = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        inode(self.shard.mkdir(exactly, m.parent, &m.name, m.mode, m.cred))
    }

    pub(crate) fn symlink(self) -> Outcome {
        let m: meta::Symlink = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        inode(self.shard.symlink(exactly, m.parent, &m.name, &m.target.0, m.cred))
    }

    pub(crate) fn link(self) -> Outcome {
        let m: meta::Link = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        inode(self.shard.link(exactly, m.inode, m.parent, &m.name))
    }

    pub(crate) fn unlink(self) -> Outcome {
        let m: meta::Unlink = decode_body(self.body)?;
        let exactly = self.exactly_given(m.exactly, m.given);
        changed(self.shard.unlink(exactly, m.parent, &m.name))
    }

    pub(crate) fn rmdir(self) -> Outcome {
        let m: meta::Rmdir = decode_body(self.body)?;
        let exactly = self.exactly_given(m.exactly, m.given);
        changed(self.shard.rmdir(exactly, m.parent, &m.name))
    }

    pub(crate) fn rename(self) -> Outcome {
        let m: meta::Rename = decode_body(self.body)?;
        let exactly = self.exactly_given(m.exactly, m.given);
        let rename = Rename {
            source_parent: m.source_parent,
            source_name: &m.source_name,
            target_parent: m.target_parent,
            target_name: &m.target_name,
            flags: m.flags,
            cred: m.cred,
        };
        changed(self.shard.rename(exactly, &rename))
    }

    pub(crate) fn readlink(self) -> Outcome {
        let m: meta::Readlink = decode_body(self.body)?;
        if self.context.keeps_access_times {
            self.shard.accessed(self.session, m.inode, m.accesses)?;
        }
        let target = Bytes(self.shard.readlink(m.inode)?);
        Ok(Answer::Target(meta::ReadlinkReply { target }))
    }

    pub(crate) fn read_dir(self) -> Outcome {
        let m: meta::ReadDir = decode_body(self.body)?;
        let count = m.count.clamp(1, PAGE_MAX);
        if self.context.keeps_access_times && m.cookie == 0 {
            self.shard.accessed(self.session, m.inode, m.accesses)?;
        }
        let page = self.shard.readdir(self.session, m.inode, m.cookie, count, m.attributes)?;
        Ok(Answer::Page(convert::page(page)))
    }

    pub(crate) fn open(self) -> Outcome {
        let m: meta::Open = decode_body(self.body)?;
        inode(self.shard.open_inode(self.session, m.inode, m.contents))
    }

    pub(crate) fn close(self) -> Outcome {
        let m: meta::Close = decode_body(self.body)?;
        done(self.shard.close_inode(self.session, m.inode, m.read.map(time_change)))
    }

    pub(crate) fn was_read(self) -> Outcome {
        let m: meta::WasRead = decode_body(self.body)?;
        done(self.shard.was_read(self.session, m.inode, time_change(m.read)))
    }

    pub(crate) fn renew(self) -> Outcome {
        let m: session::Renew = decode_body(self.body)?;
        if m.inodes.len() > RENEWED_MAX {
            return Ok(Answer::errno(Errno::EINVAL));
        }
        let lease_ms = self.shard.renew(self.session, &m.inodes)?;
        Ok(Answer::Renewed(session::RenewReply { lease_ms }))
    }

    pub(crate) fn answered(self) -> Outcome {
        let m: session::Answered = decode_body(self.body)?;
        if m.under_way.len() > UNDER_WAY_MAX {
            return Ok(Answer::errno(Errno::EINVAL));
        }
        done(self.shard.answered(self.session, m.below, m.under_way))
    }

    pub(crate) fn write_intent(self) -> Outcome {
        let m: meta::WriteIntent = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        inode(match m.draft {
            true => self.shard.write_intent_of_draft(exactly, m.inode, m.cuts),
            false => self.shard.write_intent(exactly, m.inode, m.cuts),
        })
    }

    pub(crate) fn settle(self) -> Outcome {
        let m: meta::Settle = decode_body(self.body)?;
        let meta::Settle { exactly: e, inode, size, blocks, mtime, gathered, release, close, untouched, read, drafted } =
            m;
        let exactly = self.exactly(e);
        let (mtime, read) = (mtime.map(time_change), read.map(time_change));
        let settle = Settle { inode, size, blocks, mtime, gathered, release, close, untouched, read };
        let Settled { settled, intents } =
            self.shard.settle(exactly, &settle, drafted.map(|told| self::drafted(*told)))?;
        Ok(Answer::Settled(meta::SettleReply { settled, intents }))
    }

    pub(crate) fn write_inline(self) -> Outcome {
        let m: meta::WriteInline = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        let write = WriteInline { inode: m.inode, offset: m.offset, append: m.append, bytes: &m.bytes.0 };
        let (view, offset) = self.shard.write_inline(exactly, &write)?;
        Ok(Answer::Wrote(meta::WriteInlineReply { inode: convert::inode(view), offset }))
    }

    pub(crate) fn read_inline(self) -> Outcome {
        let m: meta::ReadInline = decode_body(self.body)?;
        let (view, bytes) = self.shard.read_inline(self.session, m.inode, m.offset, m.length)?;
        Ok(Answer::Contents(meta::ReadInlineReply { inode: convert::inode(view), bytes: Bytes(bytes) }))
    }

    pub(crate) fn get_xattr(self) -> Outcome {
        let m: meta::GetXattr = decode_body(self.body)?;
        Ok(Answer::Xattr(meta::XattrReply { value: Bytes(self.shard.get_xattr(m.inode, &m.name.0)?) }))
    }

    pub(crate) fn set_xattr(self) -> Outcome {
        let m: meta::SetXattr = decode_body(self.body)?;
        let exactly = self.exactly_given(m.exactly, m.given);
        done(self.shard.set_xattr(exactly, m.inode, &m.name.0, &m.value.0, m.flags))
    }

    pub(crate) fn list_xattr(self) -> Outcome {
        let m: meta::ListXattr = decode_body(self.body)?;
        let names = self.shard.list_xattr(m.inode)?.into_iter().map(Bytes).collect();
        Ok(Answer::Names(meta::XattrNames { names }))
    }

    pub(crate) fn remove_xattr(self) -> Outcome {
        let m: meta::RemoveXattr = decode_body(self.body)?;
        let exactly = self.exactly_given(m.exactly, m.given);
        done(self.shard.remove_xattr(exactly, m.inode, &m.name.0))
    }

    pub(crate) fn fsync(self) -> Outcome {
        let m: meta::Fsync = decode_body(self.body)?;
        self.shard.may_sync(m.inode)?;
        if m.inline {
            self.shard.sync_inline(m.inode)?;
        }
        Ok(Answer::Synced)
    }

    pub(crate) fn prepare(self) -> Outcome {
        let m: transaction::Prepare = decode_body(self.body)?;
        let parts = deser_parts(b"", &m.parts.0).map_err(|_| DecodeError::Invalid("parts"))?;
        self.have_room(&parts)?;
        let waits = waits_of_promise(&parts);
        let votes = self.shard.prepare(m.session, m.transaction, m.round, parts)?;
        Ok(Answer::Prepared(transaction::Prepared { votes: Bytes(ser_votes(&votes)) }, waits))
    }

    /// Below the reserve of free space nothing is promised that adds records.
    fn have_room(&self, parts: &[Part]) -> Result<()> {
        let has_room = self.context.may_grow || !parts.iter().any(Part::grows);
        if has_room { Ok(()) } else { Err(Errno::ENOSPC.into()) }
    }

    pub(crate) fn ask_outcome(self) -> Outcome {
        let m: transaction::AskOutcome = decode_body(self.body)?;
        Ok(Answer::Outcome(self.shard.outcome(m.transaction)))
    }

    pub(crate) fn climb(self) -> Outcome {
        let m: transaction::Climb = decode_body(self.body)?;
        Ok(Answer::Climbed(transaction::Climbed { inode: self.shard.climb(m.inode, m.until)? }))
    }

    pub(crate) fn transact(self) -> Outcome {
        let m: transaction::Transact = decode_body(self.body)?;
        let mut prepares = Vec::with_capacity(m.prepares.len());
        for prepare in m.prepares {
            let parts = deser_parts(b"", &prepare.parts.0).map_err(|_| DecodeError::Invalid("parts"))?;
            prepares.push((prepare.session, prepare.transaction, prepare.round, parts));
        }
        let (mut endings, mut waits) = (Vec::with_capacity(m.finishes.len()), None);
        for finish in m.finishes {
            let finished = self.shard.finish(finish.transaction, finish.commit, finish.made);
            endings.push(match finished.map_err(|error| status_of(&error.into(), Op::Transact)) {
                Ok(finished) => {
                    waits = waits.max(Some(Haste::WithNextSync));
                    ending(finished)
                }
                Err(_) => transaction::Ending::Later,
            });
        }
        let mut promises = Vec::with_capacity(prepares.len());
        for (session, transaction, round, parts) in prepares {
            let given = waits_of_promise(&parts);
            let prepared = self.have_room(&parts).and_then(|()| self.shard.prepare(session, transaction, round, parts));
            promises.push(match prepared {
                Ok(votes) => {
                    waits = waits.max(given);
                    Promise::Given(Bytes(ser_votes(&votes)))
                }
                Err(Error::Blocked(other)) => {
                    // It is asked about now, not when this is asked for once more.
                    self.shard.await_end(other);
                    Promise::Waits
                }
                Err(Error::Recalling | Error::Growing) => Promise::Waits,
                Err(error) => match status_of(&error.into(), Op::Prepare) {
                    Status::Errno(errno) => Promise::Refused(errno),
                    _ => Promise::Again,
                },
            });
        }
        Ok(Answer::Transacted(transaction::Transacted { endings, promises }, waits))
    }

    pub(crate) fn stat_fs(self) -> Outcome {
        let _: meta::StatFs = decode_body(self.body)?;
        let Context { total_bytes, free_bytes, .. } = *self.context;
        Ok(Answer::StatFs(meta::StatFsReply { inodes: self.shard.inode_count(), total_bytes, free_bytes }))
    }

    pub(crate) fn entry_info(self) -> Outcome {
        let m: meta::EntryInfo = decode_body(self.body)?;
        Self::entry(self.context, self.shard.entry_info(self.session, m.inode))
    }

    pub(crate) fn set_policy(self) -> Outcome {
        let m: meta::SetPolicy = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        let meta::SetPolicy { chunk_size, stripe_count, pool, directories, inline_limit, .. } = m;
        let change = PolicyChange { chunk_size, stripe_count, pool, directories, inline_limit };
        Self::entry(self.context, self.shard.set_policy(exactly, m.inode, &change))
    }

    pub(crate) fn parts(self) -> Outcome {
        let m: meta::Parts = decode_body(self.body)?;
        if self.context.keeps_access_times && m.lists {
            self.shard.accessed(self.session, m.inode, m.accesses)?;
        }
        let reply = parts(self.shard.parts(m.inode)?);
        let is_known = m.lists && reply.cursor == 0;
        Ok(if is_known || reply.parts.is_empty() { Answer::Parts(reply) } else { Answer::NewParts(reply) })
    }

    pub(crate) fn split(self) -> Outcome {
        let m: meta::Split = decode_body(self.body)?;
        let exactly = self.exactly(m.exactly);
        Ok(Answer::NewParts(parts(self.shard.split(exactly, m.inode, m.count)?)))
    }

    pub(crate) fn scan(self) -> Outcome {
        let m: meta::Scan = decode_body(self.body)?;
        Ok(Answer::Scan(convert::scan(self.shard.scan(&m.after.0, m.count.clamp(1, SCAN_MAX))?)))
    }

    pub(crate) fn session_open(self) -> Outcome {
        let m: session::SessionOpen = decode_body(self.body)?;
        let held = |&session::HeldOpen { inode, write_intent, draft }| HeldOpen { inode, write_intent, draft };
        let opens: Vec<_> = m.opens.iter().map(held).collect();
        let locks: Vec<_> = m.locks.iter().map(locking::told).collect();
        let Retold { opened, lost, unreadable } = if m.tells {
            let telling = Telling { opens: &opens, locks: &locks, more: m.more, incarnation: m.incarnation };
            self.shard.session_tell(m.session, &m.description.0, &telling)?
        } else {
            let opened = self.shard.session_open(m.session, &m.description.0)?;
            Retold { opened, lost: Vec::new(), unreadable: Vec::new() }
        };
        for error in unreadable {
            tracing::error!(session = %m.session, %error, "what a client has open cannot be read");
        }
        let lost = lost.iter().map(locking::lost).collect();
        let namespace::view::SessionOpened { incarnation, kept_since, expiry_ms, keeps_intents } = opened;
        Ok(Answer::Opened(session::SessionOpened { incarnation, kept_since, expiry_ms, lost, keeps_intents }))
    }

    pub(crate) fn session_close(self) -> Outcome {
        let m: session::SessionClose = decode_body(self.body)?;
        done(self.shard.session_close(m.session))
    }

    fn exactly(&self, e: meta::Exactly) -> Exactly {
        self.exactly_given(e, Conditions::default())
    }

    fn exactly_given(&self, e: meta::Exactly, given: Conditions) -> Exactly {
        Exactly { session: self.session, sequence: e.sequence, answered_below: e.answered_below, given }
    }

    fn entry(context: &Context, result: Result<EntryInfo>) -> Outcome {
        Ok(Answer::Entry(Box::new(convert::entry_info(result?, context.shard, context.group))))
    }
}

/// Who asked waits for a promise, but what is done at once need not be on disk.
fn waits_of_promise(parts: &[Part]) -> Option<Haste> {
    if parts.iter().all(Part::is_done_at_once) { None } else { Some(Haste::Now) }
}

fn ending(finished: Finished) -> transaction::Ending {
    match finished {
        Finished::Done => transaction::Ending::Done,
        Finished::Lost => transaction::Ending::Lost,
    }
}

fn inode(result: Result<InodeView>) -> Outcome {
    Ok(Answer::Inode(convert::inode(result?)))
}

fn parts(Parts { parts, cursor, parent }: Parts) -> meta::PartsReply {
    meta::PartsReply { parts, cursor, parent }
}

fn changed(result: Result<Changed>) -> Outcome {
    Ok(Answer::Changed(convert::changed(result?)))
}

fn time_change(change: meta::TimeChange) -> TimeChange {
    let meta::TimeChange { at, before } = change;
    TimeChange { at, before }
}

fn drafted(drafted: meta::Drafted) -> Drafted {
    let meta::Drafted { contents, mode, uid, gid, atime, mtime, ctime } = drafted;
    Drafted { contents: contents.map(|bytes| bytes.0), mode, uid, gid, atime, mtime, ctime }
}

fn done(result: Result<()>) -> Outcome {
    result?;
    Ok(Answer::Done)
}
