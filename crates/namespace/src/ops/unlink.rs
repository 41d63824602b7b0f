//! Taking a file's name away.

use kv::Kv;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::ops::remove::Fate;
use crate::schema::inode::Inode;

impl<K: Kv> Namespace<K> {
    /// `held` asks whether somebody has the inode open.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `EPERM` (flags).
    pub fn unlink(&mut self, parent: InodeId, name: &Name, held: impl FnOnce(InodeId) -> bool) -> Result<Fate> {
        self.unlink_seeing(parent, name, held, |_, _| {})
    }

    /// As `unlink`, but that `sees` is told whose name it is, before that goes.
    pub(crate) fn unlink_seeing(
        &mut self,
        parent: InodeId,
        name: &Name,
        held: impl FnOnce(InodeId) -> bool,
        sees: impl FnOnce(InodeId, &Inode),
    ) -> Result<Fate> {
        let place = self.place(parent, name)?;
        let (edge, inode) = self.occupant(&place)?;
        place.may_lose(&inode)?;
        if inode.is_dir() {
            return Err(Errno::EISDIR.into());
        }
        sees(edge.child, &inode);
        let loss = self.prepare_loss(edge.child, inode, held)?;
        self.leave(&place, inode.kind);
        Ok(self.lose(loss))
    }
}
