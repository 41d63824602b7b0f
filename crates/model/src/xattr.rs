//! Extended attributes.

use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;

use crate::Model;

/// Fail with `EEXIST` where the attribute is there.
pub const XATTR_CREATE: u32 = 1;
/// Fail with `ENODATA` where it is not.
pub const XATTR_REPLACE: u32 = 2;

/// Linux's bounds, in bytes.
const XATTR_NAME_MAX: usize = 255;
const XATTR_SIZE_MAX: usize = 64 << 10;
/// Those of one inode: its names with a zero byte each, and its values.
const XATTR_LIST_MAX: usize = 64 << 10;
const XATTR_SIZES_MAX: usize = 1 << 20;

impl Model {
    /// # Errors
    /// `ENODATA`, `ESTALE`.
    pub fn getxattr(&self, inode: InodeId, name: &[u8]) -> Result<&[u8], Errno> {
        self.inode(inode)?.xattrs.get(name).map(Vec::as_slice).ok_or(Errno::ENODATA)
    }

    /// # Errors
    /// `EINVAL` for unknown flags; `ERANGE` for an empty name or one above 255 bytes, `E2BIG` for a value above
    /// 64 KiB; `EPERM` by the file's flags; `EEXIST` and `ENODATA` as the flags ask; `ENOSPC` where all
    /// names would be above 64 KiB, or all values above 1 MiB.
    pub fn setxattr(
        &mut self,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        now: Timestamp,
    ) -> Result<(), Errno> {
        self.inode(inode)?;
        if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(Errno::EINVAL);
        }
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Errno::ERANGE);
        }
        if value.len() > XATTR_SIZE_MAX {
            return Err(Errno::E2BIG);
        }
        self.must_be_free(inode)?;
        let node = self.inode_mut(inode)?;
        let present = node.xattrs.contains_key(name);
        if present && flags & XATTR_CREATE != 0 {
            return Err(Errno::EEXIST);
        }
        if !present && flags & XATTR_REPLACE != 0 {
            return Err(Errno::ENODATA);
        }
        if node.xattrs.get(name).is_none_or(|old| value.len() > old.len()) {
            let others = || node.xattrs.iter().filter(|(other, _)| *other != name);
            let list: usize = others().map(|(other, _)| other.len() + 1).sum();
            let sizes: usize = others().map(|(_, value)| value.len()).sum();
            if list + name.len() + 1 > XATTR_LIST_MAX || sizes + value.len() > XATTR_SIZES_MAX {
                return Err(Errno::ENOSPC);
            }
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        node.ctime = now;
        Ok(())
    }

    /// Names in byte order.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn listxattr(&self, inode: InodeId) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(self.inode(inode)?.xattrs.keys().cloned().collect())
    }

    /// # Errors
    /// `ENODATA`, `ESTALE`, `EPERM` by its flags.
    pub fn removexattr(&mut self, inode: InodeId, name: &[u8], now: Timestamp) -> Result<(), Errno> {
        self.must_be_free(inode)?;
        let node = self.inode_mut(inode)?;
        node.xattrs.remove(name).ok_or(Errno::ENODATA)?;
        node.ctime = now;
        Ok(())
    }
}
