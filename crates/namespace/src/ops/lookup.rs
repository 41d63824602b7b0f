//! From a name to its inode.

use kv::Kv;
use types::id::InodeId;
use types::name::Name;

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::schema::inode::Inode;

impl<K: Kv> Namespace<K> {
    /// What the name stands for; `None` where it is absent.
    ///
    /// # Errors
    /// `ENOENT` without the directory, `ENOTDIR`.
    pub fn lookup(&mut self, parent: InodeId, name: &Name) -> Result<Option<(InodeId, Inode)>> {
        let place = self.place(parent, name)?;
        if place.edge.is_none() {
            return Ok(None);
        }
        let (edge, inode) = self.occupant(&place)?;
        Ok(Some((edge.child, inode)))
    }

    /// The inode that the name stands for, not looked at; `None` also where there is no such directory.
    ///
    /// # Errors
    /// Where the store fails or a record is damaged.
    pub(crate) fn child(&mut self, parent: InodeId, name: &Name) -> Result<Option<InodeId>> {
        match self.place(parent, name) {
            Ok(place) => Ok(place.edge.map(|edge| edge.child)),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
