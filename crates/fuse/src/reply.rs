//! From an operation's outcome to the kernel's bytes.

use std::time::Duration;

use ring::buf::Slice;
use types::attr::Attr;
use types::error::Errno;
use types::id::InodeId;
use types::lock::{Held, LockMode};
use types::time::Timestamp;

use crate::abi::{self, bytes_of};
use crate::filesystem::{Attributes, Entry, Looked, Opened, Statfs};

/// The body of a successful reply.
#[derive(Debug)]
pub(crate) enum Body {
    Empty,
    Entry(abi::EntryOut),
    Attributes(abi::AttrOut),
    Statx(Box<abi::StatxOut>),
    Opened(abi::OpenOut),
    Created(abi::EntryOut, abi::OpenOut),
    Written(abi::WriteOut),
    Sought(abi::LseekOut),
    Copied(abi::CopyFileRangeOut),
    Statfs(abi::StatfsOut),
    Lock(abi::LkOut),
    XattrSize(abi::GetxattrOut),
    Ioctl(abi::IoctlOut, Vec<u8>),
    Bytes(Vec<u8>),
    /// A page of entries, and the inodes that it tells of.
    Listing(Vec<u8>, Vec<InodeId>),
    Data(Vec<Slice>),
}

/// What goes back to the kernel; `None` where the request has no reply.
pub(crate) type Outcome = Option<Result<Body, Errno>>;

/// Most parts of one reply that go out as they are; more are copied together. Within what one `writev` takes.
const PARTS_MAX: usize = 60;
/// `st_blksize`: the size of reads and writes that programs are told to prefer, in bytes. That of a chunk.
const BLOCK_SIZE: u32 = 512 << 10;

impl Body {
    /// Calls `send` with the bytes of the body in their parts.
    pub(crate) fn with_parts<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        match self {
            Self::Empty => send(&[]),
            Self::Entry(entry) => send(&[bytes_of(entry)]),
            Self::Attributes(attributes) => send(&[bytes_of(attributes)]),
            Self::Statx(statx) => send(&[bytes_of(&**statx)]),
            Self::Opened(opened) => send(&[bytes_of(opened)]),
            Self::Created(entry, opened) => send(&[bytes_of(entry), bytes_of(opened)]),
            Self::Written(written) => send(&[bytes_of(written)]),
            Self::Sought(sought) => send(&[bytes_of(sought)]),
            Self::Copied(copied) => send(&[bytes_of(copied)]),
            Self::Statfs(statfs) => send(&[bytes_of(statfs)]),
            Self::Lock(lock) => send(&[bytes_of(lock)]),
            Self::XattrSize(size) => send(&[bytes_of(size)]),
            Self::Ioctl(head, bytes) => send(&[bytes_of(head), bytes]),
            Self::Bytes(bytes) | Self::Listing(bytes, _) => send(&[bytes]),
            Self::Data(slices) if slices.len() == 1 => send(&[&slices[0]]),
            Self::Data(slices) if slices.len() <= PARTS_MAX => {
                let parts: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
                send(&parts)
            }
            Self::Data(slices) => {
                let parts: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
                send(&[&parts.concat()])
            }
        }
    }

    /// The inodes that the kernel learns of from this, each as often as it counts.
    pub(crate) fn told(&self) -> impl Iterator<Item = InodeId> {
        let (one, several) = match self {
            // That of an absent name is 0.
            Self::Entry(entry) | Self::Created(entry, _) => (Some(InodeId(entry.nodeid)), &[][..]),
            Self::Listing(_, told) => (None, &told[..]),
            _ => (None, &[][..]),
        };
        one.filter(|inode| inode.0 != 0).into_iter().chain(several.iter().copied())
    }

    pub(crate) fn entry(entry: &Entry) -> Self {
        Self::Entry(entry_out(entry))
    }

    /// # Errors
    /// `ENOENT`, as the kernel wants it where it is to believe nothing.
    pub(crate) fn looked(looked: &Looked) -> Result<Self, Errno> {
        match looked {
            Looked::Found(entry) => Ok(Self::entry(entry)),
            Looked::Absent { valid } if valid.is_zero() => Err(Errno::ENOENT),
            Looked::Absent { valid } => {
                let (entry_valid, entry_valid_nsec) = seconds(*valid);
                Ok(Self::Entry(abi::EntryOut { entry_valid, entry_valid_nsec, ..abi::EntryOut::default() }))
            }
        }
    }

    pub(crate) fn attributes(attributes: &Attributes) -> Self {
        let (attr_valid, attr_valid_nsec) = seconds(attributes.valid);
        let attr = attr_out(&attributes.attr);
        Self::Attributes(abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr })
    }

    pub(crate) fn statx(attributes: &Attributes) -> Self {
        let (attr_valid, attr_valid_nsec) = seconds(attributes.valid);
        let stat = statx(&attributes.attr);
        Self::Statx(Box::new(abi::StatxOut { attr_valid, attr_valid_nsec, stat, ..Default::default() }))
    }

    pub(crate) fn opened(opened: Opened) -> Self {
        Self::Opened(open_out(opened))
    }

    pub(crate) fn created(entry: &Entry, opened: Opened) -> Self {
        Self::Created(entry_out(entry), open_out(opened))
    }

    pub(crate) fn written(size: u32) -> Self {
        Self::Written(abi::WriteOut { size, padding: 0 })
    }

    /// `wide`: the longer form of the request was used.
    pub(crate) fn copied(count: u64, wide: bool) -> Self {
        if wide {
            return Self::Copied(abi::CopyFileRangeOut { bytes_copied: count });
        }
        Self::written(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// What a request of `ioctl` that went well brings back.
    pub(crate) fn ioctl(bytes: Vec<u8>) -> Self {
        Self::Ioctl(abi::IoctlOut::default(), bytes)
    }

    pub(crate) fn sought(offset: u64) -> Self {
        Self::Sought(abi::LseekOut { offset })
    }

    /// What is in the way of a lock, or that nothing is.
    pub(crate) fn lock(held: Option<Held>) -> Self {
        Self::Lock(held.map_or(abi::LkOut { kind: abi::LOCK_NONE, ..Default::default() }, |held| abi::LkOut {
            start: held.range.start(),
            end: held.range.end(),
            kind: match held.mode {
                LockMode::Shared => abi::LOCK_SHARED,
                LockMode::Exclusive => abi::LOCK_EXCLUSIVE,
            },
            pid: held.pid,
        }))
    }

    pub(crate) fn statfs(statfs: &Statfs) -> Self {
        Self::Statfs(abi::StatfsOut {
            blocks: statfs.blocks,
            bfree: statfs.blocks_free,
            bavail: statfs.blocks_available,
            files: statfs.files,
            ffree: statfs.files_free,
            bsize: statfs.block_size,
            namelen: types::name::NAME_MAX as u32,
            frsize: statfs.block_size,
            ..Default::default()
        })
    }

    /// The reply to one who asks with a buffer of `size` bytes; 0 asks for the length alone.
    ///
    /// # Errors
    /// `ERANGE` where the buffer is too small.
    pub(crate) fn xattr(value: Vec<u8>, size: u32) -> Result<Self, Errno> {
        if size == 0 {
            return Ok(Self::XattrSize(abi::GetxattrOut { size: value.len() as u32, padding: 0 }));
        }
        if value.len() > size as usize { Err(Errno::ERANGE) } else { Ok(Self::Bytes(value)) }
    }
}

pub(crate) fn entry_out(entry: &Entry) -> abi::EntryOut {
    let (entry_valid, entry_valid_nsec) = seconds(entry.name_valid);
    let (attr_valid, attr_valid_nsec) = seconds(entry.attr_valid);
    abi::EntryOut {
        nodeid: entry.attr.inode.0,
        // Inode ids are never reused.
        generation: 0,
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr: attr_out(&entry.attr),
    }
}

fn open_out(opened: Opened) -> abi::OpenOut {
    abi::OpenOut { fh: opened.handle, open_flags: opened.flags.bits(), backing_id: 0 }
}

fn attr_out(attr: &Attr) -> abi::Attr {
    let time = |time: Timestamp| {
        let (seconds, nanoseconds) = time.parts();
        (seconds.cast_unsigned(), nanoseconds)
    };
    let ((atime, atimensec), (mtime, mtimensec), (ctime, ctimensec)) =
        (time(attr.atime), time(attr.mtime), time(attr.ctime));
    abi::Attr {
        ino: attr.inode.0,
        size: attr.size,
        blocks: attr.blocks,
        atime,
        mtime,
        ctime,
        atimensec,
        mtimensec,
        ctimensec,
        mode: attr.mode | attr.kind.mode_bits(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

fn statx(attr: &Attr) -> abi::Statx {
    let time = |time: Timestamp| {
        let (tv_sec, tv_nsec) = time.parts();
        abi::StatxTime { tv_sec, tv_nsec, reserved: 0 }
    };
    abi::Statx {
        mask: abi::STATX_BASIC_AND_BTIME,
        blksize: BLOCK_SIZE,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: (attr.mode | attr.kind.mode_bits()) as u16,
        ino: attr.inode.0,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.btime),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        // As the kernel packs them into 32 bits.
        rdev_major: (attr.rdev >> 8) & 0xfff,
        rdev_minor: (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00),
        ..Default::default()
    }
}

fn seconds(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

/// As the kernel takes it: a negative number that it knows. Anything else would leave the caller hanging.
pub(crate) fn error_number(errno: Errno) -> i32 {
    const KERNEL_MAX: u16 = 511;
    let known = (1..=KERNEL_MAX).contains(&errno.0);
    -i32::from(if known { errno.0 } else { Errno::EIO.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_are_ones_that_the_kernel_takes() {
        assert_eq!(error_number(Errno::ENOENT), -2);
        assert_eq!(error_number(Errno(0)), -5);
        assert_eq!(error_number(Errno(512)), -5);
    }

    #[test]
    fn many_parts_are_joined() {
        let slices: Vec<Slice> = (0..100u8).map(|i| Slice::from_vec(vec![i; 3])).collect();
        let body = Body::Data(slices);
        let (parts, bytes) = body.with_parts(|parts| (parts.len(), parts.concat()));
        assert_eq!((parts, bytes.len(), bytes[299]), (1, 300, 99));
    }

    #[test]
    fn an_xattr_fits_its_buffer_or_not() {
        assert!(matches!(Body::xattr(vec![1, 2], 0), Ok(Body::XattrSize(size)) if size.size == 2));
        assert!(matches!(Body::xattr(vec![1, 2], 2), Ok(Body::Bytes(_))));
        assert_eq!(Body::xattr(vec![1, 2], 1).expect_err("too small"), Errno::ERANGE);
    }
}
