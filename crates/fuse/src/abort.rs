//! Ending a connection from the kernel's side, as an administrator would: through the control file system (`fusectl`).

use std::ffi::{CString, c_int, c_long};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::mount::is_connected;

/// Where systemd and others mount the control file system.
const CONTROL: &str = "/sys/fs/fuse/connections";

/// Ends the connection of `device`, whose mount has this number: every request is an error from then on, also one that the
/// kernel has handed over already. Does nothing where it has ended by itself.
///
/// # Errors
/// The kernel's.
pub(crate) fn abort(device: &OwnedFd, number: Option<&str>) -> io::Result<()> {
    let name = number.and_then(connection).ok_or(io::ErrorKind::NotFound)?;
    let path = format!("{name}/abort");
    let mut file = File::options().write(true).open(format!("{CONTROL}/{path}")).or_else(|_| open_unmounted(&path))?;
    // A connection's number is given out again when it has ended; an open file of the control file system stays that of one
    // connection. So it is ours where ours lives when the file is open already.
    if is_connected(device) { file.write_all(b"1") } else { Ok(()) }
}

/// What the control file system calls the connection of the mount with this number (`major:minor`).
fn connection(number: &str) -> Option<u32> {
    // What has no block device has major number 0.
    number.strip_prefix("0:")?.parse().ok()
}

/// Opens a file of the control file system where nobody has mounted that, as in most containers.
fn open_unmounted(path: &str) -> io::Result<File> {
    const CLOSE_ON_EXEC: c_long = 1;
    const CREATE: c_long = 6;
    let nothing = std::ptr::null::<u8>();
    // SAFETY: the name is terminated and lives through the call.
    let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, c"fusectl".as_ptr(), CLOSE_ON_EXEC) })?;
    let fd = context.as_raw_fd();
    // SAFETY: this command takes no pointers but null ones.
    let created = unsafe { libc::syscall(libc::SYS_fsconfig, fd, CREATE, nothing, nothing, 0) };
    if created != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a system call without memory.
    let mount = descriptor(unsafe { libc::syscall(libc::SYS_fsmount, fd, CLOSE_ON_EXEC, 0) })?;
    let path = CString::new(path)?;
    let flags = libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: the path is terminated and lives through the call.
    let file = unsafe { libc::openat(mount.as_raw_fd(), path.as_ptr(), flags) };
    descriptor(c_long::from(file)).map(File::from)
}

/// What a system call gave that makes a descriptor.
fn descriptor(result: c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = c_int::try_from(result).map_err(io::Error::other)?;
    // SAFETY: a fresh descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_minor_number_of_its_mount() {
        assert_eq!(connection("0:57"), Some(57));
        assert_eq!(connection("8:1"), None, "a disk");
        assert_eq!(connection("0:"), None);
    }
}
