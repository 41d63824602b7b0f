//! `G` inode stripe: an object of a removed file, to be removed from its storage group.

use types::id::{GroupId, InodeId};

use crate::error::Damage;
use crate::schema::Fields;
use crate::view::Deletion;

pub const PREFIX: u8 = b'G';
pub const VALUE_LEN: usize = 5;

const VERSION: u8 = 1;

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId, stripe: u32) {
    key.clear();
    key.push(PREFIX);
    key.extend_from_slice(&inode.0.to_be_bytes());
    key.extend_from_slice(&stripe.to_be_bytes());
}

/// # Errors
/// Where the key is no deletion's.
pub fn deser_key(key: &[u8]) -> Result<(InodeId, u32), Damage> {
    let mut fields = Fields::new(key, key);
    fields.prefix(PREFIX)?;
    let deletion = (InodeId(fields.key_u64()?), fields.key_u32()?);
    fields.finish()?;
    Ok(deletion)
}

#[must_use]
pub fn ser_value(group: GroupId) -> [u8; VALUE_LEN] {
    let [a, b, c, d] = group.0.to_le_bytes();
    [VERSION, a, b, c, d]
}

/// # Errors
/// Where the value is no deletion's.
pub fn deser_value(key: &[u8], value: &[u8]) -> Result<GroupId, Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    let group = GroupId(fields.u32()?);
    fields.finish()?;
    Ok(group)
}

/// # Errors
/// Where the record is no deletion.
pub fn deser(key: &[u8], value: &[u8]) -> Result<Deletion, Damage> {
    let (inode, stripe) = deser_key(key)?;
    Ok(Deletion { inode, stripe, group: deser_value(key, value)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(inode: u64, stripe: u32, group: u32) {
            let mut key = Vec::new();
            ser_key(&mut key, InodeId(inode), stripe);
            let value = ser_value(GroupId(group));
            let deletion = Deletion { inode: InodeId(inode), stripe, group: GroupId(group) };
            prop_assert_eq!(deser(&key, &value), Ok(deletion));
            prop_assert!(deser(&key, &value[1..]).is_err());
            prop_assert!(deser(&key[..9], &value).is_err());
        }
    }
}
