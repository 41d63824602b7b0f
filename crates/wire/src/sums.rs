//! Checksums of pieces, from which that of the whole follows: the bytes are looked at once, though the network has a sum of
//! all of them and the disk one of each block.

use std::sync::LazyLock;

use crc_fast::CrcAlgorithm::Crc32Iscsi;

use crate::frame::crc32c;

/// Bytes of a piece; only the last may be shorter.
pub const PIECE: usize = 4096;

/// CRC32C of each piece of some bytes, from their beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sums {
    pieces: Vec<u32>,
    /// Bytes.
    len: usize,
}

impl Sums {
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { pieces: bytes.chunks(PIECE).map(crc32c).collect(), len: bytes.len() }
    }

    /// CRC32C of all.
    #[must_use]
    pub fn whole(&self) -> u32 {
        let mut joined = Joined::default();
        for (index, &crc) in self.pieces.iter().enumerate() {
            joined.add(crc, PIECE.min(self.len - index * PIECE));
        }
        joined.crc()
    }

    /// CRC32C of the `PIECE` bytes from byte `at` on; `None` where these are not a piece.
    #[must_use]
    pub fn piece(&self, at: usize) -> Option<u32> {
        if !at.is_multiple_of(PIECE) || self.len.checked_sub(at)? < PIECE {
            return None;
        }
        self.pieces.get(at / PIECE).copied()
    }
}

/// CRC32C of pieces one after the other.
#[derive(Clone, Copy, Default, Debug)]
pub struct Joined {
    crc: u32,
}

impl Joined {
    /// The next `len` bytes, which have this CRC32C.
    pub fn add(&mut self, crc: u32, len: usize) {
        self.crc = if len == PIECE {
            past_piece(self.crc) ^ crc
        } else {
            crc_fast::checksum_combine(Crc32Iscsi, self.crc.into(), crc.into(), len as u64) as u32
        };
    }

    #[must_use]
    pub fn crc(self) -> u32 {
        self.crc
    }
}

/// What a sum becomes by a piece of zeros behind it, apart from what these have themselves. That is linear over GF(2), as
/// is known from zlib's `crc32_combine`: each byte of the sum has its own part in the outcome.
fn past_piece(crc: u32) -> u32 {
    static PARTS: LazyLock<[[u32; 256]; 4]> = LazyLock::new(|| {
        let alone = |crc: u32| crc_fast::checksum_combine(Crc32Iscsi, crc.into(), 0, PIECE as u64) as u32;
        std::array::from_fn(|byte| std::array::from_fn(|value| alone((value as u32) << (8 * byte))))
    });
    let parts = &*PARTS;
    crc.to_le_bytes().iter().zip(parts).fold(0, |outcome, (&value, part)| outcome ^ part[usize::from(value)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_whole_follows_from_the_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..5 * PIECE), cut in 0..PIECE) {
            let sums = Sums::of(&bytes);
            prop_assert_eq!(sums.whole(), crc32c(&bytes));
            for at in [0, 1, PIECE, 2 * PIECE, 4 * PIECE, 5 * PIECE, usize::MAX - 4095] {
                let piece = bytes.get(at..at.saturating_add(PIECE)).filter(|_| at % PIECE == 0);
                prop_assert_eq!(sums.piece(at), piece.map(crc32c));
            }
            // A first piece of another length, as a read that begins in the midst of a block has.
            let (first, rest) = bytes.split_at(cut.min(bytes.len()));
            let mut joined = Joined::default();
            joined.add(crc32c(first), first.len());
            rest.chunks(PIECE).for_each(|piece| joined.add(crc32c(piece), piece.len()));
            prop_assert_eq!(joined.crc(), crc32c(&bytes));
        }
    }
}
