//! What the flags of a file or directory permit (`chattr`): the rules of Linux, in the order in which it asks.

use types::attr::{FileType, S_ISGID, S_ISUID, SetAttr};
use types::error::Errno;
use types::flags::FileFlags;

use crate::error::Result;
use crate::ops::Place;
use crate::schema::inode::{HAS_CAPABILITY, Inode};

impl Inode {
    /// `EPERM` of what loses or gets no name, and no attribute.
    pub(crate) fn must_be_free(&self) -> Result<()> {
        if self.file_flags.has(FileFlags::FIXED) { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// A write at any place, or (`appends`) only at the end; `EPERM` where that may not be.
    pub(crate) fn may_be_written(&self, appends: bool) -> Result<()> {
        if self.file_flags.permit_writes(appends) { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    /// `EPERM` by the flags that there are, `EOPNOTSUPP` for flags of what has none.
    pub(crate) fn may_be_set(&self, change: &SetAttr) -> Result<()> {
        if !change.is_permitted_by(self.file_flags) {
            return Err(Errno::EPERM.into());
        }
        let has_flags = matches!(self.kind, FileType::Regular | FileType::Directory);
        if change.flags.is_some() && !has_flags { Err(Errno::EOPNOTSUPP.into()) } else { Ok(()) }
    }

    /// Whether those who write to it, which they do without asking, have to hear of what was changed: writes that were
    /// permitted are not any more, or have to take set-user-id, set-group-id or a capability.
    pub(crate) fn concerns_writers(&self, before: &Self) -> bool {
        let adds = |flag| self.file_flags.has(flag) && !before.file_flags.has(flag);
        let has_set_ids = u32::from(self.mode) & (S_ISUID | S_ISGID) != 0;
        let rights = |inode: &Self| (inode.mode, inode.uid, inode.gid);
        let may_take = self.kind == FileType::Regular && has_set_ids && rights(self) != rights(before);
        let gets_capability = self.has(HAS_CAPABILITY) && !before.has(HAS_CAPABILITY);
        adds(FileFlags::IMMUTABLE) || adds(FileFlags::APPEND) || may_take || gets_capability
    }
}

impl Place<'_> {
    /// `EPERM` where the directory gets no names.
    pub(crate) fn may_enter(&self) -> Result<()> {
        if self.directory.file_flags.has(FileFlags::IMMUTABLE) { Err(Errno::EPERM.into()) } else { Ok(()) }
    }

    /// `EPERM` where the directory loses no names, and none comes to lead to something else.
    pub(crate) fn may_leave(&self) -> Result<()> {
        self.directory.must_be_free()
    }

    /// `EPERM` where the directory loses no names, or `occupant`, which the name leads to, cannot lose it.
    pub(crate) fn may_lose(&self, occupant: &Inode) -> Result<()> {
        self.may_leave()?;
        occupant.must_be_free()
    }
}
