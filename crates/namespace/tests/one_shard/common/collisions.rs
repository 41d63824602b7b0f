//! Names of one hash, made by running the hash backwards, as anybody can.

#![allow(unreachable_pub, reason = "two test crates take it in, at places of their own")]

use types::name_hash::{HASH_BITS, name_hash};

/// `count` names of the hash `hash`, each of `words` times 8 bytes, at least 2 times.
pub fn names_of(hash: u64, words: usize, count: u64) -> Vec<Vec<u8>> {
    let end = unmix(hash << (64 - HASH_BITS)) ^ (8 * words as u64);
    let made = (0..).filter_map(|number: u64| {
        let mut name = vec![b'x'; 8 * (words - 2)];
        name.extend_from_slice(format!("{number:08}").as_bytes());
        // The last word is what leads from the state before it to the end.
        let last = unmix(end) ^ state_after(&name);
        name.extend_from_slice(&last.to_le_bytes());
        (!name.iter().any(|byte| matches!(byte, 0 | b'/'))).then_some(name)
    });
    let names: Vec<_> = made.take(count as usize).collect();
    assert!(names.iter().all(|name| name_hash(name) == hash));
    names
}

fn state_after(words: &[u8]) -> u64 {
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    words.as_chunks().0.iter().fold(0x9e37_79b9_7f4a_7c15, |state, bytes| mix(state ^ word(bytes)))
}

const FACTORS: [u64; 2] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53];

fn mix(state: u64) -> u64 {
    let mixed = FACTORS.iter().fold(state, |h, factor| (h ^ (h >> 33)).wrapping_mul(*factor));
    mixed ^ (mixed >> 33)
}

fn unmix(state: u64) -> u64 {
    // A shift by more than half undoes itself.
    let h = state ^ (state >> 33);
    FACTORS.iter().rev().fold(h, |h, factor| {
        let h = h.wrapping_mul(inverse(*factor));
        h ^ (h >> 33)
    })
}

/// Of an odd number modulo 2^64, by Newton's method.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |x, _| x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x))))
}
