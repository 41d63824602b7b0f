//! What flags permit, in the order in which Linux asks.

use types::attr::{FileType, SetAttr};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::InodeId;

use crate::Model;

impl Model {
    /// # Errors
    /// `ESTALE`.
    pub fn flags(&self, inode: InodeId) -> Result<FileFlags, Errno> {
        self.inode(inode).map(|node| node.flags)
    }

    pub(crate) fn may_set(&self, inode: InodeId, change: &SetAttr) -> Result<(), Errno> {
        let node = self.inode(inode)?;
        if !change.is_permitted_by(node.flags) {
            return Err(Errno::EPERM);
        }
        match (change.flags, node.kind) {
            (None, _) | (Some(_), FileType::Regular | FileType::Directory) => Ok(()),
            (Some(_), _) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// `EPERM` of what is fixed as it is, but for what is appended.
    pub(crate) fn must_be_free(&self, inode: InodeId) -> Result<(), Errno> {
        let fixed = FileFlags::IMMUTABLE.with(FileFlags::APPEND);
        if self.inode(inode)?.flags.has(fixed) { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Whether the contents may be written at any place, or (`appends`) at the end alone: [`Model::write`] does not ask.
    ///
    /// # Errors
    /// `EPERM`, `ESTALE`.
    pub fn may_be_written(&self, inode: InodeId, appends: bool) -> Result<(), Errno> {
        if appends { self.may_enter(inode) } else { self.must_be_free(inode) }
    }

    /// `EPERM` where a directory gets no names.
    pub(crate) fn may_enter(&self, directory: InodeId) -> Result<(), Errno> {
        if self.inode(directory)?.flags.has(FileFlags::IMMUTABLE) { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// `EPERM` where a directory loses no names, or this inode none of its own.
    pub(crate) fn may_lose(&self, directory: InodeId, inode: InodeId) -> Result<(), Errno> {
        self.must_be_free(directory)?;
        self.must_be_free(inode)
    }
}
