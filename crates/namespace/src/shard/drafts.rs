//! Drafts: files of which their maker may have kept back all that was done to them since it made them.
//!
//! Who makes a file that has its contents in the metadata, alone has it open and holds a lease on it, may keep back its
//! contents, times, mode and owner, and say all at once ([`Shard::settle`]). Whoever else is told of the file, or changes
//! it, takes that lease back first, and then the maker says it before it gives the lease up. From then on it is nobody's
//! draft, and what its maker says later is refused: it was silent for longer than its lease, and others were told without
//! it.
//!
//! That a file is a draft is on record (`DRAFT`): after a restart makers claim theirs. Until all sessions are back, who asks
//! for a file that is on record as a draft waits as above while leases are presumed, and then the record goes: no later
//! incarnation believes the maker, however long it was away.

use kv::Kv;
use types::attr::PERMISSION_BITS;
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, SessionId};

use crate::error::Result;
use crate::leases::Room;
use crate::schema::inode::{DRAFT, HAS_XATTRS, Inode};
use crate::schema::session::Outcome;
use crate::shard::Shard;
use crate::view::{Drafted, Exactly, InodeView};

impl<K: Kv> Shard<K> {
    /// `session` has just made the file with its contents in the metadata, and has it open. What an ACL makes of a mode, and
    /// what flags permit, only the shard decides. The inode as it is then.
    pub(super) fn begin_draft(&mut self, session: SessionId, id: InodeId, inode: Inode) -> Inode {
        if inode.has(HAS_XATTRS) || inode.file_flags != FileFlags::NONE {
            return inode;
        }
        self.holds.draft(session, id);
        let inode = self.namespace.inodes.modify(id, inode);
        inode.flags |= DRAFT;
        *inode
    }

    /// A session that is yet to come back may claim it.
    fn may_be_claimed(&self, inode: &Inode) -> bool {
        self.grace_until_ms.is_some() && inode.has(DRAFT)
    }

    /// A session that is yet to come back may claim it, or one that has come back so late that it may do so only after
    /// another restart.
    fn may_ever_be_claimed(&self) -> bool {
        self.grace_until_ms.is_some() || self.has_late
    }

    pub(super) fn is_on_record(&self, inode: &Inode) -> bool {
        self.may_ever_be_claimed() && inode.has(DRAFT)
    }

    pub(super) fn may_be_draft_of_others(&self, session: SessionId, id: InodeId, inode: &Inode) -> bool {
        match self.holds.drafter(id) {
            Some(drafter) => drafter != session,
            None => self.may_be_claimed(inode),
        }
    }

    /// A session that has come back says that it is its draft.
    pub(super) fn may_reclaim_draft(&self, id: InodeId, inode: &Inode) -> bool {
        self.may_be_claimed(inode) && self.holds.drafter(id).is_none()
    }

    /// Nobody but `session` holds a lease on the inode any more, and it is going to be told of it, or to change it: what
    /// others have kept back and not said by now does not count.
    pub(super) fn end_drafts_of_others(&mut self, session: SessionId, id: InodeId) -> Result<()> {
        let drafter = self.holds.drafter(id);
        if drafter == Some(session) || (drafter.is_none() && !self.may_ever_be_claimed()) {
            return Ok(());
        }
        let inode = self.namespace.find(id)?.filter(|inode| inode.has(DRAFT));
        if inode.is_some() && !self.takes_changes() {
            return Err(Errno::EIO.into());
        }
        self.holds.end_draft(id);
        if let Some(inode) = inode {
            self.namespace.inodes.modify(id, inode).flags &= !DRAFT;
        }
        Ok(())
    }

    /// # Errors
    /// `ECANCELED` where it is not the session's draft (any more); `Blocked`, `Growing`.
    pub(super) fn may_publish(&mut self, session: SessionId, id: InodeId) -> Result<()> {
        if self.holds.drafter(id) != Some(session) {
            return Err(Errno::ECANCELED.into());
        }
        self.may_read(id)?;
        self.must_not_grow(id)
    }

    /// What the maker has kept back of its draft; the inode as it is then.
    ///
    /// # Errors
    /// `EOPNOTSUPP` with contents that cannot be in the metadata.
    pub(super) fn publish(&mut self, session: SessionId, id: InodeId, inode: Inode, drafted: Drafted) -> Result<Inode> {
        if let Some(contents) = &drafted.contents
            && inode.inline_limit().is_none_or(|limit| contents.len() > limit as usize)
        {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.holds.end_draft(id);
        let inode = self.namespace.publish(id, inode, drafted);
        // By the clock of the client, as the times of its writes.
        self.holds.mtime_set(session, id, inode.ctime);
        Ok(inode)
    }

    /// [`Shard::write_intent`] for a file that is, and stays, the session's draft. With a lease, since that of its making may
    /// be over.
    ///
    /// # Errors
    /// As that, and `ECANCELED` where it is none.
    pub fn write_intent_of_draft(&mut self, exactly: Exactly, id: InodeId, cuts: bool) -> Result<InodeView> {
        let done: Option<Outcome> = self.begin(exactly)?;
        if done.is_none() && self.holds.drafter(id) != Some(exactly.session) {
            return Err(Errno::ECANCELED.into());
        }
        let mut view = self.write_intent(exactly, id, cuts)?;
        if view.draft {
            // Also where it was given by an incarnation before, whose answer did not arrive.
            view.exclusive = self.holds.intends_alone(exactly.session, id);
            self.lease_view(exactly.session, &mut view, Room::Whole);
        }
        Ok(view)
    }
}

impl<K: Kv> crate::namespace::Namespace<K> {
    fn publish(&mut self, id: InodeId, inode: Inode, drafted: Drafted) -> Inode {
        let inode = self.inodes.modify(id, inode);
        inode.flags &= !DRAFT;
        inode.mode = (drafted.mode & PERMISSION_BITS) as u16;
        (inode.uid, inode.gid) = (drafted.uid, drafted.gid);
        (inode.atime, inode.mtime) = (drafted.atime, drafted.mtime);
        // Its name may have changed meanwhile.
        inode.ctime = inode.ctime.max(drafted.ctime);
        if let Some(contents) = &drafted.contents {
            inode.resize_inline(contents.len() as u64);
        }
        let inode = *inode;
        if let Some(contents) = drafted.contents {
            self.put_contents(id, contents);
        }
        inode
    }
}
