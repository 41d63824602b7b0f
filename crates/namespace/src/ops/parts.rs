//! A directory whose entries are in parts: directories of their own, each in a shard, that no name leads to.

use std::ops::ControlFlow;

use kv::Kv;
use types::error::Errno;
use types::id::InodeId;
use types::name_hash::{TIE_BITS, name_hash};
use types::parts::cookie_before;

use crate::acl;
use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::ops::readdir::PageEntry;
use crate::schema::edge::Edge;
use crate::schema::inode::{Body, HAS_DEFAULT_ACL, HAS_XATTRS, Inode, Role};
use crate::schema::{parts, xattr};
use crate::transaction::part::{Conformed, Moved};

impl<K: Kv> Namespace<K> {
    /// The parts of a directory in their order; none where it is not split.
    ///
    /// # Errors
    /// Where the store fails or the record is damaged.
    pub(crate) fn parts(&mut self, id: InodeId, inode: &Inode) -> Result<Vec<InodeId>> {
        let (Role::Split(count) | Role::Splitting { count, .. }) = inode.role() else { return Ok(Vec::new()) };
        parts::ser_key(&mut self.key, id);
        let value = self.cold.get(&self.kv, &self.key)?;
        let value = value.ok_or_else(|| Damage::new("a split directory without its parts", &self.key))?;
        let parts = parts::deser_value(&self.key, &value)?;
        if parts.len() != usize::from(count) {
            return Err(Damage::new("a split directory with another number of parts", &self.key).into());
        }
        Ok(parts)
    }

    /// A directory that can be split: `EEXIST` where it is split, or is being split, `EINVAL` where it is a part itself.
    pub(crate) fn can_be_split(&mut self, id: InodeId) -> Result<Inode> {
        let directory = self.existing(id)?;
        match directory.role() {
            _ if !directory.is_dir() => Err(Errno::ENOTDIR.into()),
            _ if directory.nlink == 0 => Err(Errno::ENOENT.into()),
            Role::Split(_) | Role::Splitting { .. } => Err(Errno::EEXIST.into()),
            Role::Part(_) | Role::Filling { .. } => Err(Errno::EINVAL.into()),
            Role::Whole => Ok(directory),
        }
    }

    /// These have its entries from now on, or will get those that it has: then true.
    pub(crate) fn divide(&mut self, id: InodeId, inode: Inode, parts: &[InodeId]) -> bool {
        parts::ser_key(&mut self.key, id);
        self.cold.put(&self.key, &parts::ser_value(parts));
        self.edges.forget_directory(id);
        let (now, count) = (self.now, parts.len() as u16);
        let inode = self.inodes.modify(id, inode);
        let fills = inode.entries() != 0;
        if let Body::Directory { role, .. } = &mut inode.body {
            *role = if fills { Role::Splitting { count, cursor: 1 } } else { Role::Split(count) };
        }
        inode.ctime = now;
        fills
    }

    /// The first names of a directory from the hash `from` on, `most` of them unless that would part names of one hash, and
    /// none with the hash `end` or above. Sees the turn's own changes.
    pub(crate) fn names_to_move(&mut self, id: InodeId, from: u64, end: u64, most: usize) -> Result<Moved> {
        let (entries, is_last) = self.entries_after(id, cookie_before(from), most)?;
        let hash = |entry: &PageEntry| entry.cookie >> TIE_BITS;
        let mut to = entries.last().map_or(end, |entry| hash(entry) + 1);
        if is_last || to >= end {
            to = end;
        }
        let entries = entries.into_iter().take_while(|entry| hash(entry) < end);
        let entries = entries.map(|entry| (entry.name, Edge { child: entry.child, kind: entry.kind })).collect();
        Ok(Moved { from, to, entries })
    }

    /// The directory has these names no more: a part has them.
    pub(crate) fn give(&mut self, id: InodeId, inode: Inode, moved: &Moved) {
        for (name, _) in &moved.entries {
            self.edges.set(id, name_hash(name), name, None);
        }
        let (given, subdirs) = moved.counts();
        let inode = self.inodes.modify(id, inode);
        inode.nlink = inode.nlink.saturating_sub(subdirs);
        if let Body::Directory { role, entries, .. } = &mut inode.body {
            *entries = entries.saturating_sub(given);
            *role = role.moved_to(moved.to);
        }
    }

    /// The part has these names from now on.
    pub(crate) fn take(&mut self, id: InodeId, inode: Inode, moved: &Moved) {
        for (name, edge) in &moved.entries {
            self.edges.set(id, name_hash(name), name, Some(*edge));
        }
        let (taken, subdirs) = moved.counts();
        let inode = self.inodes.modify(id, inode);
        inode.nlink = inode.nlink.saturating_add(subdirs);
        if let Body::Directory { role, entries, .. } = &mut inode.body {
            *entries += taken;
            *role = role.moved_to(moved.to);
        }
    }

    /// Directories of this shard that are being split, and those whose inode cannot be read: who goes on with them says so.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn being_split(&mut self) -> Result<Vec<InodeId>> {
        let mut split = Vec::new();
        self.kv.scan(&[parts::PREFIX], &[parts::PREFIX + 1], |key, _| {
            // A key that is none leads to no directory.
            split.extend(parts::deser_key(key));
            ControlFlow::Continue(())
        })?;
        let mut found = Vec::new();
        for id in split {
            match self.find(id) {
                Ok(Some(inode)) if matches!(inode.role(), Role::Splitting { .. }) => found.push(id),
                Ok(_) => {}
                Err(error) if error.is_unreadable() => found.push(id),
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// What is made in a part gets from it what the directory says.
    pub(crate) fn conform(&mut self, inode: Inode, to: &Conformed) {
        xattr::ser_key(&mut self.key, to.part, acl::DEFAULT);
        match &to.default {
            Some(value) => self.cold.put(&self.key, value),
            None if inode.has(HAS_DEFAULT_ACL) => self.cold.delete(&self.key),
            None => {}
        }
        let inode = self.inodes.modify(to.part, inode);
        let acl = HAS_XATTRS | HAS_DEFAULT_ACL;
        inode.flags = if to.default.is_some() { inode.flags | acl } else { inode.flags & !acl };
        (inode.mode, inode.uid, inode.gid) = (to.mode, to.uid, to.gid);
        inode.file_flags = to.flags;
        inode.mtime = to.mtime.unwrap_or(inode.mtime);
        if let Body::Directory { policy, .. } = &mut inode.body {
            *policy = to.policy;
        }
    }
}
