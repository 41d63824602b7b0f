//! `B` inode: the contents of a file that has them in the metadata, as they are. An empty file has none.

use types::id::InodeId;
use types::layout::INLINE_MAX;

use crate::error::Damage;
use crate::schema::{deser_inode_key, inode_key};

pub const PREFIX: u8 = b'B';

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId) {
    inode_key(key, PREFIX, inode);
}

/// # Errors
/// Where the key is no contents'.
pub fn deser_key(key: &[u8]) -> Result<InodeId, Damage> {
    deser_inode_key(PREFIX, key)
}

/// # Errors
/// Where no file has such contents.
pub fn deser_value<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], Damage> {
    if value.is_empty() || value.len() > INLINE_MAX as usize {
        return Err(Damage::new("contents of an impossible length", key));
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
        assert_eq!(key, b"B\0\0\0\0\0\0\x01\x02");
        assert_eq!(deser_key(&key), Ok(InodeId(0x0102)));
        assert_eq!(deser_value(&key, b"a"), Ok(&b"a"[..]));
        assert!(deser_value(&key, b"").is_err());
        assert!(deser_value(&key, &[b'x'; INLINE_MAX as usize + 1]).is_err());
    }
}
