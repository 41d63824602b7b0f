//! A further name for a file.

use kv::Kv;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::edge::Edge;
use crate::schema::inode::{Inode, LINKABLE};

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `EPERM` for a directory or by flags, `ENOENT` for an unlinked file (except one that never had a name) or in a
    /// directory that is gone, `ESTALE` for a file that is gone, `ENOTDIR`, `EEXIST`, `EMLINK`.
    pub fn link(&mut self, id: InodeId, parent: InodeId, name: &Name) -> Result<()> {
        let inode = self.existing(id)?;
        let place = self.vacancy(parent, name)?;
        self.can_be_linked(&inode)?;
        self.enter(&place, Edge { child: id, kind: inode.kind });
        self.linked(id, inode, place.visible());
        Ok(())
    }

    /// It can get a name more: `EPERM`, `ENOENT` or `EMLINK` otherwise, as of `link`.
    pub(crate) fn can_be_linked(&self, inode: &Inode) -> Result<()> {
        inode.must_be_free()?;
        match inode.nlink {
            _ if inode.is_dir() => Err(Errno::EPERM.into()),
            0 if !inode.has(LINKABLE) => Err(Errno::ENOENT.into()),
            nlink if nlink >= self.links_max => Err(Errno::EMLINK.into()),
            _ => Ok(()),
        }
    }

    /// The file has a name more, in `parent`.
    pub(crate) fn linked(&mut self, id: InodeId, inode: Inode, parent: InodeId) {
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.nlink += 1;
        inode.ctime = now;
        inode.flags &= !LINKABLE;
        // With several names there is no one parent, and when one of them goes nobody knows which is left.
        inode.parent = if inode.nlink == 1 { parent } else { InodeId(0) };
    }
}
