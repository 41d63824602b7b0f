//! Which part of a split directory has a name. **Frozen**: names on disk are found by it.
//!
//! The parts have adjacent ranges of the names' hashes, of one length but for rounding, in their order. So a listing goes
//! through the parts one after the other in the order that it has within one, and its cookies say in which part they lie.

use crate::name_hash::{HASH_BITS, TIE_BITS, name_hash};

/// Above the hashes of all names.
pub const HASH_END: u64 = 1 << HASH_BITS;

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

    /// The least hash of its names.
    #[must_use]
    pub fn begin(self) -> u64 {
        let begin = (u128::from(self.index) << HASH_BITS).div_ceil(u128::from(self.count.max(1)));
        (begin as u64).max(1)
    }

    /// Above the hashes of its names: where the next part begins.
    #[must_use]
    pub fn end(self) -> u64 {
        let next = self.index.saturating_add(1);
        if next >= self.count { HASH_END } else { Self { index: next, ..self }.begin() }
    }

    /// There can be such a part.
    #[must_use]
    pub fn is_possible(self) -> bool {
        (PARTS_MIN..=PARTS_MAX).contains(&self.count) && self.index < self.count
    }
}

/// The least hash of what comes next in a listing after `cookie`.
#[must_use]
pub fn hash_after(cookie: u64) -> u64 {
    // The greatest tie: after all names of its hash. No name has the hash 0.
    ((cookie + 1) >> TIE_BITS).max(1)
}

/// After which the names of `hash` come next, and it is at least 1.
#[must_use]
pub fn cookie_before(hash: u64) -> u64 {
    (hash << TIE_BITS) - 1
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
    fn a_part_begins_where_the_one_before_ends() {
        for count in PARTS_MIN..=PARTS_MAX {
            let mut at = 1;
            for part in (0..count).map(|index| PartNumber { index, count }) {
                assert_eq!(part.begin(), at);
                at = part.end();
                assert_eq!([part.begin(), at - 1].map(|hash| PartNumber::of_hash(hash, count)), [part; 2]);
            }
            assert_eq!(at, HASH_END);
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
    fn a_listing_goes_on_after_its_cookie() {
        for name in ["a", "b", "Makefile"] {
            let cookie = name_hash(name.as_bytes()) << TIE_BITS | 15;
            let hash = name_hash(name.as_bytes());
            assert_eq!(
                (hash_after(cookie), hash_after(cookie - 1), hash_after(cookie_before(hash))),
                (hash + 1, hash, hash)
            );
        }
        assert_eq!(hash_after(0), 1);
    }
}
