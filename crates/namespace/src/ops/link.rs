//! A further name for a file.

use kv::Kv;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::edge::Edge;
use crate::schema::inode::LINKABLE;

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `EPERM` for a directory, `ENOENT` for an unlinked file (except one that never had a name) or in a directory that
    /// is gone, `ESTALE` for a file that is gone, `ENOTDIR`, `EEXIST`, `EMLINK`.
    pub fn link(&mut self, id: InodeId, parent: InodeId, name: &Name) -> Result<()> {
        let inode = self.existing(id)?;
        let place = self.vacancy(parent, name)?;
        if inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        let unnamed = inode.nlink == 0;
        if unnamed && !inode.has(LINKABLE) {
            return Err(Errno::ENOENT.into());
        }
        if inode.nlink >= self.links_max {
            return Err(Errno::EMLINK.into());
        }
        self.enter(&place, Edge { child: id, kind: inode.kind });
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.nlink += 1;
        inode.ctime = now;
        inode.flags &= !LINKABLE;
        // With several names there is no one parent, and when one of them goes nobody knows which is left.
        inode.parent = if unnamed { parent } else { InodeId(0) };
        Ok(())
    }
}
