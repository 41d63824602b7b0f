//! Flags of files, in all the ways in which programs ask for them and set them.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub const IMMUTABLE: u32 = 0x10;
pub const APPEND: u32 = 0x20;
pub const NODUMP: u32 = 0x40;
pub const NOATIME: u32 = 0x80;

/// `FS_IOC_GETFLAGS` and its sisters.
const GETFLAGS: u64 = 0x8008_6601;
const SETFLAGS: u64 = 0x4008_6602;
const FSGETXATTR: u64 = 0x801c_581f;
const FSSETXATTR: u64 = 0x401c_5820;
/// System calls of Linux 6.17.
const FILE_GETATTR: i64 = 468;
const FILE_SETATTR: i64 = 469;

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FsXattr {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

/// `struct file_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FileAttr {
    flags: u64,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

fn ioctl<T>(file: &File, request: u64, value: &mut T) -> io::Result<()> {
    // SAFETY: an open descriptor, and a value of the type that these requests read or write.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(value)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// As `lsattr` asks: the bits above, and whatever else a file system has.
///
/// # Errors
/// The kernel's, as for all functions here.
pub fn get(path: &Path) -> io::Result<u32> {
    // The kernel writes an `int`, though the request's number says `long`.
    let mut flags = 0u32;
    ioctl(&open(path)?, GETFLAGS, &mut flags)?;
    Ok(flags)
}

/// By a request that no file system has.
///
/// # Errors
/// As above.
pub fn ask_for_nothing(path: &Path) -> io::Result<()> {
    ioctl(&open(path)?, 0x6663, &mut 0u32)
}

/// As `chattr` does: all flags.
///
/// # Errors
/// As above.
pub fn set(path: &Path, mut flags: u32) -> io::Result<()> {
    ioctl(&open(path)?, SETFLAGS, &mut flags)
}

/// Sets some of the four, and leaves what else there is.
///
/// # Errors
/// As above.
pub fn set_some(path: &Path, flags: u32) -> io::Result<()> {
    set(path, get(path)? & !(IMMUTABLE | APPEND | NODUMP | NOATIME) | flags)
}

/// In the other form: 8 immutable, 0x10 append only, 0x40 no access times, 0x80 no dump.
///
/// # Errors
/// As above.
pub fn get_xattr(path: &Path) -> io::Result<u32> {
    let mut xattr = FsXattr::default();
    ioctl(&open(path)?, FSGETXATTR, &mut xattr)?;
    Ok(xattr.flags)
}

/// # Errors
/// As above.
pub fn set_xattr(path: &Path, flags: u32, project: u32) -> io::Result<()> {
    ioctl(&open(path)?, FSSETXATTR, &mut FsXattr { flags, project, ..FsXattr::default() })
}

/// By a path alone, in that other form.
///
/// # Errors
/// As above; `ENOSYS` before Linux 6.17.
pub fn get_attr(path: &Path) -> io::Result<u64> {
    let mut attr = FileAttr::default();
    attr_call(FILE_GETATTR, path, &mut attr).map(|()| attr.flags)
}

/// # Errors
/// As above.
pub fn set_attr(path: &Path, flags: u64) -> io::Result<()> {
    attr_call(FILE_SETATTR, path, &mut FileAttr { flags, ..FileAttr::default() })
}

fn attr_call(number: i64, path: &Path, attr: &mut FileAttr) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let len = size_of::<FileAttr>();
    // SAFETY: a terminated string, and a value of the given length that is read or written.
    let result = unsafe { libc::syscall(number, libc::AT_FDCWD, path.as_ptr(), std::ptr::from_mut(attr), len, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
