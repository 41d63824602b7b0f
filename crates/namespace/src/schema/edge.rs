//! `D` parent hash name: the entry `name` of directory `parent`.
//!
//! The name's hash stands before the name, so a directory scans in the order of hashes, and a reader's cookie can be
//! made from the hash alone: it means "after all names of this hash" and stays good whatever is added or removed, since
//! an entry's place in the order never changes. A lookup knows the hash of its name, so it is still one get.

use types::attr::FileType;
use types::id::InodeId;

use crate::error::Damage;
use crate::schema::{Fields, inode_end};
use types::name_hash::name_hash;

pub const PREFIX: u8 = b'D';
pub const VALUE_LEN: usize = 9;
/// Bytes of a key before the name.
pub const GROUP_LEN: usize = 17;

/// Where an entry leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    pub child: InodeId,
    pub kind: FileType,
}

pub fn ser_key(key: &mut Vec<u8>, parent: InodeId, hash: u64, name: &[u8]) {
    key.clear();
    key.push(PREFIX);
    key.extend_from_slice(&parent.0.to_be_bytes());
    key.extend_from_slice(&hash.to_be_bytes());
    key.extend_from_slice(name);
}

/// Where the entries of `parent` with this hash or a greater one begin.
pub fn ser_start(key: &mut Vec<u8>, parent: InodeId, hash: u64) {
    ser_key(key, parent, hash, b"");
}

/// Where the entries of `parent` end.
pub fn ser_end(key: &mut Vec<u8>, parent: InodeId) {
    inode_end(key, PREFIX, parent);
}

/// Parent, hash and name.
///
/// # Errors
/// Where the key is no edge's, or the hash not the name's.
pub fn deser_key(key: &[u8]) -> Result<(InodeId, u64, &[u8]), Damage> {
    let mut fields = Fields::new(key, key);
    fields.prefix(PREFIX)?;
    let parent = InodeId(fields.key_u64()?);
    let hash = fields.key_u64()?;
    let name = fields.rest();
    if name.is_empty() || name.len() > types::name::NAME_MAX || name_hash(name) != hash {
        return Err(Damage::new("edge whose hash is not its name's", key));
    }
    Ok((parent, hash, name))
}

#[must_use]
pub fn ser_value(edge: Edge) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    value[..8].copy_from_slice(&edge.child.0.to_le_bytes());
    value[8] = edge.kind as u8;
    value
}

/// # Errors
/// Where the value is no edge's.
pub fn deser_value(key: &[u8], value: &[u8]) -> Result<Edge, Damage> {
    let mut fields = Fields::new(value, key);
    let child = InodeId(fields.u64()?);
    let kind = FileType::from_u8(fields.u8()?).ok_or_else(|| fields.damage("edge to an unknown kind"))?;
    fields.finish()?;
    if child.0 == 0 {
        return Err(Damage::new("edge to no inode", key));
    }
    Ok(Edge { child, kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::inode_key;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips(parent: u64, child in 1u64.., kind in 0u8..16, name in prop::collection::vec(any::<u8>(), 1..256)) {
            let mut key = Vec::new();
            ser_key(&mut key, InodeId(parent), name_hash(&name), &name);
            prop_assert_eq!(deser_key(&key), Ok((InodeId(parent), name_hash(&name), &name[..])));
            if let Some(kind) = FileType::from_u8(kind) {
                let edge = Edge { child: InodeId(child), kind };
                prop_assert_eq!(deser_value(&key, &ser_value(edge)), Ok(edge));
            }
            let (mut begin, mut end) = (Vec::new(), Vec::new());
            inode_key(&mut begin, PREFIX, InodeId(parent));
            ser_end(&mut end, InodeId(parent));
            prop_assert!(begin < key && key < end);
        }

        #[test]
        fn damage_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert!(deser_key(&bytes).is_err());
            if bytes.len() != VALUE_LEN {
                prop_assert!(deser_value(b"D", &bytes).is_err());
            } else {
                let _ = deser_value(b"D", &bytes);
            }
        }
    }
}
