//! Operations that change the namespace, each at most once however often it is asked for.
//!
//! All of them, beside the errors they name: `ENOTCONN` where the session is not open here (the client opens it and
//! repeats), `EBUSY` where the session has too many answers unacknowledged, `EPROTO` where the identity is impossible
//! (sequence 0, or below `answered_below`), `ENOSPC`/`EIO` where the store fails.

use kv::Kv;
use types::attr::SetAttr;
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::Result;
use crate::shard::Shard;
use crate::view::{Create, Deletion, EntryInfo, Exactly, InodeView, PolicyChange, Rename, Settle, Settled};

impl<K: Kv> Shard<K> {
    /// # Errors
    /// `ESTALE`; with a size `EISDIR`, `EINVAL` (no regular file), `EFBIG`; `EOPNOTSUPP` for the mode of a symlink.
    pub fn set(&mut self, _exactly: Exactly, _inode: InodeId, _change: &SetAttr) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENOENT` (no such directory, or removed), `ENOTDIR`, `EEXIST`, `EISDIR` (not exclusive, and a directory is
    /// there), `ELOOP` (the same with a symlink), `EINVAL` (kind), `ENOSPC` (no group in the pool).
    pub fn create(&mut self, _exactly: Exactly, _create: &Create<'_>) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EEXIST`, `EMLINK`.
    pub fn mkdir(
        &mut self,
        _exactly: Exactly,
        _parent: InodeId,
        _name: &Name,
        _mode: u32,
        _cred: Credentials,
    ) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENOENT` (also an empty target), `ENAMETOOLONG` (target above 4095 bytes), `EINVAL` (a zero byte in it),
    /// `ENOTDIR`, `EEXIST`.
    pub fn symlink(
        &mut self,
        _exactly: Exactly,
        _parent: InodeId,
        _name: &Name,
        _target: &[u8],
        _cred: Credentials,
    ) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `EPERM` (a directory), `ENOENT` (unlinked, or no such directory), `ESTALE`, `ENOTDIR`, `EEXIST`, `EMLINK`.
    pub fn link(&mut self, _exactly: Exactly, _inode: InodeId, _parent: InodeId, _name: &Name) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`.
    pub fn unlink(&mut self, _exactly: Exactly, _parent: InodeId, _name: &Name) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub fn rmdir(&mut self, _exactly: Exactly, _parent: InodeId, _name: &Name) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `EEXIST` (NOREPLACE), `ENOTEMPTY`, `EINVAL` (into itself, or flags), `EMLINK`.
    pub fn rename(&mut self, _exactly: Exactly, _rename: &Rename<'_>) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ESTALE`, `EISDIR`, `EINVAL` (no regular file), `EBUSY` (too many opens).
    pub fn write_intent(&mut self, _exactly: Exactly, _inode: InodeId) -> Result<InodeView> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ESTALE`, `EISDIR`, `EINVAL` (no regular file), `EFBIG`.
    pub fn settle(&mut self, _exactly: Exactly, _settle: &Settle) -> Result<Settled> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `E2BIG` (value above 64 KiB), `ERANGE` (name), `EOPNOTSUPP` (name space), `EEXIST` (CREATE), `ENODATA`
    /// (REPLACE), `EINVAL` (flags), `EPERM` (user attribute of what is neither file nor directory), `ENOSPC` (names of
    /// the inode above 64 KiB together), `ESTALE`.
    pub fn set_xattr(
        &mut self,
        _exactly: Exactly,
        _inode: InodeId,
        _name: &[u8],
        _value: &[u8],
        _flags: u32,
    ) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENODATA`, `ERANGE`, `EOPNOTSUPP`, `EPERM`, `ESTALE`.
    pub fn remove_xattr(&mut self, _exactly: Exactly, _inode: InodeId, _name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS.into())
    }

    /// # Errors
    /// `ENOTDIR`, `EINVAL` (values, or a pool that `set_pools` did not name), `ESTALE`.
    pub fn set_policy(&mut self, _exactly: Exactly, _inode: InodeId, _change: &PolicyChange) -> Result<EntryInfo> {
        Err(Errno::ENOSYS.into())
    }

    /// The objects are gone from their storage groups. Not a request of a session; harmless twice.
    pub fn deletions_done(&mut self, _done: &[Deletion]) {}
}
