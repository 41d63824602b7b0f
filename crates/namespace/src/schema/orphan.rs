//! `O` inode session: an inode without a name that a session holds open. Session 0 stands for all that may hold it but
//! have not yet said so after a restart.

use types::id::{InodeId, SessionId};

use crate::error::Damage;
use crate::schema::Fields;

pub const PREFIX: u8 = b'O';
pub const VALUE: [u8; 1] = [1];

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId, session: SessionId) {
    key.clear();
    key.push(PREFIX);
    key.extend_from_slice(&inode.0.to_be_bytes());
    key.extend_from_slice(&session.0.to_be_bytes());
}

/// # Errors
/// Where the key is no orphan's.
pub fn deser_key(key: &[u8]) -> Result<(InodeId, SessionId), Damage> {
    let mut fields = Fields::new(key, key);
    fields.prefix(PREFIX)?;
    let orphan = (InodeId(fields.key_u64()?), SessionId(fields.key_u64()?));
    fields.finish()?;
    Ok(orphan)
}

/// # Errors
/// Where the value is of another version.
pub fn deser_value(key: &[u8], value: &[u8]) -> Result<(), Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VALUE[0])?;
    fields.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(inode: u64, session: u64) {
            let mut key = Vec::new();
            ser_key(&mut key, InodeId(inode), SessionId(session));
            prop_assert_eq!(deser_key(&key), Ok((InodeId(inode), SessionId(session))));
            prop_assert!(deser_key(&key[1..]).is_err());
        }
    }

    #[test]
    fn knows_its_version() {
        assert!(deser_value(b"O", &VALUE).is_ok());
        assert!(deser_value(b"O", &[2]).is_err());
        assert!(deser_value(b"O", &[]).is_err());
    }
}
