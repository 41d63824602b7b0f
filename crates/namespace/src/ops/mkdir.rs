//! New directories. They take their parent's policy for new files by copying it.

use kv::Kv;
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::edge::Edge;
use crate::schema::inode::{Body, Role};

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `ENOENT` (no such directory, or it was removed), `ENOTDIR`, `EEXIST`, `EMLINK`, `ENOSPC` (no inode id left).
    pub fn mkdir(&mut self, parent: InodeId, name: &Name, mode: u32, cred: Credentials) -> Result<InodeId> {
        let place = self.vacancy(parent, name)?;
        self.can_have_subdir(&place.directory)?;
        let Body::Directory { policy, .. } = place.directory.body else {
            return Err(Errno::ENOTDIR.into());
        };
        let id = self.new_id()?;
        let body = Body::Directory { entries: 0, policy, role: Role::Whole };
        let new = self.new_inode(place.home(), FileType::Directory, mode, cred, body)?;
        self.add_new_inode(id, new);
        self.enter(&place, Edge { child: id, kind: FileType::Directory });
        Ok(id)
    }
}
