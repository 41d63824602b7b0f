//! The kernel's table of mounts.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Mount points at `path` or below, the latest first.
#[must_use]
pub fn below(path: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut points: Vec<PathBuf> = points.filter(|point| point.starts_with(path)).collect();
    points.reverse();
    points
}

/// Whether something is mounted on exactly this path.
#[must_use]
pub fn is_mounted(path: &Path) -> bool {
    below(path).iter().any(|point| point == path)
}

/// # Errors
/// The kernel's.
pub fn unmount(point: &Path, lazily: bool) -> io::Result<()> {
    let path = CString::new(point.as_os_str().as_bytes())?;
    // SAFETY: a terminated string that lives through the call.
    match unsafe { libc::umount2(path.as_ptr(), if lazily { libc::MNT_DETACH } else { 0 }) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
