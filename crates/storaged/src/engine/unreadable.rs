//! What the disk does not give of a sidecar: found, and given up. Blocks: runs on helper threads.

use std::ops::Range;
use std::os::fd::RawFd;

use types::error::Errno;

use super::syscall;
use crate::sums::Entry;
use crate::sums::header::{HEADER_LEN, Header, place};

/// Bytes. It is a page of the file, or more of them.
pub(super) const FILE_PAGE: u64 = 4096;

/// Which pages of the file with any of these bytes the disk does not give.
pub(super) fn unreadable_pages(fd: RawFd, bytes: Range<u64>) -> Result<Vec<u64>, Errno> {
    let mut page = [0; FILE_PAGE as usize];
    let mut unreadable = Vec::new();
    for number in bytes.start / FILE_PAGE..bytes.end.div_ceil(FILE_PAGE) {
        match syscall::read_at(fd, &mut page, number * FILE_PAGE) {
            Ok(_) => {}
            Err(Errno::EIO) => unreadable.push(number),
            Err(errno) => return Err(errno),
        }
    }
    Ok(unreadable)
}

/// The blocks with entries in this page of the file.
pub(super) fn blocks_of_page(number: u64) -> Range<u64> {
    let first = |at: u64| at.saturating_sub(place(0)) / Entry::LEN as u64;
    first(number * FILE_PAGE)..first((number + 1) * FILE_PAGE)
}

/// Fills whole pages with zeros, for which the disk is not asked what they held. The header is on the disk before: nobody
/// may believe them.
pub(super) fn put_zeros(fd: RawFd, header: &Header, pages: &[u64]) -> Result<(), Errno> {
    let mut page = [0; FILE_PAGE as usize];
    page[..HEADER_LEN].copy_from_slice(&header.encode());
    let len = if pages.first() == Some(&0) { page.len() } else { HEADER_LEN };
    syscall::write_at(fd, &page[..len], 0)?;
    syscall::sync_data(fd)?;
    page.fill(0);
    pages.iter().filter(|page| **page > 0).try_for_each(|number| syscall::write_at(fd, &page, number * FILE_PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_in_one_page() {
        let mut next = 0;
        for page in 0..10 {
            let blocks = blocks_of_page(page);
            assert_eq!(blocks.start, next);
            for block in [blocks.start, blocks.end - 1] {
                assert_eq!(place(block) / FILE_PAGE, page);
            }
            next = blocks.end;
        }
    }
}
