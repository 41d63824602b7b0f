//! Files without a name (`O_TMPFILE`): held open by who makes them, gone with the last close, unless they get a name.

use kv::Kv;
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::inode::LINKABLE;

impl<K: Kv> Namespace<K> {
    /// A regular file with what a file made in `parent` gets, but no name. The caller holds it open.
    ///
    /// # Errors
    /// `ENOENT` (no such directory, or it was removed), `ENOTDIR`, `EPERM` (it is immutable), `ENOSPC` where the pool has no
    /// group.
    pub fn tmpfile(&mut self, parent: InodeId, mode: u32, cred: Credentials) -> Result<InodeId> {
        let directory = self.directory(parent)?;
        if directory.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        directory.may_be_written(true)?;
        let (body, wide) = self.stripe(&directory)?;
        let mut new = self.new_inode((parent, &directory), FileType::Regular, mode, cred, body)?;
        new.inode.nlink = 0;
        new.inode.flags |= LINKABLE;
        let id = self.new_id()?;
        self.keep_layout(id, wide);
        self.add_new_inode(id, new);
        Ok(id)
    }
}
