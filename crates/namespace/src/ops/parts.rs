//! A directory whose entries are in parts: directories of their own, each in a shard, that no name leads to.

use kv::Kv;
use types::error::Errno;
use types::id::InodeId;

use crate::acl;
use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::schema::inode::{Body, HAS_DEFAULT_ACL, HAS_XATTRS, Inode, Role};
use crate::schema::{parts, xattr};
use crate::transaction::part::Conformed;

impl<K: Kv> Namespace<K> {
    /// The parts of a directory in their order; none where it is not split.
    ///
    /// # Errors
    /// Where the store fails or the record is damaged.
    pub(crate) fn parts(&mut self, id: InodeId, inode: &Inode) -> Result<Vec<InodeId>> {
        let Role::Split(count) = inode.role() else { return Ok(Vec::new()) };
        parts::ser_key(&mut self.key, id);
        let value = self.cold.get(&self.kv, &self.key)?;
        let value = value.ok_or_else(|| Damage::new("a split directory without its parts", &self.key))?;
        let parts = parts::deser_value(&self.key, &value)?;
        if parts.len() != usize::from(count) {
            return Err(Damage::new("a split directory with another number of parts", &self.key).into());
        }
        Ok(parts)
    }

    /// A directory that can be split: `ENOTEMPTY` where it has entries, `EEXIST` where it is split, `EINVAL` where it is a
    /// part itself.
    pub(crate) fn can_be_split(&mut self, id: InodeId) -> Result<Inode> {
        let directory = self.existing(id)?;
        match directory.role() {
            _ if !directory.is_dir() => Err(Errno::ENOTDIR.into()),
            _ if directory.nlink == 0 => Err(Errno::ENOENT.into()),
            Role::Split(_) => Err(Errno::EEXIST.into()),
            Role::Part(_) => Err(Errno::EINVAL.into()),
            Role::Whole if directory.entries() != 0 => Err(Errno::ENOTEMPTY.into()),
            Role::Whole => Ok(directory),
        }
    }

    /// These have its entries from now on.
    pub(crate) fn divide(&mut self, id: InodeId, inode: Inode, parts: &[InodeId]) {
        parts::ser_key(&mut self.key, id);
        self.cold.put(&self.key, &parts::ser_value(parts));
        self.edges.forget_directory(id);
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        if let Body::Directory { role, .. } = &mut inode.body {
            *role = Role::Split(parts.len() as u16);
        }
        inode.ctime = now;
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
        inode.mtime = to.mtime.unwrap_or(inode.mtime);
        if let Body::Directory { policy, .. } = &mut inode.body {
            *policy = to.policy;
        }
    }
}
