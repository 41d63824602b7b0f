//! Where a file has space. Other than `SEEK_HOLE`, this counts what is reserved and was never written.

use std::ops::Range;
use std::os::fd::RawFd;

/// `FS_IOC_FIEMAP` in `<linux/fs.h>`.
const FIEMAP: libc::Ioctl = 0xc020_660b;
/// Extents that are asked for at once.
const EXTENTS: usize = 32;

/// `struct fiemap` with its extents.
#[repr(C)]
#[derive(Default)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more_reserved: [u32; 3],
}

/// Up to where the file has space for all of the range; `None` where its file system does not tell. May block.
pub(super) fn covered_until(fd: RawFd, range: Range<u64>) -> Option<u64> {
    let mut at = range.start;
    while at < range.end {
        let mut map = Map { start: at, length: range.end - at, count: EXTENTS as u32, ..Map::default() };
        // SAFETY: the kernel reads and writes a live structure that has room for `count` extents.
        if unsafe { libc::ioctl(fd, FIEMAP, &raw mut map) } < 0 {
            return None;
        }
        let found = map.extents.get(..map.mapped as usize).unwrap_or_default();
        if found.is_empty() {
            return Some(at);
        }
        for extent in found {
            if extent.logical > at {
                return Some(at);
            }
            at = at.max(extent.logical + extent.length);
        }
    }
    Some(range.end)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;

    use super::*;

    const BLOCK: u64 = 4096;

    fn cover(fd: RawFd, range: Range<u64>) -> bool {
        covered_until(fd, range.clone()).is_none_or(|until| until == range.end)
    }

    #[test]
    fn holes_have_no_space_and_what_is_reserved_has() {
        let file = tempfile::tempfile().expect("a file");
        let fd = file.as_raw_fd();
        file.set_len(1000 * BLOCK).expect("longer");
        if cover(fd, 0..BLOCK) {
            return; // The file system does not tell.
        }
        // More extents than are asked for at once.
        for n in 0..100 {
            file.write_all_at(&[1; BLOCK as usize], n * 2 * BLOCK).expect("written");
            assert!(cover(fd, n * 2 * BLOCK + 5..(n * 2 + 1) * BLOCK), "also before it is on the disk");
            assert!(!cover(fd, n * 2 * BLOCK..(n * 2 + 1) * BLOCK + 1));
        }
        file.sync_all().expect("synced");
        for n in 0..100 {
            file.write_all_at(&[1; BLOCK as usize], (n * 2 + 1) * BLOCK).expect("written");
            assert!(cover(fd, 0..(n * 2 + 3).min(200) * BLOCK));
            assert_eq!(cover(fd, 0..200 * BLOCK), n == 99);
        }
        assert!(!cover(fd, 0..201 * BLOCK) && !cover(fd, 900 * BLOCK..901 * BLOCK));
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::fallocate(fd, 0, 200 * BLOCK as i64, 10 * BLOCK as i64) }, 0);
        assert!(cover(fd, 0..210 * BLOCK) && !cover(fd, 0..211 * BLOCK));
        assert_eq!(covered_until(fd, 5..220 * BLOCK), Some(210 * BLOCK));
    }
}
