//! What a file system has to answer.

use std::future::Future;
use std::time::Duration;

use ring::buf::Slice;
use types::attr::{Attr, FileType, SetAttr};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::InodeId;
use types::lock::{Held, LockKind, LockMode, LockRange};
use types::name::Name;

use crate::abi::fopen;
use crate::context::Context;
use crate::listing::Listing;

/// Attributes, and for how long the kernel may believe them.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    pub attr: Attr,
    /// Zero: ask again each time.
    pub valid: Duration,
}

/// What a name stands for, and for how long the kernel may believe it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub attr: Attr,
    pub attr_valid: Duration,
    pub name_valid: Duration,
}

impl Entry {
    /// That the kernel must ask again each time.
    #[must_use]
    pub fn uncached(attr: Attr) -> Self {
        Self { attr, attr_valid: Duration::ZERO, name_valid: Duration::ZERO }
    }
}

/// What is at a name.
#[derive(Clone, Copy, Debug)]
pub enum Looked {
    Found(Entry),
    /// Nothing, and for how long the kernel may believe that.
    Absent {
        valid: Duration,
    },
}

impl Attributes {
    /// That the kernel must ask again each time.
    #[must_use]
    pub fn uncached(attr: Attr) -> Self {
        Self { attr, valid: Duration::ZERO }
    }
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened {
    /// The file system's own number for it, which comes back with every operation on it.
    pub handle: u64,
    pub flags: OpenFlags,
}

/// What the kernel may do with an open file.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenFlags {
    /// Every read and write goes to the file system, past the page cache.
    pub direct_io: bool,
    /// Pages of earlier opens stay good.
    pub keep_cache: bool,
    /// A directory's listing may be cached.
    pub cache_dir: bool,
    /// Do not send `flush` at each close.
    pub no_flush: bool,
    /// Direct writes of one file may run in parallel, unless they extend it.
    pub parallel_direct_writes: bool,
}

impl OpenFlags {
    pub(crate) fn bits(self) -> u32 {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        bit(self.direct_io, fopen::DIRECT_IO)
            | bit(self.keep_cache, fopen::KEEP_CACHE)
            | bit(self.cache_dir, fopen::CACHE_DIR)
            | bit(self.no_flush, fopen::NOFLUSH)
            | bit(self.parallel_direct_writes, fopen::PARALLEL_DIRECT_WRITES)
    }
}

/// Bytes to be written, where the kernel put them.
#[derive(Debug)]
pub struct Write {
    pub inode: InodeId,
    pub handle: u64,
    pub offset: u64,
    /// Page-aligned; not copied on its way here.
    pub data: Slice,
    /// `O_*` of the open file.
    pub flags: u32,
    /// The caller is not privileged: set-user-id and set-group-id go.
    pub kill_suid_sgid: bool,
    /// Comes from the page cache (a mapped file), so the handle may be another one of the same file.
    pub from_cache: bool,
    /// As long as a request gets: the kernel may have cut it from a longer write, the rest of which follows.
    pub is_full: bool,
}

/// A place in an open file.
#[derive(Clone, Copy, Debug)]
pub struct FileOffset {
    pub inode: InodeId,
    pub handle: u64,
    pub offset: u64,
}

/// Bytes that are to be copied from one open file to another.
#[derive(Clone, Copy, Debug)]
pub struct CopyRange {
    pub source: FileOffset,
    pub target: FileOffset,
    pub len: u64,
}

/// Whose lock, and on what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The handle of the open file that it is set through.
    pub handle: u64,
    pub kind: LockKind,
    /// The kernel's number of a process (`fcntl`) or of an open file (`flock`, and `fcntl` with `F_OFD_SETLK`).
    pub owner: u64,
    pub range: LockRange,
    /// The process that asks, in the mount's PID namespace.
    pub pid: u32,
}

/// Capacity, as `statvfs` shows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Statfs {
    /// Unit of the three counts below, in bytes.
    pub block_size: u32,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
}

/// In the flags of `setxattr`, beside `XATTR_CREATE` and `XATTR_REPLACE`: an access ACL comes from one who is not in the
/// file's group, so set-group-id goes.
pub const SETXATTR_KILL_SGID: u32 = 0x100;

/// A file system as one FUSE loop sees it.
///
/// There is one instance per loop, each on its own thread, and **any loop may get any request**: a file opened through
/// one instance is read through another. Handles and counts of lookups therefore belong to state that the instances
/// share.
///
/// Operations run concurrently with each other on one thread. Permissions were checked by the kernel
/// (`default_permissions`). Names are valid, and values are within the kernel's bounds. What an operation leaves out
/// has a default: `ENOSYS`, after which the kernel does not ask again.
#[allow(unused_variables, reason = "the defaults need none of their arguments, but their names document")]
pub trait FileSystem: 'static {
    fn lookup(&self, context: &Context, parent: InodeId, name: Name) -> impl Future<Output = Result<Looked, Errno>>;

    /// The inode itself, which the kernel has forgotten: somebody has a file handle of it. Without this one, such handles
    /// are stale.
    fn lookup_inode(&self, context: &Context, inode: InodeId) -> impl Future<Output = Result<Entry, Errno>> {
        std::future::ready(Err(Errno::ESTALE))
    }

    /// The directory that has the entry of this one; the root's is itself. For file handles as well.
    fn lookup_parent(&self, context: &Context, directory: InodeId) -> impl Future<Output = Result<Entry, Errno>> {
        std::future::ready(Err(Errno::ESTALE))
    }

    /// Somebody waits for the latest answer to be with the kernel: it is handed over before [`Self::replied`]. Otherwise
    /// it may go at the end of the loop's turn, together with others.
    fn waits_for_delivery(&self) -> bool {
        false
    }

    /// The latest answer has been handed over (see [`Self::waits_for_delivery`]), in the same turn of the loop in which the
    /// operation gave it.
    fn replied(&self) {}

    /// The kernel dropped `count` of the references that it got with entries. Nobody waits for this.
    fn forget(&self, inode: InodeId, count: u64) {}

    fn getattr(
        &self,
        context: &Context,
        inode: InodeId,
        handle: Option<u64>,
    ) -> impl Future<Output = Result<Attributes, Errno>>;

    fn setattr(
        &self,
        context: &Context,
        inode: InodeId,
        handle: Option<u64>,
        change: SetAttr,
    ) -> impl Future<Output = Result<Attributes, Errno>>;

    fn readlink(&self, context: &Context, inode: InodeId) -> impl Future<Output = Result<Vec<u8>, Errno>>;

    /// A regular file, device, fifo or socket. `mode` is as the caller wants it, in all that make: its umask is in the
    /// context, for a default ACL may take its place.
    fn mknod(
        &self,
        context: &Context,
        parent: InodeId,
        name: Name,
        kind: FileType,
        mode: u32,
        rdev: u32,
    ) -> impl Future<Output = Result<Entry, Errno>>;

    fn mkdir(
        &self,
        context: &Context,
        parent: InodeId,
        name: Name,
        mode: u32,
    ) -> impl Future<Output = Result<Entry, Errno>>;

    fn symlink(
        &self,
        context: &Context,
        parent: InodeId,
        name: Name,
        target: Vec<u8>,
    ) -> impl Future<Output = Result<Entry, Errno>>;

    fn unlink(&self, context: &Context, parent: InodeId, name: Name) -> impl Future<Output = Result<(), Errno>>;

    fn rmdir(&self, context: &Context, parent: InodeId, name: Name) -> impl Future<Output = Result<(), Errno>>;

    /// `flags`: `RENAME_NOREPLACE` = 1, `RENAME_EXCHANGE` = 2, `RENAME_WHITEOUT` = 4.
    fn rename(
        &self,
        context: &Context,
        source: (InodeId, Name),
        target: (InodeId, Name),
        flags: u32,
    ) -> impl Future<Output = Result<(), Errno>>;

    fn link(
        &self,
        context: &Context,
        inode: InodeId,
        parent: InodeId,
        name: Name,
    ) -> impl Future<Output = Result<Entry, Errno>>;

    /// `flags` are `O_*`. `O_TRUNC` is never among them: the kernel sends a `setattr` after it.
    fn open(&self, context: &Context, inode: InodeId, flags: u32) -> impl Future<Output = Result<Opened, Errno>>;

    /// Makes and opens a regular file that the kernel believes to be absent. Where another client was faster and there
    /// is no `O_EXCL` in `flags`, `ESTALE` makes the kernel look the name up again and open what it finds, with all
    /// checks.
    fn create(
        &self,
        context: &Context,
        parent: InodeId,
        name: Name,
        mode: u32,
        flags: u32,
    ) -> impl Future<Output = Result<(Entry, Opened), Errno>>;

    /// Makes and opens a regular file without a name, at home in the directory `parent`: it may be given one with `link`
    /// as long as it is open.
    fn tmpfile(
        &self,
        context: &Context,
        parent: InodeId,
        mode: u32,
        flags: u32,
    ) -> impl Future<Output = Result<(Entry, Opened), Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    /// At most `size` bytes; fewer only at the end of the file. `flags`: those of `open`, as `fcntl` may have changed them
    /// since.
    fn read(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        offset: u64,
        size: u32,
        flags: u32,
    ) -> impl Future<Output = Result<Vec<Slice>, Errno>>;

    /// The number of bytes written.
    fn write(&self, context: &Context, write: Write) -> impl Future<Output = Result<u32, Errno>>;

    /// Some descriptor of this handle is being closed; its caller waits, and gets the error. All `fcntl` locks of
    /// `lock_owner` on the file go.
    fn flush(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        lock_owner: u64,
    ) -> impl Future<Output = Result<(), Errno>>;

    /// What would be in the way of the lock, if anything. With process number 0 where that is none of this host's. Locks
    /// come here only with `Options::locks`.
    fn getlk(
        &self,
        context: &Context,
        inode: InodeId,
        lock: &Lock,
        mode: LockMode,
    ) -> impl Future<Output = Result<Option<Held>, Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    /// Locks; where that takes another to unlock, `EAGAIN` or `wait`.
    fn setlk(
        &self,
        context: &Context,
        inode: InodeId,
        lock: &Lock,
        mode: LockMode,
        wait: bool,
    ) -> impl Future<Output = Result<(), Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    fn unlock(&self, context: &Context, inode: InodeId, lock: &Lock) -> impl Future<Output = Result<(), Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    /// The last descriptor of this handle is gone, and with it the locks whose owner it was. Nobody waits for this: when
    /// the mount ends, the last of them may never come.
    fn release(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        flags: u32,
    ) -> impl Future<Output = Result<(), Errno>>;

    fn fsync(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        datasync: bool,
    ) -> impl Future<Output = Result<(), Errno>>;

    /// Changes the space of `[offset, offset + len)`; `mode` as for `fallocate(2)`.
    fn fallocate(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> impl Future<Output = Result<(), Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    /// How many bytes were copied: fewer than asked where that is convenient, 0 at the end of the source. Without this the
    /// kernel reads and writes.
    fn copy_range(&self, context: &Context, range: CopyRange) -> impl Future<Output = Result<u64, Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    /// The next data from `offset` on, or the next hole; `ENXIO` where there is none. Where this is not there, the kernel
    /// takes all for data.
    fn seek(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        offset: u64,
        hole: bool,
    ) -> impl Future<Output = Result<u64, Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    fn opendir(&self, context: &Context, inode: InodeId) -> impl Future<Output = Result<Opened, Errno>>;

    /// Puts the entries after `cookie` (0: from the beginning) into `listing` until it is full or there are no more;
    /// `.` and `..` are not among them. Answers the directory's parent. The same for `readdir` and `readdirplus`:
    /// [`Listing::wants_attributes`] tells which.
    fn readdir(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        cookie: u64,
        listing: &mut Listing,
    ) -> impl Future<Output = Result<InodeId, Errno>>;

    fn releasedir(&self, context: &Context, inode: InodeId, handle: u64) -> impl Future<Output = Result<(), Errno>>;

    fn fsyncdir(
        &self,
        context: &Context,
        inode: InodeId,
        handle: u64,
        datasync: bool,
    ) -> impl Future<Output = Result<(), Errno>>;

    fn statfs(&self, context: &Context) -> impl Future<Output = Result<Statfs, Errno>>;

    fn setxattr(
        &self,
        context: &Context,
        inode: InodeId,
        name: Vec<u8>,
        value: Vec<u8>,
        flags: u32,
    ) -> impl Future<Output = Result<(), Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    fn getxattr(
        &self,
        context: &Context,
        inode: InodeId,
        name: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    fn listxattr(&self, context: &Context, inode: InodeId) -> impl Future<Output = Result<Vec<Vec<u8>>, Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    fn removexattr(&self, context: &Context, inode: InodeId, name: Vec<u8>) -> impl Future<Output = Result<(), Errno>> {
        std::future::ready(Err(Errno::ENOSYS))
    }

    /// The flags of a file or directory, which is open.
    fn flags(&self, context: &Context, inode: InodeId) -> impl Future<Output = Result<FileFlags, Errno>> {
        std::future::ready(Err(Errno::ENOTTY))
    }

    /// Sets them: the kernel has checked that the caller may. That they are obeyed is for the file system to see to.
    fn set_flags(
        &self,
        context: &Context,
        inode: InodeId,
        flags: FileFlags,
    ) -> impl Future<Output = Result<(), Errno>> {
        std::future::ready(Err(Errno::ENOTTY))
    }

    /// The mount is over, and every operation of this loop is answered: the time to flush and say goodbye.
    fn shutdown(&self) -> impl Future<Output = ()> {
        std::future::ready(())
    }
}
