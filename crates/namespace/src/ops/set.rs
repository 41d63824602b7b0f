//! Changing attributes: chmod, chown, utimens, and the size after a truncate of the objects.

use kv::Kv;
use types::attr::{FileType, PERMISSION_BITS, SetAttr, SetTime};
use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;

use crate::acl;
use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::inode::Inode;

/// Largest size of a file, in bytes; the arithmetic of striping ends here.
pub(crate) const SIZE_MAX: u64 = 1 << 62;

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `ESTALE`; `EPERM` by its flags; with a size `EISDIR`, `EINVAL` where it is no regular file, `EFBIG`; `EOPNOTSUPP` for
    /// the mode of a symlink, flags of what has none, or a size above the limit for contents in the metadata where these are
    /// there.
    pub fn set(&mut self, id: InodeId, change: &SetAttr) -> Result<()> {
        let inode = self.existing(id)?;
        inode.may_be_set(change)?;
        if let Some(size) = change.size {
            must_be_file(&inode)?;
            if size > SIZE_MAX {
                return Err(Errno::EFBIG.into());
            }
            if inode.inline_limit().is_some_and(|limit| size > u64::from(limit)) {
                return Err(Errno::EOPNOTSUPP.into());
            }
        }
        if change.mode.is_some() && inode.kind == FileType::Symlink {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if *change == SetAttr::default() {
            return Ok(());
        }
        let acl = match change.mode {
            Some(_) => self.acl(id, &inode, acl::ACCESS)?,
            None => None,
        };
        let contents = match change.size.filter(|_| inode.inline_limit().is_some()) {
            Some(size) => Some(self.truncated_contents(id, &inode, size)?),
            None => None,
        };
        if change.uid.is_some() || change.gid.is_some() || change.size.is_some() || change.kill_suid_sgid {
            self.drop_capability(id, inode)?;
        }
        let inode = self.existing(id)?;
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        apply(inode, change, now);
        inode.ctime = now;
        if let Some(contents) = contents {
            inode.resize_inline(contents.len() as u64);
            self.put_contents(id, contents);
        }
        let inode = self.existing(id)?;
        if let Some((_, mut acl)) = acl {
            acl.chmod(u32::from(inode.mode));
            let value = acl.to_bytes();
            self.put_xattr(id, acl::ACCESS, &value);
        }
        Ok(())
    }
}

/// The change without its marks in other records.
pub(crate) fn apply(inode: &mut Inode, change: &SetAttr, now: Timestamp) {
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::At(time) => time,
    };
    let mode = u32::from(inode.mode);
    let is_dir = inode.is_dir();
    let mode = if is_dir { change.mode.unwrap_or(mode) & PERMISSION_BITS } else { change.mode_of_file(mode) };
    inode.mode = mode as u16;
    inode.uid = change.uid.unwrap_or(inode.uid);
    inode.gid = change.gid.unwrap_or(inode.gid);
    inode.file_flags = change.flags.unwrap_or(inode.file_flags);
    if let Some(size) = change.size {
        inode.size = size;
        if size == 0 {
            inode.blocks = 0;
        }
        inode.mtime = now;
    }
    if let Some(atime) = change.atime {
        inode.atime = time(atime);
    }
    if let Some(mtime) = change.mtime {
        inode.mtime = time(mtime);
    }
}

/// `EISDIR` or `EINVAL` of what has no bytes.
pub(crate) fn must_be_file(inode: &Inode) -> Result<()> {
    match inode.kind {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Errno::EISDIR.into()),
        FileType::Fifo | FileType::CharDevice | FileType::BlockDevice | FileType::Symlink | FileType::Socket => {
            Err(Errno::EINVAL.into())
        }
    }
}
