//! Where ext4 puts folders.
//!
//! It makes files in the block group of their folder, and does not take the place of one that was removed in the last
//! minute: it looks at each such place of the group, for every file that it makes. With all folders in a few groups, making
//! objects after many were removed took 350 us each. So it is told to put folders of the first level as far apart as it does
//! with home directories.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const GET_FLAGS: libc::Ioctl = 0x8008_6601;
const SET_FLAGS: libc::Ioctl = 0x4008_6602;
/// `FS_TOPDIR_FL` in `<linux/fs.h>`, `T` of `chattr`.
const TOP_DIRECTORY: libc::c_int = 0x0002_0000;

/// Folders that will be made in `directory` are to lie apart. Other file systems than ext2 to ext4 do not know of that, and
/// are left as they are; so is one that takes no changes.
pub(super) fn scatter(directory: &File) {
    let told = flags(directory).and_then(|flags| match flags & TOP_DIRECTORY {
        0 => set_flags(directory, flags | TOP_DIRECTORY),
        _ => Ok(()),
    });
    if let Err(error) = told {
        tracing::debug!(%error, "folders of objects lie where the file system likes");
    }
}

/// As `lsattr` tells them.
fn flags(directory: &File) -> io::Result<libc::c_int> {
    let mut flags: libc::c_int = 0;
    // SAFETY: the kernel writes one int to a live one.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), GET_FLAGS, &raw mut flags) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(flags) }
}

fn set_flags(directory: &File, wanted: libc::c_int) -> io::Result<()> {
    // SAFETY: the kernel reads one int from a live one.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), SET_FLAGS, &raw const wanted) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
pub(super) fn is_scattered(directory: &File) -> bool {
    flags(directory).is_ok_and(|flags| flags & TOP_DIRECTORY != 0)
}
