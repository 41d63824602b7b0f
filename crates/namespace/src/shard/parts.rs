//! Directories that are split: making them so, telling their parts, and keeping these alike.

use kv::Kv;
use types::attr::{S_ISGID, SetAttr};
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::parts::{PARTS_MAX, PARTS_MIN, PartNumber};

use crate::acl::{self, Acl};
use crate::error::{Error, Result};
use crate::leases::Touched;
use crate::ops::set::apply;
use crate::schema::inode::{Body, HAS_DEFAULT_ACL, Inode, Role};
use crate::schema::session::Outcome;
use crate::shard::Shard;
use crate::transaction::part::{Conformed, NewDirectory};
use crate::transaction::plan::{DirectoryChange, Operation};
use crate::view::{Exactly, Parts, XATTR_KILL_SGID};

impl<K: Kv> Shard<K> {
    /// The parts of a directory, none where it is not split.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`.
    pub fn parts(&mut self, inode: InodeId) -> Result<Parts> {
        self.may_read(inode)?;
        let found = self.namespace.existing(inode)?;
        if !found.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let cursor = if let Role::Splitting { cursor, .. } = found.role() { cursor } else { 0 };
        Ok(Parts { parts: self.namespace.parts(inode, &found)?, cursor, parent: found.parent })
    }

    /// Splits a directory into so many parts, each in another shard. What entries it has go there from then on
    /// (`go_on_splitting`).
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`; `EEXIST` where it is split already, or begins to be, `EINVAL` for an impossible number or more than
    /// there are shards. `Recalling` also while somebody may believe what is told of names in it.
    pub fn split(&mut self, exactly: Exactly, inode: InodeId, count: u16) -> Result<Parts> {
        match self.begin(exactly)? {
            Some(Outcome::Inode(inode)) => return self.parts(inode),
            Some(_) => return Err(Errno::EPROTO.into()),
            None => {}
        }
        self.begin_split(exactly, inode, count)?;
        self.parts(inode)
    }

    /// Begins the transaction that gives a directory its parts: `Blocked` by it.
    pub(super) fn begin_split(&mut self, exactly: Exactly, inode: InodeId, count: u16) -> Result<()> {
        self.may_read(inode)?;
        let homes = self.namespace.homes_of_parts(count).filter(|_| (PARTS_MIN..=PARTS_MAX).contains(&count));
        let homes = homes.ok_or(Errno::EINVAL)?;
        let directory = self.namespace.can_be_split(inode)?;
        // Nobody can be told to forget names that are not there: they are not told any more.
        if !self.leases.are_names_free(inode) {
            return Err(Error::Recalling);
        }
        self.take_back(SessionId(0), &[Touched::inode(inode)])?;
        let parts = homes.into_iter().zip(self.new_parts(inode, &directory, count)?).collect();
        self.start(exactly, Operation::Split { inode, parts })
    }

    /// The parts that a directory is to have, in their order.
    pub(crate) fn new_parts(&mut self, id: InodeId, directory: &Inode, count: u16) -> Result<Vec<NewDirectory>> {
        let all = self.conformed(id, directory)?;
        Ok((0..count).map(|index| all.new_part(id, directory, PartNumber { index, count })).collect())
    }

    /// Goes on where the change of `inode` leaves no parts behind: it has none, or they need not know.
    pub(super) fn reform(
        &mut self,
        exactly: Exactly,
        id: InodeId,
        inode: &Inode,
        change: DirectoryChange,
    ) -> Result<()> {
        // The parts of one that was removed are gone.
        if !inode.is_split() || inode.nlink == 0 {
            return if inode.is_dir() { self.transactions.locks.may_reform(id) } else { Ok(()) };
        }
        let mut all = self.conformed(id, inode)?;
        let before = all.clone();
        match &change {
            DirectoryChange::Set(SetAttr { size: Some(_), .. }) => return Ok(()),
            DirectoryChange::Set(set) => {
                let mut after = *inode;
                apply(&mut after, set, self.namespace.now);
                (all.mode, all.uid, all.gid, all.flags) = (after.mode, after.uid, after.gid, after.file_flags);
                all.mtime = set.mtime.map(|_| after.mtime);
            }
            DirectoryChange::Policy(policy) => all.policy = self.namespace.changed_policy(inode, policy)?,
            DirectoryChange::SetXattr { name, value, .. } if name == acl::DEFAULT => {
                Acl::parse(value)?;
                all.default = Some(value.clone());
            }
            DirectoryChange::SetXattr { name, flags, .. } if name == acl::ACCESS && flags & XATTR_KILL_SGID != 0 => {
                all.mode &= !(S_ISGID as u16);
            }
            DirectoryChange::RemoveXattr(name) if name == acl::DEFAULT => all.default = None,
            DirectoryChange::SetXattr { .. } | DirectoryChange::RemoveXattr(_) => {}
        }
        if all == before {
            return Ok(());
        }
        let parts = self.namespace.parts(id, inode)?;
        let parts = parts.into_iter().map(|part| Conformed { part, ..all.clone() }).collect();
        self.start(exactly, Operation::Reform { inode: id, change, parts })
    }

    /// What the parts of a directory have to have as it has it now.
    fn conformed(&mut self, id: InodeId, inode: &Inode) -> Result<Conformed> {
        let Body::Directory { policy, .. } = inode.body else { return Err(Errno::ENOTDIR.into()) };
        let default = if inode.has(HAS_DEFAULT_ACL) { self.namespace.acl(id, inode, acl::DEFAULT)? } else { None };
        let (mode, uid, gid, flags) = (inode.mode, inode.uid, inode.gid, inode.file_flags);
        let default = default.map(|(value, _)| value);
        Ok(Conformed { part: InodeId(0), mode, uid, gid, flags, policy, default, mtime: None })
    }

    /// The coordinator's own part of a `Reform`.
    pub(crate) fn change_directory(&mut self, id: InodeId, change: &DirectoryChange) -> Result<()> {
        match change {
            DirectoryChange::Set(set) => self.namespace.set(id, set),
            DirectoryChange::Policy(policy) => self.namespace.set_policy(id, policy),
            DirectoryChange::SetXattr { name, value, flags } => self.namespace.set_xattr(id, name, value, *flags),
            DirectoryChange::RemoveXattr(name) => self.namespace.remove_xattr(id, name),
        }
    }
}

impl Conformed {
    fn new_part(&self, of: InodeId, directory: &Inode, part: PartNumber) -> NewDirectory {
        let Self { mode, uid, gid, flags, policy, default, .. } = self.clone();
        let (id, time, access) = (InodeId(0), directory.mtime, None);
        let (part, fills) = (Some(part), directory.entries() != 0);
        let (parent, at_once) = (of, false);
        NewDirectory { id, parent, mode, uid, gid, flags, time, policy, access, default, part, fills, at_once }
    }
}
