//! `Y` inode: where a symbolic link points; the value is the target as it is. Written once.

use types::id::InodeId;
use types::name::SYMLINK_MAX;

use crate::error::Damage;
use crate::schema::{deser_inode_key, inode_key};

pub const PREFIX: u8 = b'Y';

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId) {
    inode_key(key, PREFIX, inode);
}

/// # Errors
/// Where the key is no symlink's.
pub fn deser_key(key: &[u8]) -> Result<InodeId, Damage> {
    deser_inode_key(PREFIX, key)
}

/// # Errors
/// Where the value is no target.
pub fn deser_value<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Damage> {
    if value.is_empty() || value.len() > SYMLINK_MAX {
        return Err(Damage::new("symlink to an impossible target", key));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let mut key = Vec::new();
        ser_key(&mut key, InodeId(0x0102));
        assert_eq!(key, b"Y\0\0\0\0\0\0\x01\x02");
        assert_eq!(deser_key(&key), Ok(InodeId(0x0102)));
        assert_eq!(deser_value(&key, b"a/b"), Ok(&b"a/b"[..]));
        assert!(deser_value(&key, b"").is_err());
        assert!(deser_value(&key, &[b'x'; SYMLINK_MAX + 1]).is_err());
    }
}
