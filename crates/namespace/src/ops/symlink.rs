//! Symbolic links: made and read. A target never changes.

use kv::Kv;
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::{Name, SYMLINK_MAX};

use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::schema::edge::Edge;
use crate::schema::inode::Body;
use crate::schema::symlink;

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `ENOENT` for an empty target, `ENAMETOOLONG` above 4095 bytes, `EINVAL` with a zero byte in it; and as for any
    /// new entry `ENOENT`, `ENOTDIR`, `EEXIST`.
    pub fn symlink(&mut self, parent: InodeId, name: &Name, target: &[u8], cred: Credentials) -> Result<InodeId> {
        check_target(target)?;
        let place = self.vacancy(parent, name)?;
        let id = self.new_id()?;
        let mut new = self.new_inode(place.home(), FileType::Symlink, 0o777, cred, Body::Other)?;
        new.inode.size = target.len() as u64;
        symlink::ser_key(&mut self.key, id);
        self.cold.put(&self.key, target);
        self.add_new_inode(id, new);
        self.enter(&place, Edge { child: id, kind: FileType::Symlink });
        Ok(id)
    }

    /// # Errors
    /// `EINVAL` where the inode is no symlink, `ESTALE`.
    pub fn readlink(&mut self, id: InodeId) -> Result<Vec<u8>> {
        if self.existing(id)?.kind != FileType::Symlink {
            return Err(Errno::EINVAL.into());
        }
        symlink::ser_key(&mut self.key, id);
        let target = self.cold.get(&self.kv, &self.key)?;
        let target = target.ok_or_else(|| Damage::new("a symlink without its target", &self.key))?;
        symlink::deser_value(&self.key, &target)?;
        Ok(target)
    }
}

pub(crate) fn check_target(target: &[u8]) -> std::result::Result<(), Errno> {
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    if target.len() > SYMLINK_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if target.contains(&0) { Err(Errno::EINVAL) } else { Ok(()) }
}
