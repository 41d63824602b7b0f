//! `P` inode: the parts of a directory that is split, in their order. Written once.

use types::id::InodeId;
use types::parts::{PARTS_MAX, PARTS_MIN};

use crate::error::Damage;
use crate::schema::{Fields, deser_inode_key, inode_key};

pub const PREFIX: u8 = b'P';

const VERSION: u8 = 1;

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId) {
    inode_key(key, PREFIX, inode);
}

/// # Errors
/// Where the key is no such record's.
pub fn deser_key(key: &[u8]) -> Result<InodeId, Damage> {
    deser_inode_key(PREFIX, key)
}

#[must_use]
pub fn ser_value(parts: &[InodeId]) -> Vec<u8> {
    let mut value = vec![VERSION];
    for part in parts {
        value.extend_from_slice(&part.0.to_le_bytes());
    }
    value
}

/// # Errors
/// Where the value is no such record.
pub fn deser_value(key: &[u8], value: &[u8]) -> Result<Vec<InodeId>, Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    let (parts, rest) = fields.rest().as_chunks::<8>();
    if !rest.is_empty() || !(usize::from(PARTS_MIN)..=usize::from(PARTS_MAX)).contains(&parts.len()) {
        return Err(Damage::new("directory with an impossible number of parts", key));
    }
    Ok(parts.iter().map(|part| InodeId(u64::from_le_bytes(*part))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(id: u64, parts in prop::collection::vec(any::<u64>().prop_map(InodeId), 2..65)) {
            let mut key = Vec::new();
            ser_key(&mut key, InodeId(id));
            let mut value = ser_value(&parts);
            prop_assert_eq!(deser_key(&key), Ok(InodeId(id)));
            prop_assert_eq!(deser_value(&key, &value), Ok(parts));
            value.pop();
            prop_assert!(deser_value(&key, &value).is_err());
        }
    }

    #[test]
    fn refuses_what_is_no_list_of_parts() {
        for bad in [&b""[..], &[1], &[1; 9], &[2; 17], &[1; 1 + 8 * 65]] {
            assert!(deser_value(b"P", bad).is_err());
        }
    }
}
