//! Operations that change nothing.

use kv::Kv;
use types::id::{InodeId, SessionId};
use types::name::Name;
use types::time::AccessTimes;

use crate::error::{Error, Result};
use crate::leases::{Room, Touched};
use crate::ops::scan::{Damaged, Raw};
use crate::shard::Shard;
use crate::view::{DeletionPage, DirEntry, DirPage, EntryInfo, InodeView, Looked, ScanPage, ScanRecord};

impl<K: Kv> Shard<K> {
    /// # Errors
    /// `ENOENT` without the directory, `ENOTDIR`; `Recalling` where another session alone writes what is there.
    pub fn lookup(&mut self, session: SessionId, parent: InodeId, name: &Name) -> Result<Looked> {
        let Some(mut view) = self.look(session, parent, name)? else {
            return Ok(Looked::Absent { lease_ms: self.lease_name(session, parent, name, Room::Whole) });
        };
        self.lease_found(session, (parent, name), &mut view, Room::Whole);
        Ok(Looked::Found(view))
    }

    /// What the name stands for, without a lease.
    pub(super) fn look(&mut self, session: SessionId, parent: InodeId, name: &Name) -> Result<Option<InodeView>> {
        if self.is_spread()
            && let Some(edge) = self.read_name(parent, name)?
            && self.is_elsewhere(edge.child)
        {
            return Ok(Some(InodeView::elsewhere(edge.child, edge.kind)));
        }
        let Some((id, inode)) = self.namespace.lookup(parent, name)? else { return Ok(None) };
        self.take_back_unwritten(session, id, &inode)?;
        let layout = self.layout_if_unsettled(id, &inode)?;
        Ok(Some(self.view(session, id, &inode, layout)))
    }

    /// The leases of an answer about a name: on that, and on the inode where it is at home here.
    pub(super) fn lease_found(
        &mut self,
        session: SessionId,
        (parent, name): (InodeId, &Name),
        view: &mut InodeView,
        room: Room,
    ) {
        if !view.elsewhere {
            self.lease_view(session, view, room);
        }
        view.name_lease_ms = self.lease_name(session, parent, name, room);
    }

    /// # Errors
    /// `ESTALE` where the inode is gone; `Recalling` where another session alone writes it.
    pub fn getattr(&mut self, session: SessionId, inode: InodeId) -> Result<InodeView> {
        self.may_read(inode)?;
        let found = self.namespace.existing(inode)?;
        self.take_back_unwritten(session, inode, &found)?;
        let layout = self.layout_if_unsettled(inode, &found)?;
        Ok(self.whole_view(session, inode, &found, layout))
    }

    /// # Errors
    /// `EINVAL` where it is no symlink, `ESTALE`.
    pub fn readlink(&mut self, inode: InodeId) -> Result<Vec<u8>> {
        self.may_read(inode)?;
        self.namespace.readlink(inode)
    }

    /// Sees the turn's own changes. At most `count` entries, unless that would part entries whose names have one hash.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn readdir(
        &mut self,
        session: SessionId,
        inode: InodeId,
        cookie: u64,
        count: u32,
        attributes: bool,
    ) -> Result<DirPage> {
        self.may_read(inode)?;
        let parent = inode;
        let page = self.namespace.readdir(inode, cookie, count as usize, attributes)?;
        let mut entries = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let attributes = match &entry.inode {
                Some(_) if self.may_read(entry.child).is_err() => None,
                // Who wants to know more of it asks.
                Some(inode) if self.may_be_unwritten(session, entry.child, inode) => None,
                Some(inode) => {
                    let layout = self.layout_if_unsettled(entry.child, inode)?;
                    let mut view = self.view(session, entry.child, inode, layout);
                    self.lease_found(session, (parent, &entry.name), &mut view, Room::ForListings);
                    Some(view)
                }
                None => None,
            };
            let (inode, kind, cookie) = (entry.child, entry.kind, entry.cookie);
            entries.push(DirEntry { name: entry.name, inode, kind, cookie, attributes });
        }
        let directory = if cookie == 0 { self.directory_view(session, inode) } else { None };
        Ok(DirPage { entries, end: page.end, parent: page.parent, directory })
    }

    /// The directory is listed, or the symlink read: notes the access time where that is due by `rule`. A change, to be
    /// committed, and before the answer is made.
    ///
    /// # Errors
    /// `Recalling` where others hold leases on its attributes; `Blocked`.
    pub fn accessed(&mut self, session: SessionId, inode: InodeId, rule: AccessTimes) -> Result<()> {
        self.may_read(inode)?;
        if self.namespace.access_is_due(inode, rule)? {
            self.take_back(session, &[Touched::inode(inode)])?;
            self.namespace.accessed(inode)?;
        }
        Ok(())
    }

    /// # Errors
    /// `ENODATA` without such an attribute, `EOPNOTSUPP` for a name outside the supported spaces, `ERANGE` for a name
    /// of 0 or above 255 bytes, `ESTALE`.
    pub fn get_xattr(&mut self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.may_read(inode)?;
        self.namespace.get_xattr(inode, name)
    }

    /// Names in order; together with a zero byte each they fit in 64 KiB.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn list_xattr(&mut self, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        self.may_read(inode)?;
        self.namespace.list_xattr(inode)
    }

    /// Inodes in this shard.
    #[must_use]
    pub fn inode_count(&self) -> u64 {
        self.namespace.inode_count()
    }

    /// Sessions that are open or may come back.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Inodes that sessions hold open or intend to write.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.holds.inodes()
    }

    /// # Errors
    /// `ESTALE`; `Recalling` where another session alone writes it.
    pub fn entry_info(&mut self, session: SessionId, inode: InodeId) -> Result<EntryInfo> {
        self.may_read(inode)?;
        let belongs = self.namespace.belongs(inode)?;
        self.take_back_unwritten(session, inode, &belongs.inode)?;
        let layout = self.namespace.layout(inode, &belongs.inode)?;
        Ok(EntryInfo {
            inode: self.view(session, inode, &belongs.inode, layout),
            parent: belongs.parent,
            policy: belongs.policy,
            policy_is_own: belongs.policy_is_own,
        })
    }

    /// Committed records only: a caller that wants its turn's changes seen commits first. `after` is `next` of the page
    /// before, or empty.
    ///
    /// # Errors
    /// `EINVAL` where `after` is no such token.
    pub fn scan(&mut self, after: &[u8], count: u32) -> Result<ScanPage> {
        let (records, next) = self.namespace.scan(after, count as usize)?;
        let mut page = ScanPage { records: Vec::with_capacity(records.len()), next };
        for record in records {
            page.records.push(match record {
                Raw::Edge { parent, name, child, kind } => ScanRecord::Edge { parent, name, child, kind },
                Raw::Deletion(deletion) => ScanRecord::Deletion(deletion),
                Raw::Contents(inode, length) => ScanRecord::Contents { inode, length },
                Raw::Damaged(damaged) => ScanRecord::Damaged(damaged),
                Raw::Inode(id, inode) => match self.namespace.layout(id, &inode) {
                    Ok(layout) => ScanRecord::Inode {
                        view: self.view(SessionId(0), id, &inode, layout),
                        orphan: (inode.nlink == 0).then(|| self.holds.openers(id).len() as u32),
                    },
                    Err(Error::Damaged(damage)) => ScanRecord::Damaged(Damaged::of(damage)),
                    Err(error) => return Err(error),
                },
            });
        }
        Ok(page)
    }

    /// Objects to remove, at most `count`, in order of (inode, stripe), after the one given. Committed ones only.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn deletions(&mut self, after: Option<(InodeId, u32)>, count: usize) -> Result<DeletionPage> {
        self.namespace.deletions(after, count)
    }

    /// Files whose objects are to be removed since the last call: ask after a commit, for `deletions` has them then. The
    /// objects may go once that commit is on disk, so that nothing brings the files back.
    pub fn take_buried(&mut self) -> Vec<InodeId> {
        std::mem::take(&mut self.namespace.buried)
    }
}
