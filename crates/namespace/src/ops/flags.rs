//! What the flags of a file or directory permit (`chattr`): the rules of Linux, in the order in which it asks.

use types::attr::{FileType, SetAttr};
use types::error::Errno;
use types::flags::FileFlags;

use crate::error::Result;
use crate::ops::Place;
use crate::schema::inode::Inode;

/// What changes nothing of what is there.
const FIXED: FileFlags = FileFlags::IMMUTABLE.with(FileFlags::APPEND);

impl Inode {
    /// `EPERM` of what loses or gets no name, and no attribute.
    pub(crate) fn must_be_free(&self) -> Result<()> {
        if self.file_flags.has(FIXED) { Err(Errno::EPERM.into()) } else { Ok(()) }
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

    /// These flags forbid writes that were permitted.
    pub(crate) fn is_restricted_by(&self, flags: FileFlags) -> bool {
        let adds = |flag| flags.has(flag) && !self.file_flags.has(flag);
        adds(FileFlags::IMMUTABLE) || adds(FileFlags::APPEND)
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

    /// The same, and `EPERM` where `occupant`, which the name leads to, cannot lose it.
    pub(crate) fn may_lose(&self, occupant: &Inode) -> Result<()> {
        self.may_leave()?;
        occupant.must_be_free()
    }
}
