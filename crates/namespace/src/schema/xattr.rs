//! `X` inode name: one extended attribute; the value is the attribute's, as it is.

use types::id::InodeId;

use crate::error::Damage;
use crate::schema::{Fields, inode_end, inode_key};

pub const PREFIX: u8 = b'X';

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId, name: &[u8]) {
    inode_key(key, PREFIX, inode);
    key.extend_from_slice(name);
}

/// Where the attributes of `inode` end; they begin at `ser_key` of the empty name.
pub fn ser_end(key: &mut Vec<u8>, inode: InodeId) {
    inode_end(key, PREFIX, inode);
}

/// # Errors
/// Where the key is no attribute's.
pub fn deser_key(key: &[u8]) -> Result<(InodeId, &[u8]), Damage> {
    let mut fields = Fields::new(key, key);
    fields.prefix(PREFIX)?;
    let inode = InodeId(fields.key_u64()?);
    match fields.rest() {
        [] => Err(Damage::new("attribute without a name", key)),
        name => Ok((inode, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(id: u64, name in prop::collection::vec(any::<u8>(), 1..256)) {
            let (mut key, mut end) = (Vec::new(), Vec::new());
            ser_key(&mut key, InodeId(id), &name);
            ser_end(&mut end, InodeId(id));
            prop_assert_eq!(deser_key(&key), Ok((InodeId(id), &name[..])));
            prop_assert!(key < end);
        }
    }

    #[test]
    fn refuses_what_is_no_attribute() {
        for bad in [&b""[..], b"X1234567", b"X12345678", b"Y12345678a"] {
            assert!(deser_key(bad).is_err());
        }
    }
}
