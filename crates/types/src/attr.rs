//! Inode attributes as every layer passes them.

use crate::flags::FileFlags;
use crate::id::InodeId;
use crate::time::Timestamp;

/// What kind of thing an inode is. The numbers are those of `d_type` in `<dirent.h>` and are persisted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FileType {
    Fifo = 1,
    CharDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    Regular = 8,
    Symlink = 10,
    Socket = 12,
}

impl FileType {
    #[must_use]
    pub fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// From the type bits of `st_mode`.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        Self::from_u8(((mode & 0o170_000) >> 12) as u8)
    }

    /// The type bits of `st_mode`.
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        u32::from(self as u8) << 12
    }
}

/// Set-user-id, set-group-id and sticky bits of `st_mode`.
pub const S_ISUID: u32 = 0o4000;
pub const S_ISGID: u32 = 0o2000;
pub const S_ISVTX: u32 = 0o1000;
/// The group may execute.
pub const S_IXGRP: u32 = 0o010;
/// The bits of `st_mode` that `chmod` can change.
pub const PERMISSION_BITS: u32 = 0o7777;

/// The attributes of one inode, as `stat` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    pub inode: InodeId,
    pub kind: FileType,
    /// Permission bits only (`0o7777`); the type is `kind`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// In bytes. A directory's is 0 (its entries are counted nowhere in POSIX); a symlink's is its target's length.
    pub size: u64,
    /// In units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
}

/// A change to attributes: what is `None` stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Clear set-user-id, and set-group-id where the group may execute: a change of owner, or a write or truncate by an
    /// unprivileged process.
    pub kill_suid_sgid: bool,
    /// Clear set-group-id also where the group may not execute: that process is not in the file's group either.
    pub kill_sgid: bool,
    /// Of regular files and directories.
    pub flags: Option<FileFlags>,
}

impl SetAttr {
    /// By what `flags` permit: nothing of what is immutable, and of what is append only what every append changes, or clearing
    /// by it, or both times to now. Flags themselves can be set by whoever may do that.
    #[must_use]
    pub fn is_permitted_by(&self, flags: FileFlags) -> bool {
        let of_flags_alone = Self { flags: None, ..*self } == Self::default();
        let now = |time: Option<SetTime>| time == Some(SetTime::Now);
        let keeps_times = self.atime.is_none() && self.mtime.is_none();
        let appends = self.mode.is_none() && self.uid.is_none() && self.gid.is_none() && self.size.is_none();
        let appends = appends && (keeps_times || (now(self.atime) && now(self.mtime)));
        of_flags_alone || !(flags.has(FileFlags::IMMUTABLE) || (flags.has(FileFlags::APPEND) && !appends))
    }

    /// The permission bits of a file, not a directory, that had `mode`.
    #[must_use]
    pub fn mode_of_file(&self, mode: u32) -> u32 {
        self.left_of(self.mode.unwrap_or(mode) & PERMISSION_BITS)
    }

    /// What its two `kill`s leave of a mode. Directories keep theirs.
    #[must_use]
    pub fn left_of(&self, mode: u32) -> u32 {
        let mut left = mode;
        if self.kill_suid_sgid {
            left &= !S_ISUID;
        }
        // Without group execution the bit is an old mark for mandatory locking, and stays.
        if self.kill_sgid || (self.kill_suid_sgid && mode & S_IXGRP != 0) {
            left &= !S_ISGID;
        }
        left
    }
}

/// A time to set: one that the caller names, or the server's now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_without_execution_goes_by_strangers_alone() {
        for (kill_suid_sgid, kill_sgid, mode, left) in [
            (false, false, 0o6777, 0o6777),
            (true, false, 0o6777, 0o777),
            (true, false, 0o6766, 0o2766),
            (true, true, 0o6766, 0o766),
            (true, true, 0o7610, 0o1610),
            (false, true, 0o6766, 0o4766),
        ] {
            let change = SetAttr { kill_suid_sgid, kill_sgid, ..SetAttr::default() };
            assert_eq!(change.left_of(mode), left, "{mode:o} {change:?}");
        }
    }

    #[test]
    fn flags_permit_what_local_file_systems_permit() {
        let none = SetAttr::default();
        let (now, then) = (Some(SetTime::Now), Some(SetTime::At(Timestamp(5))));
        for (change, where_immutable, where_append_only) in [
            (none, true, true),
            (SetAttr { flags: Some(FileFlags::NODUMP), ..none }, true, true),
            (SetAttr { flags: Some(FileFlags::NODUMP), mode: Some(0), ..none }, false, false),
            (SetAttr { mode: Some(0o600), ..none }, false, false),
            (SetAttr { uid: Some(1), ..none }, false, false),
            (SetAttr { gid: Some(1), ..none }, false, false),
            (SetAttr { size: Some(1), ..none }, false, false),
            (SetAttr { atime: now, mtime: now, ..none }, false, true),
            (SetAttr { atime: now, mtime: then, ..none }, false, false),
            (SetAttr { atime: now, ..none }, false, false),
            (SetAttr { kill_suid_sgid: true, kill_sgid: true, ..none }, false, true),
        ] {
            let by = |flags| change.is_permitted_by(flags);
            assert_eq!(
                (by(FileFlags::IMMUTABLE), by(FileFlags::APPEND)),
                (where_immutable, where_append_only),
                "{change:?}"
            );
            assert!(by(FileFlags::NODUMP.with(FileFlags::NOATIME)));
        }
    }
}
