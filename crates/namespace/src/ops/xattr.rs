//! Extended attributes: get, set, list, remove.

use std::collections::BTreeMap;

use kv::Kv;
use types::attr::{FileType, S_ISGID};
use types::error::Errno;
use types::id::InodeId;
use types::xattr::{CAPABILITY, check_name};

use crate::acl::{self, Acl};
use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::schema::inode::{HAS_ACCESS_ACL, HAS_CAPABILITY, HAS_DEFAULT_ACL, HAS_XATTRS, Inode};
use crate::schema::xattr;
use crate::view::{XATTR_CREATE, XATTR_KILL_SGID, XATTR_REPLACE};

const VALUE_MAX: usize = 64 << 10;
/// All names of one inode with a zero byte each.
const LIST_MAX: usize = 64 << 10;
/// All values of one inode: whoever sets or removes one looks at all of them, and others wait meanwhile.
const VALUES_MAX: usize = 1 << 20;

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
    /// (a user attribute of what is neither file nor directory, or by flags), `ENOSPC` (the names above 64 KiB
    /// together, or the values above 1 MiB). Of an ACL: `EINVAL` where it is none, `EACCES` (a default one of what is no
    /// directory), `EOPNOTSUPP` (of a symlink).
    pub fn set_xattr(&mut self, id: InodeId, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
        check(name, value, flags)?;
        let inode = self.existing(id)?;
        may_have(&inode, name)?;
        inode.must_be_free()?;
        let acl = parse_acl(&inode, name, value)?.filter(|_| name == acl::ACCESS);
        let is_kept = acl.as_ref().is_none_or(|acl| !acl.is_minimal());
        let old = self.xattr(id, &inode, name)?;
        match &old {
            Some(_) if flags & XATTR_CREATE != 0 => return Err(Errno::EEXIST.into()),
            None if flags & XATTR_REPLACE != 0 => return Err(Errno::ENODATA.into()),
            Some(old) if value.len() <= old.len() => {}
            Some(_) | None if is_kept => self.must_have_room(id, &inode, name, value)?,
            Some(_) | None => {}
        }
        if let Some(acl) = acl {
            return self.set_access_acl(id, inode, &acl, flags);
        }
        self.put_xattr(id, name, value);
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.flags |= HAS_XATTRS | flag_of(name);
        inode.ctime = now;
        Ok(())
    }

    /// The permission bits follow the list; one that says no more than they do is not kept.
    fn set_access_acl(&mut self, id: InodeId, inode: Inode, acl: &Acl, flags: u32) -> Result<()> {
        if acl.is_minimal() && inode.has(HAS_ACCESS_ACL) {
            self.drop_xattr(id, inode, acl::ACCESS)?;
        }
        let (now, inode) = (self.now, self.existing(id)?);
        if !acl.is_minimal() {
            self.put_xattr(id, acl::ACCESS, &acl.to_bytes());
        }
        let changed = self.inodes.modify(id, inode);
        if !acl.is_minimal() {
            changed.flags |= HAS_XATTRS | HAS_ACCESS_ACL;
        }
        if flags & XATTR_KILL_SGID != 0 {
            changed.mode &= !(S_ISGID as u16);
        }
        changed.mode = (changed.mode & !0o777) | acl.mode() as u16;
        changed.ctime = now;
        Ok(())
    }

    /// Keeps a record whose flag the inode has.
    pub(crate) fn put_xattr(&mut self, id: InodeId, name: &[u8], value: &[u8]) {
        xattr::ser_key(&mut self.key, id, name);
        self.cold.put(&self.key, value);
    }

    /// An inode's ACL of this name: as it is stored, and what it says.
    pub(crate) fn acl(&mut self, id: InodeId, inode: &Inode, name: &[u8]) -> Result<Option<(Vec<u8>, Acl)>> {
        if !inode.has(flag_of(name)) {
            return Ok(None);
        }
        let value = self.xattr(id, inode, name)?;
        let parsed = value.and_then(|value| Acl::parse(&value).ok().map(|acl| (value, acl)));
        xattr::ser_key(&mut self.key, id, name);
        parsed.ok_or_else(|| Damage::new("an ACL that is none", &self.key).into()).map(Some)
    }

    /// A write, or another owner: a program's capabilities are no longer what somebody trusted.
    pub(crate) fn drop_capability(&mut self, id: InodeId, inode: Inode) -> Result<()> {
        if inode.has(HAS_CAPABILITY) { self.drop_xattr(id, inode, CAPABILITY) } else { Ok(()) }
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
        inode.must_be_free()?;
        if self.xattr(id, &inode, name)?.is_none() {
            return Err(Errno::ENODATA.into());
        }
        self.drop_xattr(id, inode, name)
    }

    /// Removes one that is there.
    fn drop_xattr(&mut self, id: InodeId, inode: Inode, name: &[u8]) -> Result<()> {
        let others = self.xattr_lengths(id, &inode)?.len() > 1;
        xattr::ser_key(&mut self.key, id, name);
        self.cold.delete(&self.key);
        let now = self.now;
        let inode = self.inodes.modify(id, inode);
        inode.ctime = now;
        inode.flags &= !flag_of(name);
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
        let lengths = self.xattr_lengths(id, inode)?;
        let names: std::result::Result<_, _> =
            lengths.keys().map(|key| xattr::deser_key(key).map(|(_, name)| name.to_vec())).collect();
        Ok(names?)
    }

    /// How long each one's value is, by its key.
    fn xattr_lengths(&mut self, id: InodeId, inode: &Inode) -> Result<BTreeMap<Vec<u8>, usize>> {
        if !inode.has(HAS_XATTRS) {
            return Ok(BTreeMap::new());
        }
        let mut end = Vec::new();
        xattr::ser_key(&mut self.key, id, b"");
        xattr::ser_end(&mut end, id);
        Ok(self.cold.lengths(&self.kv, &self.key, &end)?)
    }

    /// `ENOSPC` where one that is new, or longer than before, would be too much beside the others.
    fn must_have_room(&mut self, id: InodeId, inode: &Inode, name: &[u8], value: &[u8]) -> Result<()> {
        let (mut list, mut values) = (name.len() + 1, value.len());
        for (key, length) in self.xattr_lengths(id, inode)? {
            let (_, other) = xattr::deser_key(&key)?;
            if other != name {
                list += other.len() + 1;
                values += length;
            }
        }
        if list > LIST_MAX || values > VALUES_MAX { Err(Errno::ENOSPC.into()) } else { Ok(()) }
    }
}

/// The inode's own mark for attributes that mean something to the shard.
pub(crate) fn flag_of(name: &[u8]) -> u16 {
    match name {
        acl::ACCESS => HAS_ACCESS_ACL,
        acl::DEFAULT => HAS_DEFAULT_ACL,
        CAPABILITY => HAS_CAPABILITY,
        _ => 0,
    }
}

/// What can be said of a setting without the inode.
pub(crate) fn check(name: &[u8], value: &[u8], flags: u32) -> std::result::Result<(), Errno> {
    if flags & !(XATTR_CREATE | XATTR_REPLACE | XATTR_KILL_SGID) != 0 {
        return Err(Errno::EINVAL);
    }
    check_name(name)?;
    if value.len() > VALUE_MAX { Err(Errno::E2BIG) } else { Ok(()) }
}

/// The list, where the name is one of an ACL.
fn parse_acl(inode: &Inode, name: &[u8], value: &[u8]) -> Result<Option<Acl>> {
    match name {
        acl::ACCESS | acl::DEFAULT if inode.kind == FileType::Symlink => Err(Errno::EOPNOTSUPP.into()),
        acl::DEFAULT if !inode.is_dir() => Err(Errno::EACCES.into()),
        acl::ACCESS | acl::DEFAULT => Ok(Some(Acl::parse(value)?)),
        _ => Ok(None),
    }
}

fn may_have(inode: &Inode, name: &[u8]) -> Result<()> {
    let plain = matches!(inode.kind, FileType::Regular | FileType::Directory);
    if name.starts_with(b"user.") && !plain { Err(Errno::EPERM.into()) } else { Ok(()) }
}
