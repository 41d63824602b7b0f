//! The reference file system: POSIX as Linux keeps it, in memory, simple enough to be read and believed.
//!
//! It is the oracle that random operations are compared with (on the pure namespace and on real mounts), and the back
//! end of the benchmark that measures what FUSE alone costs. Time comes in as a value; permission bits are stored but
//! not checked, as in the shard: the caller's kernel checks them.
//!
//! What this crate never does: ask for the time, do I/O, or be clever.

mod data;
mod directory;
mod entry;
mod flags;
mod inode;
mod rename;
#[cfg(test)]
mod tests;
mod xattr;

use types::attr::{Attr, FileType, PERMISSION_BITS, S_ISGID, S_ISUID, SetAttr, SetTime};
use types::cred::Credentials;
use types::error::Errno;
use types::id::InodeId;
use types::time::Timestamp;

pub use directory::Listed;
pub use entry::New;
pub use rename::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
pub use xattr::{XATTR_CREATE, XATTR_REPLACE};

use crate::directory::Directory;
use crate::inode::{Content, Inode};

/// Bounds of a model, so that a test or a benchmark cannot eat the machine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest file, in bytes; beyond it is `EFBIG`.
    pub file_bytes: u64,
    /// All files together, in bytes; beyond it is `ENOSPC`.
    pub total_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file_bytes: 4 << 30, total_bytes: 16 << 30 }
    }
}

/// A whole file system. Every operation either succeeds or changes nothing.
pub struct Model {
    /// By inode id; ids are never reused.
    inodes: Vec<Option<Box<Inode>>>,
    limits: Limits,
    live_inodes: u64,
    content_bytes: u64,
}

/// What `statfs` would say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    pub inodes: u64,
    pub content_bytes: u64,
}

impl Model {
    /// An empty root directory with mode `rwxr-xr-x`, owned by `owner`.
    #[must_use]
    pub fn new(limits: Limits, owner: Credentials, now: Timestamp) -> Self {
        let mut model = Self { inodes: Vec::new(), limits, live_inodes: 1, content_bytes: 0 };
        model.inodes.resize_with(InodeId::FIRST_COUNTER as usize, || None);
        let content = Content::Directory(Directory::new(InodeId::ROOT));
        let mut root = Inode::new(InodeId::ROOT, content, FileType::Directory, 0o755, owner, now);
        root.nlink = 2;
        model.inodes[InodeId::ROOT.0 as usize] = Some(Box::new(root));
        model
    }

    /// # Errors
    /// `ESTALE` where there is no such inode (any more), as in every operation here.
    pub fn getattr(&self, inode: InodeId) -> Result<Attr, Errno> {
        self.inode(inode).map(Inode::attr)
    }

    /// chmod, chown, utimens and truncate, all at once. A new size sets mtime, unless `change` names one.
    ///
    /// # Errors
    /// `EPERM` by flags, `EOPNOTSUPP` for flags of what has none; for a size: `EISDIR` of a directory, `EINVAL` of other
    /// non-files, `EFBIG`, `ENOSPC`.
    pub fn setattr(&mut self, inode: InodeId, change: &SetAttr, now: Timestamp) -> Result<Attr, Errno> {
        self.may_set(inode, change)?;
        if let Some(size) = change.size {
            self.resize(inode, size)?;
        }
        let node = self.inode_mut(inode)?;
        if change.size.is_some() {
            node.mtime = now;
        }
        if let Some(mode) = change.mode {
            node.mode = mode & PERMISSION_BITS;
        }
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        node.flags = change.flags.unwrap_or(node.flags);
        if change.kill_suid_sgid {
            node.kill_suid_sgid();
        }
        if change.kill_sgid && node.kind != FileType::Directory {
            node.mode &= !S_ISGID;
        }
        let resolve = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        node.atime = change.atime.map_or(node.atime, resolve);
        node.mtime = change.mtime.map_or(node.mtime, resolve);
        if *change != SetAttr::default() {
            node.ctime = now;
        }
        Ok(node.attr())
    }

    /// Counts one more open handle: the inode stays after its last unlink until as many [`Model::close`].
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn open(&mut self, inode: InodeId) -> Result<Attr, Errno> {
        let node = self.inode_mut(inode)?;
        node.opens += 1;
        Ok(node.attr())
    }

    /// # Errors
    /// `ESTALE`; `EBADF` where it is not open.
    pub fn close(&mut self, inode: InodeId) -> Result<(), Errno> {
        let node = self.inode_mut(inode)?;
        node.opens = node.opens.checked_sub(1).ok_or(Errno::EBADF)?;
        self.reap(inode);
        Ok(())
    }

    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage { inodes: self.live_inodes, content_bytes: self.content_bytes }
    }

    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn inode(&self, inode: InodeId) -> Result<&Inode, Errno> {
        let slot = usize::try_from(inode.0).ok().and_then(|index| self.inodes.get(index));
        slot.and_then(|slot| slot.as_deref()).ok_or(Errno::ESTALE)
    }

    fn inode_mut(&mut self, inode: InodeId) -> Result<&mut Inode, Errno> {
        let slot = usize::try_from(inode.0).ok().and_then(|index| self.inodes.get_mut(index));
        slot.and_then(|slot| slot.as_deref_mut()).ok_or(Errno::ESTALE)
    }

    /// For inodes that a directory entry or an earlier look proves to be there.
    fn known(&mut self, inode: InodeId) -> &mut Inode {
        self.inode_mut(inode).expect("an entry's inode exists")
    }

    fn directory(&self, inode: InodeId) -> Result<&Directory, Errno> {
        match &self.inode(inode)?.content {
            Content::Directory(directory) => Ok(directory),
            Content::Regular(_) | Content::Symlink(_) | Content::Special => Err(Errno::ENOTDIR),
        }
    }

    fn known_directory(&mut self, inode: InodeId) -> &mut Directory {
        match &mut self.known(inode).content {
            Content::Directory(directory) => directory,
            Content::Regular(_) | Content::Symlink(_) | Content::Special => panic!("checked to be a directory"),
        }
    }

    /// A directory into which something is about to be put: not one that was removed while open.
    fn living_directory(&self, inode: InodeId) -> Result<&Directory, Errno> {
        let directory = self.directory(inode)?;
        if self.inode(inode)?.nlink == 0 { Err(Errno::ENOENT) } else { Ok(directory) }
    }

    fn touch_directory(&mut self, inode: InodeId, now: Timestamp) {
        let node = self.known(inode);
        node.mtime = now;
        node.ctime = now;
    }

    /// Drops the inode when nothing names it and nobody has it open.
    fn reap(&mut self, inode: InodeId) {
        let node = self.known(inode);
        if node.nlink == 0 && node.opens == 0 {
            self.content_bytes -= node.content_len();
            self.live_inodes -= 1;
            self.inodes[inode.0 as usize] = None;
        }
    }
}

impl Inode {
    fn kill_suid_sgid(&mut self) {
        const S_IXGRP: u32 = 0o010;
        if self.kind == FileType::Directory {
            return;
        }
        self.mode &= !S_ISUID;
        if self.mode & S_IXGRP != 0 {
            self.mode &= !S_ISGID;
        }
    }
}
