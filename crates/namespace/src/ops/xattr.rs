//! Extended attributes: get, set, list, remove.

use kv::Kv;
use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;

use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::inode::{HAS_XATTRS, Inode};
use crate::schema::xattr;
use crate::view::{XATTR_CREATE, XATTR_REPLACE};

/// As in `<linux/limits.h>`.
const NAME_MAX: usize = 255;
const VALUE_MAX: usize = 64 << 10;
/// All names of one inode with a zero byte each.
const LIST_MAX: usize = 64 << 10;

impl<K: Kv> Namespace<K> {
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP` (name space), `ERANGE` (length of the name), `EINVAL` (nothing after the prefix),
    /// `ESTALE`.
    pub fn get_xattr(&mut self, id: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        let inode = self.existing(id)?;
        self.xattr(id, &inode, name)?.ok_or_else(|| Errno::ENODATA.into())
    }

    /// # Errors
    /// As `get_xattr`; `E2BIG` (value above 64 KiB), `EEXIST` (CREATE), `ENODATA` (REPLACE), `EINVAL` (flags), `EPERM`
    /// (a user attribute of what is neither file nor directory), `ENOSPC` (the names above 64 KiB together).
    pub fn set_xattr(&mut self, id: InodeId, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        if flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
            return Err(Errno::EINVAL.into());
        }
        check_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(Errno::E2BIG.into());
        }
        let inode = self.existing(id)?;
        may_have(&inode, name)?;
        let old = self.xattr(id, &inode, name)?;
        match old {
            Some(_) if flags & XATTR_CREATE != 0 => return Err(Errno::EEXIST.into()),
            None if flags & XATTR_REPLACE != 0 => return Err(Errno::ENODATA.into()),
            Some(_) => {}
            None => {
                let names = self.xattr_names(id, &inode)?;
                if names.iter().map(|name| name.len() + 1).sum::<usize>() + name.len() + 1 > LIST_MAX {
                    return Err(Errno::ENOSPC.into());
                }
            }
        }
        xattr::ser_key(&mut self.key, id, name);
        self.cold.put(&self.key, value);
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.flags |= HAS_XATTRS;
        inode.ctime = now;
        Ok(())
    }

    /// In order.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn list_xattr(&mut self, id: InodeId) -> Result<Vec<Vec<u8>>> {
        let inode = self.existing(id)?;
        self.xattr_names(id, &inode)
    }

    /// # Errors
    /// As `get_xattr`, and `EPERM` as `set_xattr`.
    pub fn remove_xattr(&mut self, id: InodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let inode = self.existing(id)?;
        may_have(&inode, name)?;
        if self.xattr(id, &inode, name)?.is_none() {
            return Err(Errno::ENODATA.into());
        }
        let others = self.xattr_names(id, &inode)?.len() > 1;
        xattr::ser_key(&mut self.key, id, name);
        self.cold.delete(&self.key);
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.ctime = now;
        if !others {
            inode.flags &= !HAS_XATTRS;
        }
        Ok(())
    }

    fn xattr(&mut self, id: InodeId, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if !inode.has(HAS_XATTRS) {
            return Ok(None);
        }
        xattr::ser_key(&mut self.key, id, name);
        Ok(self.cold.get(&self.kv, &self.key)?)
    }

    fn xattr_names(&mut self, id: InodeId, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        if !inode.has(HAS_XATTRS) {
            return Ok(Vec::new());
        }
        let mut end = Vec::new();
        xattr::ser_key(&mut self.key, id, b"");
        xattr::ser_end(&mut end, id);
        let records = self.cold.range(&self.kv, &self.key, &end)?;
        let names: std::result::Result<_, _> =
            records.keys().map(|key| xattr::deser_key(key).map(|(_, name)| name.to_vec())).collect();
        Ok(names?)
    }
}

/// The name spaces that Weft has. POSIX ACLs are not there yet, and to store them without obeying them would be a lie.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Errno::ERANGE.into());
    }
    let spaces: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    match spaces.iter().find_map(|space| name.strip_prefix(*space)) {
        None => Err(Errno::EOPNOTSUPP.into()),
        Some([]) => Err(Errno::EINVAL.into()),
        Some(rest) if rest.contains(&0) => Err(Errno::EINVAL.into()),
        Some(_) => Ok(()),
    }
}

fn may_have(inode: &Inode, name: &[u8]) -> Result<()> {
    let plain = matches!(inode.kind, FileType::Regular | FileType::Directory);
    if name.starts_with(b"user.") && !plain { Err(Errno::EPERM.into()) } else { Ok(()) }
}
