//! From a name to its inode.

use kv::Kv;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::inode::Inode;

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `ENOENT` without such a name or without the directory, `ENOTDIR`.
    pub fn lookup(&mut self, parent: InodeId, name: &Name) -> Result<(InodeId, Inode)> {
        let place = self.place(parent, name)?;
        let (edge, inode) = self.occupant(&place)?;
        Ok((edge.child, inode))
    }
}
