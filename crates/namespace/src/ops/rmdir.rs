//! Removing an empty directory.

use kv::Kv;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::ops::remove::Fate;

impl<K: Kv> Namespace<K> {
    /// `held` asks whether somebody has the directory open: then it stays, empty, and refuses new entries.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EPERM` (flags).
    pub fn rmdir(&mut self, parent: InodeId, name: &Name, held: impl FnOnce(InodeId) -> bool) -> Result<Fate> {
        let place = self.place(parent, name)?;
        let (edge, inode) = self.occupant(&place)?;
        place.may_lose(&inode)?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if inode.entries() != 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
        let loss = self.prepare_loss(edge.child, inode, held)?;
        self.leave(&place, inode.kind);
        Ok(self.lose(loss))
    }
}
