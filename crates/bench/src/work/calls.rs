//! System calls relative to an open directory, as few instructions around them as there can be.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// Makes a file that was not there, open for writing.
pub(crate) fn create(dir: &File, name: &CStr) -> io::Result<File> {
    open_at(dir, name, libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)
}

pub(crate) fn open(dir: &File, name: &CStr) -> io::Result<File> {
    open_at(dir, name, libc::O_RDONLY)
}

fn open_at(dir: &File, name: &CStr, flags: i32) -> io::Result<File> {
    // SAFETY: the name lives through the call; a descriptor that it answers is ours alone.
    unsafe {
        match libc::openat(dir.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, 0o644) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

pub(crate) fn unlink(dir: &File, name: &CStr) -> io::Result<()> {
    // SAFETY: the name lives through the call.
    match unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn rename(dir: &File, from: &CStr, to: &CStr) -> io::Result<()> {
    // SAFETY: both names live through the call.
    match unsafe { libc::renameat(dir.as_raw_fd(), from.as_ptr(), dir.as_raw_fd(), to.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn mkdir(dir: &File, name: &CStr) -> io::Result<()> {
    // SAFETY: the name lives through the call.
    match unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), 0o755) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn stat(dir: &File, name: &CStr) -> io::Result<libc::stat> {
    // SAFETY: all zeros are a valid `stat`; name and buffer live through the call.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        match libc::fstatat(dir.as_raw_fd(), name.as_ptr(), &raw mut found, libc::AT_SYMLINK_NOFOLLOW) {
            0 => Ok(found),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
