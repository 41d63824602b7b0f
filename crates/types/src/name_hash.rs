//! The hash of names by which directories are ordered. **Frozen**: it is in every edge's key and in readers' cookies.

/// Bits of a name's hash. A cookie is the hash and `TIE_BITS` more, and passes through `off_t`, so 63 in all.
pub const HASH_BITS: u32 = 59;
/// The greatest hash but one: the last cookies belong to no name, so that faces may number `.` and `..` before the names
/// and stay within `off_t`.
pub const HASH_MAX: u64 = (1 << HASH_BITS) - 2;
/// Bits of a cookie that count entries with the same hash.
pub const TIE_BITS: u32 = 4;
/// So many names of one hash can a directory have: cookies tell so many apart.
pub const SAME_HASH_MAX: usize = (1 << TIE_BITS) - 1;

/// 59 bits, from 1 to [`HASH_MAX`]. The bytes are taken in words of 8 (the last one filled with zeros) and each word goes
/// through the finaliser of `MurmurHash3` (Appleby, public domain), which loses nothing; the length goes in last.
#[must_use]
pub fn name_hash(name: &[u8]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15;
    let (words, tail) = name.as_chunks::<8>();
    for word in words {
        hash = mix(hash ^ u64::from_le_bytes(*word));
    }
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash = mix(hash ^ name.len() as u64) >> (64 - HASH_BITS);
    hash.clamp(1, HASH_MAX)
}

fn mix(mut h: u64) -> u64 {
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn is_frozen() {
        // Edges on disk are found by these: they may never change. Computed by another implementation.
        assert_eq!(name_hash(b"a"), 0x026e_2f5e_d73c_617d);
        assert_eq!(name_hash(b"Makefile"), 0x04d6_f13b_9cf0_279f);
        assert_eq!(name_hash(b"a-name-of-more-than-two-words"), 0x0389_08a9_46f0_5a12);
        assert_eq!(name_hash(&[0xff; 255]), 0x07ab_db5e_231d_c8e2);
    }

    /// Names made for it by running the hash backwards, as anybody can.
    #[test]
    fn stays_within_its_bounds() {
        assert_eq!(name_hash(b"edge0333SarOb.-H"), 1, "0 before it is bounded");
        assert_eq!(name_hash(b"edge09d5kjgb_,+B"), HASH_MAX);
        assert_eq!(name_hash(b"edge0a744ru+4WEt"), HASH_MAX, "one more before it is bounded");
    }

    #[test]
    fn tells_similar_names_apart() {
        let names = (0..200_000).map(|n| format!("file{n}")).chain((0..200_000).map(|n| format!("{n:08}.dat")));
        let hashes: BTreeSet<u64> = names.map(|name| name_hash(name.as_bytes())).collect();
        assert_eq!(hashes.len(), 400_000);
        assert!(hashes.iter().all(|&hash| (1..1 << HASH_BITS).contains(&hash)));
        assert_ne!(name_hash(b"a"), name_hash(b"a\0"));
    }
}
