//! Access times, by the rule that the mount has chosen ([`AccessTimes`]).

use kv::Kv;
use types::flags::FileFlags;
use types::id::InodeId;
use types::time::AccessTimes;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::view::TimeChange;

impl<K: Kv> Namespace<K> {
    /// Whether an access to a directory or a symlink, now, is noted by `rule`. What is gone is no error.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn access_is_due(&mut self, id: InodeId, rule: AccessTimes) -> Result<bool> {
        let now = self.now;
        let found = self.find(id)?;
        let found = found.filter(|inode| !inode.file_flags.has(FileFlags::NOATIME));
        Ok(found.is_some_and(|inode| rule.access_is_due(inode.atime, inode.mtime.max(inode.ctime), now)))
    }

    /// A directory was listed or a symlink read, now. What is gone is no error.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn accessed(&mut self, id: InodeId) -> Result<()> {
        let now = self.now;
        if let Some(inode) = self.find(id)? {
            self.inodes.modify(id, inode).atime = now;
        }
        Ok(())
    }

    /// A client has read a file. Where the access time is no longer the one that it knew before, somebody set it or
    /// read the file meanwhile, which stays.
    ///
    /// # Errors
    /// Where the store fails.
    pub(crate) fn was_read(&mut self, id: InodeId, read: TimeChange) -> Result<()> {
        if let Some(inode) = self.find(id)?
            && inode.atime == read.before
            && !inode.file_flags.has(FileFlags::NOATIME)
        {
            self.inodes.modify(id, inode).atime = read.at;
        }
        Ok(())
    }
}
