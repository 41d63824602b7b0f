//! `L` inode: the groups of a file that is striped over more than an inode has room for. Written once.

use types::id::{GroupId, InodeId};
use types::layout::STRIPE_COUNT_MAX;

use crate::error::Damage;
use crate::schema::{Fields, deser_inode_key, inode_key};

pub const PREFIX: u8 = b'L';

const VERSION: u8 = 1;

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId) {
    inode_key(key, PREFIX, inode);
}

/// # Errors
/// Where the key is no layout's.
pub fn deser_key(key: &[u8]) -> Result<InodeId, Damage> {
    deser_inode_key(PREFIX, key)
}

pub fn ser_value(value: &mut Vec<u8>, groups: &[GroupId]) {
    value.clear();
    value.push(VERSION);
    for group in groups {
        value.extend_from_slice(&group.0.to_le_bytes());
    }
}

/// # Errors
/// Where the value is no layout's.
pub fn deser_value(key: &[u8], value: &[u8]) -> Result<Vec<GroupId>, Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    let (groups, rest) = fields.rest().as_chunks::<4>();
    if !rest.is_empty() || groups.is_empty() || groups.len() > usize::from(STRIPE_COUNT_MAX) {
        return Err(Damage::new("layout with an impossible number of groups", key));
    }
    Ok(groups.iter().map(|group| GroupId(u32::from_le_bytes(*group))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(id: u64, groups in prop::collection::vec(any::<u32>().prop_map(GroupId), 1..257)) {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            ser_key(&mut key, InodeId(id));
            ser_value(&mut value, &groups);
            prop_assert_eq!(deser_key(&key), Ok(InodeId(id)));
            prop_assert_eq!(deser_value(&key, &value), Ok(groups));
            value.pop();
            prop_assert!(deser_value(&key, &value).is_err());
        }
    }

    #[test]
    fn refuses_what_is_no_layout() {
        for bad in [&b""[..], &[1], &[2, 1, 0, 0, 0], &[1; 1 + 4 * 257]] {
            assert!(deser_value(b"L", bad).is_err());
        }
    }
}
