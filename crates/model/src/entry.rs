//! Operations that look up, make and remove single entries.

use types::attr::{Attr, FileType, PERMISSION_BITS, S_ISGID};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::name::{NAME_MAX, SYMLINK_MAX};
use types::time::Timestamp;

use crate::Model;
use crate::directory::Directory;
use crate::inode::{Content, Inode};

/// Most links to one file, as in ext4's big brothers: so many that only a test meets it.
const LINK_MAX: u32 = i32::MAX as u32;

/// What a new inode is to be.
#[derive(Clone, Debug)]
pub enum New<'a> {
    /// A regular file, device, fifo or socket. `EINVAL` for directories and symlinks.
    Node {
        kind: FileType,
        mode: u32,
        rdev: u32,
    },
    Directory {
        mode: u32,
    },
    Symlink {
        target: &'a [u8],
    },
}

impl Model {
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `ESTALE`.
    pub fn lookup(&self, parent: InodeId, name: &[u8]) -> Result<Attr, Errno> {
        let directory = self.directory(parent)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let inode = directory.get(name).ok_or(Errno::ENOENT)?;
        self.getattr(inode)
    }

    /// Makes an inode and its first entry. A set-group-id parent gives its group, and to a directory the bit as well.
    ///
    /// # Errors
    /// `EEXIST`, `ENOTDIR`, `ESTALE`; `ENOENT` in a removed directory, `EPERM` in an immutable one; `ENAMETOOLONG` and
    /// `EINVAL` for names that cannot be; of a symlink's target: `ENOENT` where empty, `ENAMETOOLONG`.
    pub fn create(
        &mut self,
        parent: InodeId,
        name: &[u8],
        new: &New<'_>,
        cred: Credentials,
        now: Timestamp,
    ) -> Result<Attr, Errno> {
        self.free_name(parent, name)?;
        let (kind, mut mode, rdev) = new.check()?;
        if kind != FileType::Symlink {
            mode &= !cred.umask;
        }
        let holder = self.inode(parent)?;
        let flags = holder.flags.inherited();
        let mut owner = cred;
        if holder.mode & S_ISGID != 0 {
            owner.gid = holder.gid;
            mode |= if kind == FileType::Directory { S_ISGID } else { 0 };
        }
        let id = InodeId(self.inodes.len() as u64);
        let content = match new {
            New::Directory { .. } => Content::Directory(Directory::new(parent)),
            New::Symlink { target } => Content::Symlink(target.to_vec()),
            New::Node { kind: FileType::Regular, .. } => Content::Regular(Vec::new()),
            New::Node { .. } => Content::Special,
        };
        let mut inode = Inode::new(id, content, kind, mode, owner, now);
        inode.rdev = rdev;
        inode.flags = flags;
        if kind == FileType::Directory {
            inode.nlink = 2;
            self.known(parent).nlink += 1;
        }
        let attr = inode.attr();
        self.inodes.push(Some(Box::new(inode)));
        self.live_inodes += 1;
        self.known_directory(parent).set(name, id);
        self.touch_directory(parent, now);
        Ok(attr)
    }

    /// # Errors
    /// `EINVAL` where the inode is no symlink.
    pub fn readlink(&self, inode: InodeId) -> Result<&[u8], Errno> {
        match &self.inode(inode)?.content {
            Content::Symlink(target) => Ok(target),
            Content::Regular(_) | Content::Directory(_) | Content::Special => Err(Errno::EINVAL),
        }
    }

    /// # Errors
    /// As for [`Model::create`]; `EPERM` for a directory or by flags, `ENOENT` for an unlinked inode, `EMLINK`.
    pub fn link(&mut self, inode: InodeId, parent: InodeId, name: &[u8], now: Timestamp) -> Result<Attr, Errno> {
        self.inode(inode)?;
        self.free_name(parent, name)?;
        self.must_be_free(inode)?;
        let node = self.inode_mut(inode)?;
        match node.nlink {
            _ if node.kind == FileType::Directory => return Err(Errno::EPERM),
            0 => return Err(Errno::ENOENT),
            LINK_MAX => return Err(Errno::EMLINK),
            _ => node.nlink += 1,
        }
        node.ctime = now;
        let attr = node.attr();
        self.known_directory(parent).set(name, inode);
        self.touch_directory(parent, now);
        Ok(attr)
    }

    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ESTALE`; `EPERM` by flags; `EISDIR` for a directory.
    pub fn unlink(&mut self, parent: InodeId, name: &[u8], now: Timestamp) -> Result<(), Errno> {
        let inode = self.lookup(parent, name)?.inode;
        self.may_lose(parent, inode)?;
        if self.is_directory(inode) {
            return Err(Errno::EISDIR);
        }
        self.known_directory(parent).remove(name);
        self.touch_directory(parent, now);
        self.drop_link(inode, now);
        Ok(())
    }

    /// # Errors
    /// `ENOENT`, `ESTALE`; `EPERM` by flags; `ENOTDIR` for anything else than a directory, `ENOTEMPTY`.
    pub fn rmdir(&mut self, parent: InodeId, name: &[u8], now: Timestamp) -> Result<(), Errno> {
        let inode = self.lookup(parent, name)?.inode;
        self.may_lose(parent, inode)?;
        if !self.directory(inode)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.known_directory(parent).remove(name);
        self.touch_directory(parent, now);
        self.known(parent).nlink -= 1;
        self.drop_link(inode, now);
        Ok(())
    }

    /// An entry of this inode is gone. A directory has only the one.
    pub(crate) fn drop_link(&mut self, inode: InodeId, now: Timestamp) {
        let node = self.known(inode);
        node.nlink = if node.kind == FileType::Directory { 0 } else { node.nlink - 1 };
        node.ctime = now;
        self.reap(inode);
    }

    fn free_name(&self, parent: InodeId, name: &[u8]) -> Result<(), Errno> {
        let directory = self.living_directory(parent)?;
        check_name(name)?;
        if directory.get(name).is_some() { Err(Errno::EEXIST) } else { self.may_enter(parent) }
    }
}

impl New<'_> {
    fn check(&self) -> Result<(FileType, u32, u32), Errno> {
        match *self {
            New::Node { kind: FileType::Directory | FileType::Symlink, .. } => Err(Errno::EINVAL),
            New::Node { kind: kind @ (FileType::CharDevice | FileType::BlockDevice), mode, rdev } => {
                Ok((kind, mode & PERMISSION_BITS, rdev))
            }
            New::Node { kind, mode, .. } => Ok((kind, mode & PERMISSION_BITS, 0)),
            New::Directory { mode } => Ok((FileType::Directory, mode & PERMISSION_BITS, 0)),
            New::Symlink { target: [] } => Err(Errno::ENOENT),
            New::Symlink { target } if target.len() > SYMLINK_MAX => Err(Errno::ENAMETOOLONG),
            New::Symlink { .. } => Ok((FileType::Symlink, 0o777, 0)),
        }
    }
}

/// The rule of `types::name::Name`, without making one.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let forbidden = name.is_empty() || name == b"." || name == b".." || name.iter().any(|&b| b == b'/' || b == 0);
    if forbidden { Err(Errno::EINVAL) } else { Ok(()) }
}
