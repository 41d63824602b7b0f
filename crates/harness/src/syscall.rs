//! System calls that the standard library has no function for.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// # Panics
/// Where a path holds a zero byte.
fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("no zero in a path")
}

fn checked(result: impl Into<i64>) -> io::Result<usize> {
    let result = result.into();
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// # Errors
/// The kernel's, as for all functions here.
pub fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c(from), c(to));
    // SAFETY: two terminated strings that live through the call.
    checked(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })?;
    Ok(())
}

/// # Errors
/// As above.
pub fn setxattr(path: &Path, name: &str, value: &[u8], flags: i32) -> io::Result<()> {
    let (path, name) = (c(path), c(Path::new(name)));
    // SAFETY: terminated strings, and a buffer of the given length.
    checked(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags) })?;
    Ok(())
}

/// # Errors
/// As above; `ERANGE` above 64 KiB.
pub fn getxattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let (path, name) = (c(path), c(Path::new(name)));
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: terminated strings, and a buffer of the given length that is written to.
    let len = checked(unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) as i64
    })?;
    value.truncate(len);
    Ok(value)
}

/// Names in byte order.
///
/// # Errors
/// As above.
pub fn listxattr(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let path = c(path);
    let mut list = vec![0u8; 64 << 10];
    // SAFETY: a terminated string, and a buffer of the given length that is written to.
    let len = checked(unsafe { libc::llistxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) as i64 })?;
    list.truncate(len);
    let mut names: Vec<Vec<u8>> =
        list.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    names.sort();
    Ok(names)
}

/// # Errors
/// As above.
pub fn removexattr(path: &Path, name: &str) -> io::Result<()> {
    let (path, name) = (c(path), c(Path::new(name)));
    // SAFETY: two terminated strings that live through the call.
    checked(unsafe { libc::lremovexattr(path.as_ptr(), name.as_ptr()) })?;
    Ok(())
}

/// Sets atime and mtime, in nanoseconds since 1970.
///
/// # Errors
/// As above.
pub fn utimens(path: &Path, atime: i64, mtime: i64) -> io::Result<()> {
    let path = c(path);
    let time = |ns: i64| libc::timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
    let times = [time(atime), time(mtime)];
    // SAFETY: a terminated string and two times, which live through the call.
    checked(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })?;
    Ok(())
}

/// A fifo.
///
/// # Errors
/// As above.
pub fn mkfifo(path: &Path, mode: u32) -> io::Result<()> {
    let path = c(path);
    // SAFETY: a terminated string that lives through the call.
    checked(unsafe { libc::mkfifo(path.as_ptr(), mode) })?;
    Ok(())
}

/// Bytes that a file system has free for everyone.
///
/// # Errors
/// As above.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c(path);
    let mut answer = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: a terminated string, and room for what the call writes.
    checked(unsafe { libc::statvfs(path.as_ptr(), answer.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded and so written all of it.
    let answer = unsafe { answer.assume_init() };
    Ok(answer.f_bavail * answer.f_frsize)
}

/// A file mapped for reading and writing.
pub struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    /// The first `len` bytes of `file`, shared.
    ///
    /// # Errors
    /// As above.
    pub fn new(file: &std::fs::File, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice takes nobody's memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { at: at.cast(), len }) }
    }

    /// A copy of bytes of it.
    ///
    /// # Panics
    /// Where they do not lie in it.
    #[must_use]
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len, "inside the mapping");
        let mut bytes = vec![0; len];
        // SAFETY: inside the mapping, which is not ours to hold a reference into; the buffer is as long.
        unsafe { std::ptr::copy_nonoverlapping(self.at.add(offset), bytes.as_mut_ptr(), len) };
        bytes
    }

    /// # Panics
    /// Where the bytes do not lie in it.
    pub fn write(&mut self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= self.len, "inside the mapping");
        // SAFETY: inside the mapping; nobody in this process holds a reference into it.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.at.add(offset), data.len()) };
    }

    /// msync: what was written through it is in the file.
    ///
    /// # Errors
    /// As above.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: this mapping's own range.
        checked(unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) })?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping's own range, which nobody refers to.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}
