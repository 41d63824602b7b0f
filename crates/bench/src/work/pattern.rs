//! Bytes that tell where they belong, so that a reader sees whether it got the right ones.

use anyhow::{Result, ensure};

/// What is stamped: every so many bytes.
pub(crate) const BLOCK: usize = 4096;

/// A buffer for direct I/O: page-aligned, a whole number of blocks.
pub(crate) struct Pages {
    bytes: Vec<Page>,
}

#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; BLOCK]);

impl Pages {
    /// `len` bytes, a multiple of the block, with noise in them: nothing on the way can make them fewer.
    pub(crate) fn noise(len: usize, seed: u64) -> Self {
        assert!(len.is_multiple_of(BLOCK), "whole blocks");
        let mut random = Random::new(seed);
        let mut page = || {
            let mut page = Page([0; BLOCK]);
            for chunk in page.0.chunks_exact_mut(8) {
                chunk.copy_from_slice(&random.next().to_le_bytes());
            }
            page
        };
        Self { bytes: (0..len / BLOCK).map(|_| page()).collect() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: pages are arrays of bytes without padding, one after the other.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.bytes.len() * BLOCK) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any byte is valid in them.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_mut_ptr().cast(), self.bytes.len() * BLOCK) }
    }
}

/// Bytes of a mark.
const STAMP: usize = 16;

/// Marks each block of `bytes`, which are to lie at `offset` of file number `file`; also one at the end that is not
/// whole, if it has room.
pub(crate) fn stamp(bytes: &mut [u8], file: usize, offset: u64) {
    for (block, at) in bytes.chunks_mut(BLOCK).zip((offset..).step_by(BLOCK)) {
        if block.len() < STAMP {
            return;
        }
        block[..8].copy_from_slice(&at.to_le_bytes());
        block[8..16].copy_from_slice(&(file as u64).to_le_bytes());
    }
}

/// # Errors
/// Where a block of `bytes` was not written for this place.
pub(crate) fn check(bytes: &[u8], file: usize, offset: u64) -> Result<()> {
    for (block, at) in bytes.chunks(BLOCK).zip((offset..).step_by(BLOCK)).filter(|(block, _)| block.len() >= STAMP) {
        let right = block[..8] == at.to_le_bytes() && block[8..16] == (file as u64).to_le_bytes();
        ensure!(right, "file {file} has wrong bytes at {at}");
    }
    Ok(())
}

/// The content of small file number `file`: no two are alike, and nothing on the way can make it fewer bytes.
pub(crate) fn content(file: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(file);
    let mut content: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    content.truncate(len);
    content
}

/// Numbers without a pattern, the same for the same seed (`SplitMix64`: Steele, Lea, Flood).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_place_is_seen() {
        let mut pages = Pages::noise(4 * BLOCK, 1);
        assert_eq!(pages.bytes().as_ptr().align_offset(BLOCK), 0);
        stamp(pages.bytes_mut(), 3, 8192);
        assert!(check(pages.bytes(), 3, 8192).is_ok());
        assert!(check(pages.bytes(), 2, 8192).is_err());
        assert!(check(pages.bytes(), 3, 4096).is_err());
        pages.bytes_mut()[3 * BLOCK] ^= 1;
        assert!(check(pages.bytes(), 3, 8192).is_err());
        let mut record = vec![0; 2 * BLOCK + 20];
        stamp(&mut record, 3, 100);
        assert!(check(&record, 3, 100).is_ok());
        record[2 * BLOCK] ^= 1;
        assert!(check(&record, 3, 100).is_err(), "the rest after whole blocks counts too");
    }

    #[test]
    fn small_files_differ() {
        assert_eq!(content(1, 3_901).len(), 3_901);
        assert_eq!(content(1, 100), content(1, 3_901)[..100]);
        assert_ne!(content(1, 100), content(2, 100));
    }
}
