//! Operations that change nothing.

use kv::Kv;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::name::Name;

use crate::error::Result;
use crate::shard::Shard;
use crate::view::{Deletion, DirPage, EntryInfo, InodeView, ScanPage};

impl<K: Kv> Shard<K> {
    /// # Errors
    /// `ENOENT` without such a name or without the directory, `ENOTDIR`.
    pub fn lookup(&mut self, _session: SessionId, _parent: InodeId, _name: &Name) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ESTALE` where the inode is gone.
    pub fn getattr(&mut self, _session: SessionId, _inode: InodeId) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `EINVAL` where it is no symlink, `ESTALE`.
    pub fn readlink(&mut self, _inode: InodeId) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS.into())
    }

    /// Sees the turn's own changes. At most `count` entries, unless that would part entries whose names have one hash.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn readdir(
        &mut self,
        _session: SessionId,
        _inode: InodeId,
        _cookie: u64,
        _count: u32,
        _attributes: bool,
    ) -> Result<DirPage> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENODATA` without such an attribute, `EOPNOTSUPP` for a name outside the supported spaces, `ERANGE` for a name
    /// of 0 or above 255 bytes, `ESTALE`.
    pub fn get_xattr(&mut self, _inode: InodeId, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::ENOSYS.into())
    }

    /// Names in order; together with a zero byte each they fit in 64 KiB.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn list_xattr(&mut self, _inode: InodeId) -> Result<Vec<Vec<u8>>> {
        Err(Errno::ENOSYS.into())
    }

    /// Inodes in this shard.
    #[must_use]
    pub fn inode_count(&self) -> u64 {
        0
    }

    /// # Errors
    /// `ESTALE`.
    pub fn entry_info(&mut self, _session: SessionId, _inode: InodeId) -> Result<EntryInfo> {
        Err(Errno::ENOSYS.into())
    }

    /// Committed records only: a caller that wants its turn's changes seen commits first. `after` is `next` of the page
    /// before, or empty.
    ///
    /// # Errors
    /// `EINVAL` where `after` is no such token.
    pub fn scan(&mut self, _after: &[u8], _count: u32) -> Result<ScanPage> {
        Err(Errno::ENOSYS.into())
    }

    /// Objects to remove, at most `count`, in order of (inode, stripe), after the one given. Committed ones only.
    ///
    /// # Errors
    /// Where the store fails.
    pub fn deletions(&mut self, _after: Option<(InodeId, u32)>, _count: usize) -> Result<Vec<Deletion>> {
        Err(Errno::ENOSYS.into())
    }
}
