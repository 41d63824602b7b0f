//! `M` name: what a shard's store knows of itself.
//!
//! | name | value |
//! |---|---|
//! | `super` | format:4 shard:2 |
//! | `ids` | the first inode counter not yet reserved:8 |
//! | `ids_at` | when that was written: seconds since 2020, by the clock:8 |
//! | `incarnation` | of the last start, higher than any before:8 |
//! | `kept_since` | the birth of the first session that has lost nothing that it was answered:8 |
//! | `lease_term`, `session_expiry` | milliseconds:8, the longest that any client may still go by |
//! | `counts` | commit number:8 inodes:8, as in the head of a stored reply; the highest commit number is right |

use types::id::ShardId;

use crate::error::Damage;
use crate::schema::{FORMAT, Fields};

pub const PREFIX: u8 = b'M';
pub const SUPERBLOCK: &[u8] = b"Msuper";
pub const IDS: &[u8] = b"Mids";
pub const IDS_AT: &[u8] = b"Mids_at";
pub const INCARNATION: &[u8] = b"Mincarnation";
pub const KEPT_SINCE: &[u8] = b"Mkept_since";
pub const LEASE_TERM: &[u8] = b"Mlease_term";
pub const SESSION_EXPIRY: &[u8] = b"Msession_expiry";
pub const COUNTS: &[u8] = b"Mcounts";

#[must_use]
pub fn ser_superblock(shard: ShardId) -> [u8; 6] {
    let [a, b, c, d] = FORMAT.to_le_bytes();
    let [e, f] = shard.0.to_le_bytes();
    [a, b, c, d, e, f]
}

/// # Errors
/// Where the store has another format, belongs to another shard, or the record is none.
pub fn check_superblock(value: &[u8], shard: ShardId) -> Result<(), Damage> {
    let mut fields = Fields::new(value, SUPERBLOCK);
    if fields.u32()? != FORMAT {
        return Err(fields.damage("the store has a format that this release does not know"));
    }
    if fields.u16()? != shard.0 {
        return Err(fields.damage("the store belongs to another shard"));
    }
    fields.finish()
}

#[must_use]
pub fn ser_number(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

/// # Errors
/// Where the value is no number.
pub fn deser_number(key: &[u8], value: &[u8]) -> Result<u64, Damage> {
    let mut fields = Fields::new(value, key);
    let number = fields.u64()?;
    fields.finish()?;
    Ok(number)
}

/// How many inodes there were after which commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Counts {
    pub commit: u64,
    pub inodes: u64,
}

#[must_use]
pub fn ser_counts(counts: Counts) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&counts.commit.to_le_bytes());
    value[8..].copy_from_slice(&counts.inodes.to_le_bytes());
    value
}

/// # Errors
/// Where the value is no such record.
pub fn deser_counts(key: &[u8], value: &[u8]) -> Result<Counts, Damage> {
    let mut fields = Fields::new(value, key);
    let counts = Counts { commit: fields.u64()?, inodes: fields.u64()? };
    fields.finish()?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superblock_tells_foreign_stores() {
        let value = ser_superblock(ShardId(7));
        assert!(check_superblock(&value, ShardId(7)).is_ok());
        assert_eq!(check_superblock(&value, ShardId(8)).unwrap_err().what, "the store belongs to another shard");
        let mut newer = value;
        newer[0] += 1;
        let error = check_superblock(&newer, ShardId(7)).unwrap_err();
        assert_eq!(error.what, "the store has a format that this release does not know");
        assert!(check_superblock(&value[..5], ShardId(7)).is_err());
    }

    #[test]
    fn numbers_round_trip() {
        assert_eq!(deser_number(IDS, &ser_number(77)), Ok(77));
        assert!(deser_number(IDS, b"1234567").is_err());
        let counts = Counts { commit: 3, inodes: 4 };
        assert_eq!(deser_counts(COUNTS, &ser_counts(counts)), Ok(counts));
        assert!(deser_counts(COUNTS, b"123456789").is_err());
    }
}
