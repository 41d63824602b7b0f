//! Checksums of pieces, from which that of the whole follows: the bytes are looked at once, though the network has a sum of
//! all of them and the disk one of each block.

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
        self.crc = match len {
            PIECE => past_piece(self.crc) ^ crc,
            // The first one.
            _ if self.crc == 0 => crc,
            _ => multiply(self.crc, power(len)) ^ crc,
        };
    }

    #[must_use]
    pub fn crc(self) -> u32 {
        self.crc
    }
}

// A sum is a polynomial over GF(2) modulo that of Castagnoli, its highest bit the constant term. Behind it, `n` bytes multiply
// it by x to the power of 8n, and add what they have themselves: as in zlib's `crc32_combine` since 1.2.12. The library that
// makes the sums combines them, too, in some 10 us each.

/// x to the power of 32, modulo itself.
const CASTAGNOLI: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ if b & 1 == 1 { CASTAGNOLI } else { 0 };
        bit >>= 1;
    }
    product
}

/// x to the power of 8 `len`.
const fn power(mut len: usize) -> u32 {
    let (mut product, mut square) = (ONE, ONE >> 8);
    while len > 0 {
        if len & 1 == 1 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        len >>= 1;
    }
    product
}

/// What a sum becomes by a piece of zeros behind it, apart from what these have themselves: each byte of the sum has its own
/// part in the outcome.
fn past_piece(crc: u32) -> u32 {
    crc.to_le_bytes().iter().zip(&PARTS).fold(0, |outcome, (&value, part)| outcome ^ part[usize::from(value)])
}

static PARTS: [[u32; 256]; 4] = {
    let factor = power(PIECE);
    let (mut parts, mut byte) = ([[0; 256]; 4], 0);
    while byte < 4 {
        let mut value = 0;
        while value < 256 {
            parts[byte][value] = multiply((value as u32) << (8 * byte), factor);
            value += 1;
        }
        byte += 1;
    }
    parts
};

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
