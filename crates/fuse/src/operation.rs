//! What the kernel asks for, as plain values.

use types::attr::{FileType, SetAttr};
use types::flags::FileFlags;
use types::id::InodeId;
use types::lock::LockMode;
use types::name::Name;

use crate::file_flags::Form;
use crate::filesystem::Lock;

/// One request.
#[derive(Debug)]
pub(crate) enum Operation {
    Lookup {
        name: Name,
    },
    /// `.`, which no path brings here: the inode of a file handle.
    LookupInode,
    /// `..`, likewise.
    LookupParent,
    Forget {
        count: u64,
    },
    BatchForget {
        inodes: Vec<(InodeId, u64)>,
    },
    Getattr {
        handle: Option<u64>,
    },
    Setattr {
        handle: Option<u64>,
        change: SetAttr,
    },
    Readlink,
    Symlink {
        name: Name,
        target: Vec<u8>,
    },
    Mknod {
        name: Name,
        kind: FileType,
        mode: u32,
        rdev: u32,
        umask: u32,
    },
    Mkdir {
        name: Name,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: Name,
    },
    Rmdir {
        name: Name,
    },
    Rename {
        name: Name,
        target_parent: InodeId,
        target_name: Name,
        flags: u32,
    },
    Link {
        inode: InodeId,
        name: Name,
    },
    Open {
        flags: u32,
    },
    /// The data is the last `size` bytes of the message.
    Write {
        handle: u64,
        offset: u64,
        size: u32,
        flags: u32,
        kill_suid_sgid: bool,
        from_cache: bool,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
        /// Of the open file, as they are now.
        flags: u32,
    },
    Statfs,
    Release {
        handle: u64,
        flags: u32,
    },
    Fsync {
        handle: u64,
        datasync: bool,
    },
    Setxattr {
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    },
    Getxattr {
        name: Vec<u8>,
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: Vec<u8>,
    },
    Flush {
        handle: u64,
        lock_owner: u64,
    },
    GetLock {
        lock: Lock,
        mode: LockMode,
    },
    /// Without a mode: unlock.
    SetLock {
        lock: Lock,
        mode: Option<LockMode>,
        wait: bool,
    },
    Opendir,
    Readdir {
        handle: u64,
        offset: u64,
        size: u32,
        plus: bool,
    },
    Releasedir {
        handle: u64,
    },
    Fsyncdir {
        handle: u64,
        datasync: bool,
    },
    Fallocate {
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
    },
    CopyFileRange {
        source: (u64, u64),
        target: (InodeId, u64, u64),
        len: u64,
        /// The reply has 64 bits for the count.
        wide: bool,
    },
    Seek {
        handle: u64,
        offset: u64,
        hole: bool,
    },
    Create {
        name: Name,
        mode: u32,
        flags: u32,
        umask: u32,
    },
    /// A file without a name in the directory.
    Tmpfile {
        mode: u32,
        flags: u32,
        umask: u32,
    },
    Statx {
        handle: Option<u64>,
    },
    GetFlags {
        form: Form,
    },
    SetFlags {
        flags: FileFlags,
    },
    Interrupt {
        unique: u64,
    },
    Destroy,
}

impl Operation {
    /// The umask of the caller; 0 where nothing is made.
    pub(crate) fn umask(&self) -> u32 {
        match self {
            Self::Mknod { umask, .. }
            | Self::Mkdir { umask, .. }
            | Self::Create { umask, .. }
            | Self::Tmpfile { umask, .. } => *umask,
            _ => 0,
        }
    }

    /// It may wait for another application, however long. To unlock waits for nobody, though the kernel says with `flock` and
    /// `F_SETLKW` that it may.
    pub(crate) fn may_wait_for_long(&self) -> bool {
        matches!(self, Self::SetLock { mode: Some(_), wait: true, .. })
    }

    /// Nobody but the caller has something of it. What is written of the page cache others have changed as well, and what is
    /// closed is closed though its process ends.
    pub(crate) fn ends_with_its_caller(&self) -> bool {
        !matches!(
            self,
            Self::Write { from_cache: true, .. } | Self::Flush { .. } | Self::Release { .. } | Self::Releasedir { .. }
        )
    }
}
