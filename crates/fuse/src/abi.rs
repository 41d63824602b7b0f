//! The kernel's FUSE protocol as bytes: message layouts, operation numbers and flags of `<linux/fuse.h>`, versions 7.31
//! to 7.45. Only what Weft speaks.
//!
//! Every layout is `repr(C)` without padding that the compiler would add, and its size is checked when compiling.

#![allow(missing_docs, reason = "the names are the kernel's; its header documents them")]

pub(crate) const MAJOR: u32 = 7;
/// What we speak at most.
pub(crate) const MINOR: u32 = 45;
/// What the kernel has to speak at least (Linux 5.4).
pub(crate) const MINOR_MIN: u32 = 31;
/// The kernel refuses to deliver into less.
pub(crate) const READ_BUFFER_MIN: usize = 8192;

/// A message layout: any bytes are a valid value of it, and none of its own bytes are padding.
///
/// # Safety
/// Implemented for `repr(C)` structs of integers and arrays of them alone, without gaps between or after them.
pub(crate) unsafe trait Layout: Copy {}

/// The bytes of a message, as they go to the kernel.
pub(crate) fn bytes_of<T: Layout>(value: &T) -> &[u8] {
    // SAFETY: `Layout` has no padding, so every byte is initialised; the lifetime is that of `value`.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Reads a message from the front of `bytes`, which need not be aligned.
pub(crate) fn read_front<T: Layout>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, `read_unaligned` asks for no alignment, and any bytes make a valid `Layout`.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

macro_rules! layouts {
    ($($name:ident = $size:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, Copy, Debug, Default)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $type,)* }
            const _: () = assert!(size_of::<$name>() == $size);
            // The fields fill the struct: nothing is left for padding.
            const _: () = assert!(0 $(+ size_of::<$type>())* == $size);
            // SAFETY: `repr(C)`, integers and layouts only, and no padding as asserted above.
            unsafe impl Layout for $name {}
        )*
    };
}

layouts! {
    InHeader = 40 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    OutHeader = 16 { len: u32, error: i32, unique: u64, }

    Attr = 88 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut = 128 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut = 104 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    StatfsOut = 80 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64,
        bsize: u32, namelen: u32, frsize: u32, padding: u32, spare: Spare6,
    }
    Spare6 = 24 { a: u64, b: u64, c: u64, }
    Dirent = 24 { ino: u64, off: u64, namelen: u32, kind: u32, }

    ForgetIn = 8 { nlookup: u64, }
    ForgetOne = 16 { nodeid: u64, nlookup: u64, }
    BatchForgetIn = 8 { count: u32, dummy: u32, }
    GetattrIn = 16 { getattr_flags: u32, dummy: u32, fh: u64, }
    SetattrIn = 88 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn = 16 { mode: u32, rdev: u32, umask: u32, padding: u32, }
    MkdirIn = 8 { mode: u32, umask: u32, }
    RenameIn = 8 { newdir: u64, }
    Rename2In = 16 { newdir: u64, flags: u32, padding: u32, }
    LinkIn = 8 { oldnodeid: u64, }
    OpenIn = 8 { flags: u32, open_flags: u32, }
    CreateIn = 16 { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    OpenOut = 16 { fh: u64, open_flags: u32, backing_id: u32, }
    ReleaseIn = 24 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    LkIn = 48 {
        fh: u64, owner: u64, start: u64, end: u64, kind: u32, pid: u32, lk_flags: u32, padding: u32,
    }
    LkOut = 24 { start: u64, end: u64, kind: u32, pid: u32, }
    FlushIn = 24 { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    ReadIn = 40 { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    WriteIn = 40 { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    WriteOut = 8 { size: u32, padding: u32, }
    FsyncIn = 16 { fh: u64, fsync_flags: u32, padding: u32, }
    SetxattrIn = 8 { size: u32, flags: u32, }
    // After the former, where SETXATTR_EXT was agreed on.
    SetxattrMore = 8 { setxattr_flags: u32, padding: u32, }
    StatxIn = 24 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
    StatxTime = 16 { tv_sec: i64, tv_nsec: u32, reserved: i32, }
    Statx = 256 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64,
        atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut = 288 { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }
    GetxattrIn = 8 { size: u32, padding: u32, }
    GetxattrOut = 8 { size: u32, padding: u32, }
    NotifyInvalInodeOut = 24 { ino: u64, off: i64, len: i64, }
    NotifyInvalEntryOut = 16 { parent: u64, namelen: u32, flags: u32, }
    FallocateIn = 32 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    LseekIn = 24 { fh: u64, offset: u64, whence: u32, padding: u32, }
    LseekOut = 8 { offset: u64, }
    CopyFileRangeIn = 56 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    CopyFileRangeOut = 8 { bytes_copied: u64, }
    InterruptIn = 8 { unique: u64, }
    IoctlIn = 32 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    IoctlOut = 16 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    // `struct fsxattr` of <linux/fs.h>.
    FsXattr = 28 { xflags: u32, extent_size: u32, extents: u32, project: u32, cow_extent_size: u32, pad: [u8; 8], }
    // Beside the headers of a request over io_uring, in both directions.
    RingEntryInOut = 32 { flags: u64, commit_id: u64, payload_len: u32, padding: u32, reserved: u64, }
    // What a command over io_uring carries.
    RingCommand = 24 { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6], }
    // Up to 7.35 the kernel sends only the first 16 bytes.
    InitInShort = 16 { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    InitOut = 64 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
}

macro_rules! opcodes {
    ($($name:ident = $value:literal, $label:literal;)*) => {
        /// What the kernel asks for.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub(crate) enum Opcode { $($name = $value,)* }

        impl Opcode {
            pub(crate) fn from_u32(value: u32) -> Option<Self> {
                match value {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// As metrics and logs call it.
            pub(crate) fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }

            pub(crate) const ALL: &[Opcode] = &[$(Self::$name,)*];
        }
    };
}

opcodes! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    Getattr = 3, "getattr";
    Setattr = 4, "setattr";
    Readlink = 5, "readlink";
    Symlink = 6, "symlink";
    Mknod = 8, "mknod";
    Mkdir = 9, "mkdir";
    Unlink = 10, "unlink";
    Rmdir = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    Statfs = 17, "statfs";
    Release = 18, "release";
    Fsync = 20, "fsync";
    Setxattr = 21, "setxattr";
    Getxattr = 22, "getxattr";
    Listxattr = 23, "listxattr";
    Removexattr = 24, "removexattr";
    Flush = 25, "flush";
    Init = 26, "init";
    Opendir = 27, "opendir";
    Readdir = 28, "readdir";
    Releasedir = 29, "releasedir";
    Fsyncdir = 30, "fsyncdir";
    Getlk = 31, "getlk";
    Setlk = 32, "setlk";
    Setlkw = 33, "setlkw";
    Create = 35, "create";
    Interrupt = 36, "interrupt";
    Destroy = 38, "destroy";
    Ioctl = 39, "ioctl";
    BatchForget = 42, "batch_forget";
    Fallocate = 43, "fallocate";
    Readdirplus = 44, "readdirplus";
    Rename2 = 45, "rename2";
    Lseek = 46, "lseek";
    CopyFileRange = 47, "copy_file_range";
    Tmpfile = 51, "tmpfile";
    Statx = 52, "statx";
    CopyFileRange64 = 53, "copy_file_range_64";
}

/// Which fields of [`SetattrIn`] count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCK_OWNER: u32 = 1 << 9;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// What an open file may do in the kernel.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const CACHE_DIR: u32 = 1 << 3;
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// What the file system tells unasked: in the place of an error, with the request number 0.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const INC_EPOCH: i32 = 8;
}

/// Features; those from bit 32 on travel in `flags2`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// FUSE over io_uring: `struct fuse_uring_req_header`, and the commands.
pub(crate) mod over_ring {
    /// Bytes of the three headers together.
    pub(crate) const HEADERS_LEN: usize = 288;
    /// The arguments of the operation begin here, after the header of the request or reply.
    pub(crate) const ARGUMENTS_AT: usize = 128;
    pub(crate) const ARGUMENTS_MAX: usize = 128;
    /// Here lies [`super::RingEntryInOut`].
    pub(crate) const ENTRY_AT: usize = 256;
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// Requests of `ioctl` in <linux/fs.h>, and the flags in [`FsXattr`].
pub(crate) mod ioctl {
    pub(crate) const GETFLAGS: u32 = 0x8008_6601;
    pub(crate) const SETFLAGS: u32 = 0x4008_6602;
    pub(crate) const FSGETXATTR: u32 = 0x801c_581f;
    pub(crate) const FSSETXATTR: u32 = 0x401c_5820;
    pub(crate) const XFLAG_IMMUTABLE: u32 = 0x08;
    pub(crate) const XFLAG_APPEND: u32 = 0x10;
    pub(crate) const XFLAG_NOATIME: u32 = 0x40;
    pub(crate) const XFLAG_NODUMP: u32 = 0x80;
}

pub(crate) const GETATTR_FH: u32 = 1;
pub(crate) const WRITE_CACHE: u32 = 1;
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
pub(crate) const FSYNC_DATASYNC: u32 = 1;
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// What `statx` can always tell: the basic fields and the time of birth.
pub(crate) const STATX_BASIC_AND_BTIME: u32 = 0xfff;
pub(crate) const SEEK_DATA: u32 = 3;
pub(crate) const SEEK_HOLE: u32 = 4;
pub(crate) const LK_FLOCK: u32 = 1;
/// `F_RDLCK`, `F_WRLCK` and `F_UNLCK`.
pub(crate) const LOCK_SHARED: u32 = 0;
pub(crate) const LOCK_EXCLUSIVE: u32 = 1;
pub(crate) const LOCK_NONE: u32 = 2;
/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
pub(crate) const DEV_IOC_CLONE: u32 = (2 << 30) | (4 << 16) | (229 << 8);

/// Entries of a listing are aligned to this.
pub(crate) const DIRENT_ALIGN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_go_through_bytes() {
        let header = OutHeader { len: 16, error: -2, unique: 7 };
        let mut bytes = vec![0xff];
        bytes.extend_from_slice(bytes_of(&header));
        let back: OutHeader = read_front(&bytes[1..]).expect("16 bytes are there");
        assert_eq!((back.len, back.error, back.unique), (16, -2, 7));
        assert!(read_front::<OutHeader>(&bytes[2..]).is_none());
    }

    #[test]
    fn opcodes_map_both_ways() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_u32(opcode as u32), Some(opcode));
        }
        assert_eq!(Opcode::from_u32(0), None);
        assert_eq!(Opcode::from_u32(7), None);
    }
}
