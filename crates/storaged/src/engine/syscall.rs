//! File calls that std does not have, with our error numbers.

use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use types::error::Errno;
use types::time::Timestamp;

use super::Stored;

/// Permissions of object files: the service's user alone.
const FILE_MODE: libc::mode_t = 0o600;
const FOLDER_MODE: libc::mode_t = 0o700;

fn last_error() -> Errno {
    io::Error::last_os_error().into()
}

fn owned(fd: i32) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: a fresh descriptor from the kernel, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn open_at(folder: RawFd, path: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: `path` is a live C string.
    owned(unsafe { libc::openat(folder, path.as_ptr(), flags | libc::O_CLOEXEC, FILE_MODE) })
}

/// Opens only if that needs no disk: `EAGAIN` where the kernel would have to look there, also for names that may not
/// exist.
pub(super) fn open_cached(folder: RawFd, path: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: an all-zero open_how is valid; the pointers are to live values and the size is the structure's own.
    let fd = unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (flags | libc::O_CLOEXEC) as u64;
        how.resolve = libc::RESOLVE_CACHED;
        libc::syscall(libc::SYS_openat2, folder, path.as_ptr(), &raw mut how, size_of::<libc::open_how>())
    };
    owned(i32::try_from(fd).map_err(|_| Errno::EIO)?)
}

/// It is no error where the folder is there already.
pub(super) fn make_folder(parent: RawFd, path: &CStr) -> Result<(), Errno> {
    // SAFETY: `path` is a live C string.
    let result = unsafe { libc::mkdirat(parent, path.as_ptr(), FOLDER_MODE) };
    if result == 0 { Ok(()) } else { Some(last_error()).filter(|errno| *errno != Errno::EEXIST).map_or(Ok(()), Err) }
}

pub(super) fn unlink_at(folder: RawFd, path: &CStr) -> Result<(), Errno> {
    // SAFETY: `path` is a live C string.
    if unsafe { libc::unlinkat(folder, path.as_ptr(), 0) } == 0 { Ok(()) } else { Err(last_error()) }
}

pub(super) fn truncate(fd: RawFd, size: u64) -> Result<(), Errno> {
    let size = i64::try_from(size).map_err(|_| Errno::EFBIG)?;
    // SAFETY: no memory is passed.
    if unsafe { libc::ftruncate(fd, size) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// Sets the time of modification alone.
pub(super) fn set_modified(fd: RawFd, at: Timestamp) -> Result<(), Errno> {
    let (tv_sec, nanoseconds) = at.parts();
    let keep = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let times = [keep, libc::timespec { tv_sec, tv_nsec: nanoseconds.into() }];
    // SAFETY: the pointer is to two live times.
    if unsafe { libc::futimens(fd, times.as_ptr()) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// As `fallocate(2)`. Blocks.
pub(super) fn allocate(fd: RawFd, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
    let signed = |value: u64| i64::try_from(value).map_err(|_| Errno::EFBIG);
    let (offset, len) = (signed(offset)?, signed(len)?);
    loop {
        // SAFETY: no memory is passed.
        if unsafe { libc::fallocate(fd, mode.cast_signed(), offset, len) } == 0 {
            return Ok(());
        }
        match last_error() {
            Errno::EINTR => {}
            errno => return Err(errno),
        }
    }
}

/// As `lseek(2)` with `SEEK_DATA` or `SEEK_HOLE`; `ENXIO` where there is none. Moves the descriptor's own position, which
/// nobody uses. May block.
pub(super) fn seek(fd: RawFd, offset: u64, hole: bool) -> Result<u64, Errno> {
    let whence = if hole { libc::SEEK_HOLE } else { libc::SEEK_DATA };
    let offset = i64::try_from(offset).map_err(|_| Errno::ENXIO)?;
    // SAFETY: no memory is passed.
    let found = unsafe { libc::lseek(fd, offset, whence) };
    u64::try_from(found).map_err(|_| last_error())
}

/// As `copy_file_range(2)`: how many bytes were copied. Blocks.
pub(super) fn copy_range(source: RawFd, from: u64, target: RawFd, to: u64, len: u64) -> Result<u64, Errno> {
    let signed = |value: u64| i64::try_from(value).map_err(|_| Errno::EFBIG);
    let (mut from, mut to) = (signed(from)?, signed(to)?);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    loop {
        // SAFETY: the pointers are to live numbers.
        let count = unsafe { libc::copy_file_range(source, &raw mut from, target, &raw mut to, len, 0) };
        match u64::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => match last_error() {
                Errno::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
}

/// Some bytes from `offset` on; 0 at the end. Blocks.
pub(super) fn read_at(fd: RawFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let at = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
    loop {
        // SAFETY: the pointer and the length are those of a live buffer.
        let count = unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), at) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => match last_error() {
                Errno::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
}

/// As [`read_at`], only what is in the page cache; `EAGAIN` or fewer bytes where the disk would be needed, `EOPNOTSUPP` where
/// the file system cannot tell.
pub(super) fn read_cached(fd: RawFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let at = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
    let vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the vector is of a live buffer.
    let count = unsafe { libc::preadv2(fd, &raw const vector, 1, at, libc::RWF_NOWAIT) };
    usize::try_from(count).map_err(|_| last_error())
}

/// Brings all of the file system to the disk. Blocks for long.
pub(super) fn sync_file_system(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: no memory is passed.
    if unsafe { libc::syncfs(fd) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// Brings the file's data to the disk. Blocks.
pub(super) fn sync_data(fd: RawFd) -> Result<(), Errno> {
    // SAFETY: no memory is passed.
    if unsafe { libc::fdatasync(fd) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// All of `data`, in place.
pub(super) fn write_at(fd: RawFd, mut data: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !data.is_empty() {
        let count = write_some(fd, data, offset)?;
        data = &data[count..];
        offset += count as u64;
    }
    Ok(())
}

/// The first bytes of `data`, of which there are some: how many.
pub(super) fn write_some(fd: RawFd, data: &[u8], offset: u64) -> Result<usize, Errno> {
    let at = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
    loop {
        // SAFETY: the pointer and the length are those of a live slice.
        let count = unsafe { libc::pwrite(fd, data.as_ptr().cast(), data.len(), at) };
        match usize::try_from(count) {
            Ok(0) => return Err(Errno::EIO),
            Ok(count) => return Ok(count),
            Err(_) => match last_error() {
                Errno::EINTR => {}
                errno => return Err(errno),
            },
        }
    }
}

/// Bytes of a block of the file system.
pub(super) fn block_size(fd: RawFd) -> Result<usize, Errno> {
    // SAFETY: an all-zero statvfs is valid, and the pointer is to a live one.
    let (result, found) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(fd, &raw mut found), found)
    };
    if result == 0 { Ok(found.f_bsize as usize) } else { Err(last_error()) }
}

/// Writes the file's dirty pages and waits for them; no metadata, so no journal commit.
pub(super) fn write_back(fd: RawFd) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: no memory is passed.
    if unsafe { libc::sync_file_range(fd, 0, 0, flags) } == 0 { Ok(()) } else { Err(last_error()) }
}

fn stored(stat: &libc::stat) -> Stored {
    Stored {
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        mtime: Timestamp::from_parts(stat.st_mtime, stat.st_mtime_nsec as u32),
    }
}

/// Whether what is allocated beyond the end of a file is a guess of the file system, which it takes back when nobody has the
/// file open, and which is no part of it. XFS does so; what was asked for by `fallocate` stays there too.
fn is_speculative(fd: RawFd) -> bool {
    const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
    const FS_XFLAG_PREALLOC: u32 = 2;
    // SAFETY: an all-zero statfs is valid; the pointers are to a live one, and to the 28 bytes that the request writes.
    unsafe {
        let (mut place, mut flags) = (std::mem::zeroed::<libc::statfs>(), [0u32; 7]);
        libc::fstatfs(fd, &raw mut place) == 0
            && place.f_type == libc::XFS_SUPER_MAGIC
            && libc::ioctl(fd, FS_IOC_FSGETXATTR, flags.as_mut_ptr()) == 0
            && flags[0] & FS_XFLAG_PREALLOC == 0
    }
}

pub(super) fn stat(fd: RawFd) -> Result<(Stored, u64), Errno> {
    // SAFETY: an all-zero stat is valid, and the pointer is to a live one.
    let out = unsafe {
        let mut out: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &raw mut out) != 0 {
            return Err(last_error());
        }
        out
    };
    let mut found = stored(&out);
    let full = found.size.div_ceil(4096).saturating_mul(8);
    if found.blocks > full && is_speculative(fd) {
        found.blocks = full;
    }
    Ok((found, out.st_nlink))
}

/// `None` where it does not exist.
pub(super) fn stat_at(folder: RawFd, path: &CStr) -> Result<Option<Stored>, Errno> {
    // SAFETY: an all-zero stat is valid, and the pointers are to live values.
    unsafe {
        let mut out: libc::stat = std::mem::zeroed();
        if libc::fstatat(folder, path.as_ptr(), &raw mut out, libc::AT_SYMLINK_NOFOLLOW) == 0 {
            return Ok(Some(stored(&out)));
        }
    }
    match last_error() {
        Errno::ENOENT => Ok(None),
        errno => Err(errno),
    }
}
