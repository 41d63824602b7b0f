//! Which part of a split directory has a name. **Frozen**: names on disk are found by it.
//!
//! The parts have adjacent ranges of the names' hashes, of one length but for rounding, in their order. So a listing goes
//! through the parts one after the other in the order that it has within one, and its cookies say in which part they lie.

use crate::name_hash::{HASH_BITS, TIE_BITS, name_hash};

/// Into so many parts at least, and at most.
pub const PARTS_MIN: u16 = 2;
pub const PARTS_MAX: u16 = 64;

/// One of the parts of a directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PartNumber {
    /// From 0.
    pub index: u16,
    /// Of parts of the directory.
    pub count: u16,
}

impl PartNumber {
    /// The part that has `name`, of `count`, which is at least 1.
    #[must_use]
    pub fn of_name(name: &[u8], count: u16) -> Self {
        Self::of_hash(name_hash(name), count)
    }

    /// The part that has the names of this hash.
    #[must_use]
    pub fn of_hash(hash: u64, count: u16) -> Self {
        let index = (u128::from(hash) * u128::from(count)) >> HASH_BITS;
        Self { index: (index as u16).min(count.saturating_sub(1)), count }
    }

    /// The part in which a listing goes on after `cookie`.
    #[must_use]
    pub fn of_cookie(cookie: u64, count: u16) -> Self {
        Self::of_hash(cookie >> TIE_BITS, count)
    }

    /// There can be such a part.
    #[must_use]
    pub fn is_possible(self) -> bool {
        (PARTS_MIN..=PARTS_MAX).contains(&self.count) && self.index < self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name_hash::HASH_MAX;

    #[test]
    fn parts_have_adjacent_ranges_in_their_order() {
        for count in PARTS_MIN..=PARTS_MAX {
            assert_eq!(PartNumber::of_hash(1, count).index, 0);
            assert_eq!(PartNumber::of_hash(HASH_MAX, count).index, count - 1);
            let step = (1u64 << HASH_BITS) / u64::from(count) / 7;
            let indexes: Vec<u16> =
                (0..7 * u64::from(count)).map(|n| PartNumber::of_hash(n * step, count).index).collect();
            assert!(indexes.is_sorted() && indexes.windows(2).all(|pair| pair[1] - pair[0] <= 1));
        }
    }

    #[test]
    fn is_frozen() {
        // Names on disk lie where this says: it may never change.
        let indexes =
            [&b"a"[..], b"Makefile", b"a-name-of-more-than-two-words"].map(|name| PartNumber::of_name(name, 5).index);
        assert_eq!(indexes, [1, 3, 2]);
    }

    #[test]
    fn names_spread_evenly() {
        let mut counts = [0; 7];
        for n in 0..70_000 {
            counts[usize::from(PartNumber::of_name(format!("file.{n}").as_bytes(), 7).index)] += 1;
        }
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
    }

    #[test]
    fn a_cookie_lies_where_its_name_does() {
        for name in ["a", "b", "Makefile"] {
            let cookie = name_hash(name.as_bytes()) << TIE_BITS | 15;
            assert_eq!(PartNumber::of_cookie(cookie, 9), PartNumber::of_name(name.as_bytes(), 9));
        }
        assert_eq!(PartNumber::of_cookie(0, 9).index, 0);
    }
}
