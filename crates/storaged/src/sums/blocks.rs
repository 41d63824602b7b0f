//! Which blocks a range of bytes concerns, and their sums.

use std::ops::Range;

use wire::frame::{crc32c, crc32c_of_parts};

/// Bytes that have a sum together.
pub(crate) const BLOCK: u64 = 4096;
pub(crate) const BLOCK_LEN: usize = BLOCK as usize;

static ZEROS: [u8; BLOCK_LEN] = [0; BLOCK_LEN];
/// CRC32C of a block of zeros.
const OF_ZEROS: u32 = 0x98f9_4189;

/// The sum of a block, of which `bytes` are the first; the rest, up to a whole block, is zeros. That of zeros is 0.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let missing = &ZEROS[bytes.len()..];
    let crc = if missing.is_empty() { crc32c(bytes) } else { crc32c_of_parts([bytes, missing]) };
    of_crc(crc)
}

/// The sum of a whole block with this CRC32C.
pub(crate) fn of_crc(crc: u32) -> u32 {
    crc ^ OF_ZEROS
}

/// CRC32C of a whole block with this sum.
pub(crate) fn crc(sum: u32) -> u32 {
    sum ^ OF_ZEROS
}

/// The blocks that have at least one byte of the range; none where it is empty.
pub(crate) fn covering(bytes: &Range<u64>) -> Range<u64> {
    if bytes.is_empty() {
        return bytes.start / BLOCK..bytes.start / BLOCK;
    }
    bytes.start / BLOCK..bytes.end.div_ceil(BLOCK)
}

/// As bytes, whole blocks around the range.
pub(crate) fn rounded(bytes: Range<u64>) -> Range<u64> {
    if bytes.is_empty() {
        return bytes;
    }
    let blocks = covering(&bytes);
    blocks.start * BLOCK..blocks.end.saturating_mul(BLOCK)
}

/// Whether the block has bytes outside `bytes` that lie below `size`: they stay when the range is changed.
pub(crate) fn keeps(block: u64, bytes: &Range<u64>, size: u64) -> bool {
    let (start, end) = (block * BLOCK, block.saturating_add(1).saturating_mul(BLOCK).min(size));
    start < bytes.start.min(size) || bytes.end < end
}

/// The first and the last block of the range where a part of them stays.
pub(crate) fn edges(bytes: &Range<u64>, size: u64) -> Vec<u64> {
    let blocks = covering(bytes);
    let (Some(first), Some(last)) = (blocks.clone().next(), blocks.last()) else { return Vec::new() };
    let mut edges = vec![first];
    edges.extend(Some(last).filter(|&last| last != first));
    edges.retain(|&block| keeps(block, bytes, size));
    edges
}

/// The part of `data`, which lies at `offset`, that is within the block: where in the block, and where in `data`.
pub(crate) fn overlap(block: u64, offset: u64, len: u64) -> (Range<usize>, Range<usize>) {
    let begin = block * BLOCK;
    let (start, end) = (offset.max(begin), (offset + len).min(begin.saturating_add(BLOCK)));
    let end = end.max(start);
    ((start - begin) as usize..(end - begin) as usize, (start - offset) as usize..(end - offset) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_frozen() {
        // They are on disk.
        assert_eq!(crc32c(&ZEROS), OF_ZEROS);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the polynomial of Castagnoli");
        assert_eq!((sum(&[]), sum(&ZEROS), sum(&[0; 100])), (0, 0, 0));
        assert_eq!(sum(b"123456789"), sum(&[b"123456789".as_slice(), &[0; 4087]].concat()));
        assert_eq!(sum(b"123456789"), 0x7b88_a782);
    }

    #[test]
    fn every_flipped_bit_shows() {
        let mut block: Vec<u8> = (0..BLOCK_LEN).map(|n| (n * n % 251) as u8).collect();
        let good = sum(&block);
        for bit in (0..BLOCK_LEN * 8).step_by(7) {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum(&block), good, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn ranges_become_blocks() {
        assert_eq!(covering(&(0..0)), 0..0);
        assert_eq!(covering(&(0..1)), 0..1);
        assert_eq!(covering(&(4095..4097)), 0..2);
        assert_eq!(covering(&(4096..8192)), 1..2);
        assert_eq!(rounded(5000..5001), 4096..8192);
        assert_eq!(rounded(7..7), 7..7);
        assert_eq!(rounded(u64::MAX - 5..u64::MAX).end, u64::MAX);
    }

    #[test]
    fn edges_are_what_keeps_bytes() {
        let none = Vec::<u64>::new();
        assert_eq!(edges(&(0..4096), 100_000), none);
        assert_eq!(edges(&(1..4096), 100_000), [0]);
        assert_eq!(edges(&(1..8191), 100_000), [0, 1]);
        assert_eq!(edges(&(0..100), 100), none, "nothing lies beyond the end");
        assert_eq!(edges(&(0..100), 101), [0]);
        assert_eq!(edges(&(50..100), 100), [0]);
        assert_eq!(edges(&(5000..6000), 4096), none, "before it is a hole that nothing was written to");
        assert_eq!(edges(&(5000..6000), 4097), [1]);
        assert_eq!(edges(&(5000..20_000), 20_001), [1, 4]);
        assert_eq!(edges(&(5..5), 100), none);
    }

    #[test]
    fn parts_of_blocks() {
        assert_eq!(overlap(1, 5000, 10_000), (904..4096, 0..3192));
        assert_eq!(overlap(2, 5000, 10_000), (0..4096, 3192..7288));
        assert_eq!(overlap(3, 5000, 10_000), (0..2712, 7288..10_000));
    }
}
