//! A second way into an object's file, past the page cache of the kernel: a large request is copied neither into
//! pages nor out of them, and no pages have to be found for it first.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Where the kernel does not say what it wants (before 6.1), this suits every disk.
const ALIGN_USUAL: u32 = 4096;
/// `cachestat(2)`, which has the same number on all architectures; since Linux 6.5.
const SYS_CACHESTAT: libc::c_long = 451;

/// An open file without the cache.
pub(crate) struct Direct {
    fd: OwnedFd,
    /// Bytes, powers of two: what addresses in memory, and offsets and lengths in the file, have to be multiples of.
    memory_align: usize,
    offset_align: u64,
}

impl Direct {
    /// The same file as `fd` once more. `None` where its file system has no such way.
    pub(crate) fn open(fd: RawFd, writable: bool) -> Option<Self> {
        let path = format!("/proc/self/fd/{fd}\0");
        let mode = if writable { libc::O_RDWR } else { libc::O_RDONLY };
        // SAFETY: `path` is a live string that ends in zero.
        let opened = unsafe { libc::open(path.as_ptr().cast(), mode | libc::O_DIRECT | libc::O_CLOEXEC) };
        if opened < 0 {
            return None;
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(opened) };
        let (memory, offset) = alignment(fd.as_raw_fd())?;
        Some(Self { fd, memory_align: memory as usize, offset_align: u64::from(offset) })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// `len` rounded up to what can be read; `None` where this offset or this memory does not do.
    pub(crate) fn readable(&self, memory: &[u8], offset: u64, len: u64) -> Option<usize> {
        let rounded = len.next_multiple_of(self.offset_align);
        (self.fits(memory, offset) && rounded <= memory.len() as u64).then_some(rounded as usize)
    }

    pub(crate) fn is_writable(&self, data: &[u8], offset: u64) -> bool {
        self.fits(data, offset) && (data.len() as u64).is_multiple_of(self.offset_align)
    }

    fn fits(&self, memory: &[u8], offset: u64) -> bool {
        memory.as_ptr().addr().is_multiple_of(self.memory_align) && offset.is_multiple_of(self.offset_align)
    }
}

/// Of memory and of offsets; `None` where the file cannot be read directly.
fn alignment(fd: RawFd) -> Option<(u32, u32)> {
    // SAFETY: an all-zero statx is valid; the path is a live empty string, and the pointer is to a live structure.
    let (result, stat) = unsafe {
        let mut stat: libc::statx = mem::zeroed();
        let result = libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, &raw mut stat);
        (result, stat)
    };
    if result != 0 || stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        return Some((ALIGN_USUAL, ALIGN_USUAL));
    }
    let (memory, offset) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
    (memory.is_power_of_two() && offset.is_power_of_two()).then_some((memory, offset))
}

/// What the page cache has of a range, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cached {
    pub(crate) pages: u64,
    /// Of those: not on the disk yet.
    pub(crate) unwritten: u64,
}

/// # Errors
/// The kernel's; `ENOSYS` before 6.5.
pub(crate) fn cached(fd: RawFd, offset: u64, len: u64) -> io::Result<Cached> {
    /// As in `linux/mman.h`.
    #[repr(C)]
    struct Range {
        offset: u64,
        len: u64,
    }
    let range = Range { offset, len };
    // Cached, dirty, under write-back, evicted, recently evicted pages.
    let mut counts = [0u64; 5];
    // SAFETY: the pointers are to live structures of the kernel's layout.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, counts.as_mut_ptr(), 0) };
    if result == 0 {
        Ok(Cached { pages: counts[0], unwritten: counts[1] + counts[2] })
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_written_is_cached() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[1; 100_000]).expect("written");
        assert_eq!(cached(file.as_raw_fd(), 0, 100_000).expect("told").pages, 25);
        assert_eq!(cached(file.as_raw_fd(), 200_000, 1000).expect("told"), Cached { pages: 0, unwritten: 0 });
        assert!(cached(-1, 0, 1).is_err());
    }

    #[test]
    fn only_what_is_aligned_goes() {
        let file = tempfile::tempfile().expect("a file");
        let Some(direct) = Direct::open(file.as_raw_fd(), true) else { return };
        let memory = ring::buf::Buf::with_capacity(64 << 10);
        assert_eq!(direct.readable(&memory, 0, 40_960), Some(40_960));
        assert!(direct.readable(&memory, 0, 40_000).is_some_and(|len| len >= 40_000));
        assert_eq!(direct.readable(&memory, 0, 70_000), None, "longer than the memory");
        assert_eq!(direct.readable(&memory[1..], 0, 4096), None);
        assert_eq!(direct.readable(&memory, 100, 4096), None);
        assert!(direct.is_writable(&memory, 4096) && !direct.is_writable(&memory[..1000], 4096));
    }
}
