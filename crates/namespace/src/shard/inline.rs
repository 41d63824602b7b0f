//! Files with their contents in the metadata, and how they grow out of it.
//!
//! A file begins here where its directory wants that. What would make it longer than its limit needs a write intent, and
//! that makes it *grow*: it is noted that objects may exist (in a batch of its own, so that no crash can lose them), when
//! that is on disk the shell writes the contents to the objects and syncs these, and then one batch says that they are
//! there, and deletes them here. Until that batch the contents are here and nowhere else: after a crash in between the move
//! begins anew. A file never comes back. (They were on this shard's disk, if not by an `fsync`, then soon after they were
//! written.)
//!
//! While it grows, whatever would change or sync the contents waits; who reads reads on here.

use std::collections::{BTreeMap, BTreeSet};

use kv::Kv;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::layout::Layout;

use crate::error::{Error, Result};
use crate::leases::Touched;
use crate::schema::inode::{HAS_OBJECTS, Inode};
use crate::schema::session::Outcome;
use crate::shard::Shard;
use crate::view::{Exactly, InodeView, Telling, WriteInline};

/// How long a failure is told to those who made the file grow, in ms: they ask again at once.
const FAILURE_MS: u64 = 1000;

/// What the shell needs to move a file's contents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Growth {
    pub layout: Layout,
    /// Bytes: no objects have more of the file than those of its first so many, unless there are `older` ones.
    pub limit: u32,
    /// There may be objects from before, of any length: a power cut has brought the contents back when they had left, or a
    /// move did not end.
    pub older: bool,
    pub contents: Vec<u8>,
}

/// How a move ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grown {
    /// The objects have the contents, and nothing else.
    Done,
    /// The storage refused: who wants to write is told so.
    Refused(Errno),
    /// It could not be done now.
    Again,
}

/// The files of a shard that grow.
#[derive(Default)]
pub(crate) struct Growing {
    /// Whether there may be objects from before.
    under_way: BTreeMap<InodeId, bool>,
    /// Begun in this turn.
    begun: Vec<InodeId>,
    /// To be moved by the shell.
    wanted: Vec<InodeId>,
    /// Why, and when: by the shard's monotonic clock, ms.
    refused: BTreeMap<InodeId, (Errno, u64)>,
    /// Some move has ended, and nobody was told yet.
    ended: bool,
    /// Files whose contents were changed here in the grace after a restart.
    changed_in_grace: BTreeSet<InodeId>,
}

impl Growing {
    pub(crate) fn is_clean(&self) -> bool {
        self.begun.is_empty()
    }

    pub(crate) fn committed(&mut self) {
        self.wanted.append(&mut self.begun);
    }

    pub(crate) fn rolled_back(&mut self) {
        for inode in self.begun.drain(..) {
            self.under_way.remove(&inode);
            self.ended = true;
        }
    }
}

impl<K: Kv> Shard<K> {
    /// Writes contents that are in the metadata; also where they were written.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the contents are in objects, or would pass their limit: it takes a write intent then. `ESTALE`,
    /// `EISDIR`, `EINVAL` (no regular file), `EPERM` by its flags.
    pub fn write_inline(&mut self, exactly: Exactly, write: &WriteInline<'_>) -> Result<(InodeView, u64)> {
        let (session, id) = (exactly.session, write.inode);
        match self.begin(exactly)? {
            Some(Outcome::Wrote(offset)) => {
                let inode = self.namespace.existing(id)?;
                return Ok((self.view(session, id, &inode, None), offset));
            }
            Some(_) => return Err(Errno::EPROTO.into()),
            None => {}
        }
        self.may_read(id)?;
        let before = self.namespace.writable(id)?;
        before.may_be_written(write.append)?;
        let limit = before.inline_limit().ok_or(Errno::EOPNOTSUPP)?;
        self.must_not_grow(id)?;
        let offset = if write.append { before.size } else { write.offset };
        if offset.saturating_add(write.bytes.len() as u64) > u64::from(limit) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.take_back(session, &[Touched::inode(id)])?;
        if !write.bytes.is_empty() {
            self.namespace.write_inline(id, before, offset as usize, write.bytes)?;
            self.contents_changed(id);
        }
        self.record(exactly, Outcome::Wrote(offset));
        let inode = self.namespace.existing(id)?;
        Ok((self.view(session, id, &inode, None), offset))
    }

    /// At most `length` bytes from `offset` on of contents that are in the metadata.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where they are in objects, `ESTALE`; `Recalling` where another session has just made the file.
    pub fn read_inline(
        &mut self,
        session: SessionId,
        id: InodeId,
        offset: u64,
        length: u32,
    ) -> Result<(InodeView, Vec<u8>)> {
        self.may_read(id)?;
        let inode = self.namespace.existing(id)?;
        self.take_back_unwritten(session, id, &inode)?;
        inode.inline_limit().ok_or(Errno::EOPNOTSUPP)?;
        let begin = offset.min(inode.size) as usize;
        let end = offset.saturating_add(u64::from(length)).min(inode.size) as usize;
        let mut bytes = if begin < end { self.namespace.contents(id, &inode)? } else { Vec::new() };
        if begin < end {
            bytes.truncate(end);
            bytes.drain(..begin);
        }
        Ok((self.leased_view(session, id, &inode, None), bytes))
    }

    /// Contents that are in the metadata will be on disk when the log is.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where they are in objects, `ESTALE`.
    pub fn sync_inline(&mut self, id: InodeId) -> Result<()> {
        self.must_not_grow(id)?;
        self.namespace.existing(id)?.inline_limit().ok_or(Errno::EOPNOTSUPP)?;
        Ok(())
    }

    /// Before a truncate, with what the client believes of the contents. Where there are objects, it has cut them under a
    /// write intent: one that has lost that since, or did not know of them, has to cut them first, or what it cuts off
    /// would come back. Unless it was alone all the time it has held the end meanwhile: where that was taken away, it may have
    /// cut the half of what another one has appended, and has to begin anew.
    pub(super) fn may_truncate(
        &mut self,
        session: SessionId,
        id: InodeId,
        inode: &Inode,
        size: u64,
        inline: bool,
    ) -> Result<()> {
        match inode.inline_limit() {
            Some(limit) if size > u64::from(limit) => Err(Errno::EOPNOTSUPP.into()),
            Some(_) => self.must_not_grow(id),
            None if inline => Err(Errno::EOPNOTSUPP.into()),
            None if inode.has(HAS_OBJECTS) && !self.has_cut_alone(session, id) => Err(Errno::EOPNOTSUPP.into()),
            None => Ok(()),
        }
    }

    /// Whether nobody else can have written to the end of the file while the session cut its objects: also not one who has
    /// closed it since.
    fn has_cut_alone(&self, session: SessionId, id: InodeId) -> bool {
        let alone = self.holds.is_exclusive(session, id) || self.locks.holds_end(session, id);
        self.holds.intends(session, id) && alone
    }

    /// The inode, with its contents in objects; begins their move where they are not.
    ///
    /// # Errors
    /// `Growing` until they are there; what the storage refused with.
    pub(super) fn grown_out(&mut self, id: InodeId, inode: Inode) -> Result<Inode> {
        if inode.inline_limit().is_none() {
            return Ok(inode);
        }
        self.must_not_grow(id)?;
        if inode.size == 0 && !inode.has(HAS_OBJECTS) {
            return Ok(self.namespace.leave_metadata(id, inode));
        }
        if let Some((errno, at)) = self.growing.refused.remove(&id)
            && self.mono_ms < at.saturating_add(FAILURE_MS)
        {
            return Err(errno.into());
        }
        self.namespace.expect_objects(id, inode);
        self.growing.under_way.insert(id, inode.has(HAS_OBJECTS));
        self.growing.begun.push(id);
        Err(Error::Growing)
    }

    /// The contents of `id` in the metadata were changed.
    pub(super) fn contents_changed(&mut self, id: InodeId) {
        if self.grace_until_ms.is_some() {
            self.growing.changed_in_grace.insert(id);
        }
    }

    /// What the session wrote under its intents from before a restart may count. Not where a power cut brought contents back
    /// that others have changed here since: theirs would go with them.
    pub(super) fn may_reclaim_intents(&self, telling: &Telling<'_>) -> bool {
        let changed = &self.growing.changed_in_grace;
        !telling.opens.iter().any(|open| open.write_intent && changed.contains(&open.inode))
    }

    pub(super) fn end_grace_of_contents(&mut self) {
        self.growing.changed_in_grace.clear();
    }

    pub(super) fn must_not_grow(&self, id: InodeId) -> Result<()> {
        if self.growing.under_way.contains_key(&id) { Err(Error::Growing) } else { Ok(()) }
    }

    /// Files whose contents are to be moved; each once. To be taken after each turn; `end_growth` is owed for each.
    pub fn take_growing(&mut self) -> Vec<InodeId> {
        std::mem::take(&mut self.growing.wanted)
    }

    /// What is to be moved; `None` where the file has gone.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn growth(&mut self, id: InodeId) -> Result<Option<Growth>> {
        let Some(inode) = self.namespace.find(id)? else { return Ok(None) };
        let (Some(limit), Some(layout)) = (inode.inline_limit(), self.namespace.layout(id, &inode)?) else {
            return Ok(None);
        };
        let contents = self.namespace.contents(id, &inode)?;
        let older = self.growing.under_way.get(&id).copied().unwrap_or(true);
        Ok(Some(Growth { layout, limit, older, contents }))
    }

    /// A move has ended. Its changes belong to the turn.
    ///
    /// # Errors
    /// Where the store fails: the move begins anew when it is asked for.
    pub fn end_growth(&mut self, id: InodeId, grown: Grown) -> Result<()> {
        self.growing.under_way.remove(&id);
        self.growing.ended = true;
        let now_ms = self.mono_ms;
        self.growing.refused.retain(|_, (_, at)| now_ms < at.saturating_add(FAILURE_MS));
        match grown {
            Grown::Again => {}
            Grown::Refused(errno) => drop(self.growing.refused.insert(id, (errno, now_ms))),
            Grown::Done => {
                if let Some(inode) = self.namespace.find(id)?.filter(|inode| inode.inline_limit().is_some()) {
                    self.namespace.leave_metadata(id, inode);
                }
            }
        }
        Ok(())
    }

    /// Whether a move has ended since the last call: what was refused with `Growing` may be tried again.
    pub fn take_ended_growth(&mut self) -> bool {
        std::mem::take(&mut self.growing.ended)
    }
}
