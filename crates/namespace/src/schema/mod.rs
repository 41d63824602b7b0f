//! Every key of a shard's store. Keys are big-endian, so that ranges scan in order; values are little-endian and begin
//! with the version of their own format, except where the table says otherwise.
//!
//! | family | key | value | file |
//! |---|---|---|---|
//! | contents | `B` inode:8 | a small file's bytes as they are (no version) | `contents` |
//! | edge | `D` parent:8 hash:8 name | child:8 kind:1 (no version: 9 bytes is version 1) | `edge` |
//! | object deletion | `G` inode:8 stripe:4 | version:1 group:4 | `deletion` |
//! | inode | `I` inode:8 | version:1, then 99 fixed bytes | `inode` |
//! | layout | `L` inode:8 | version:1, group:4 each; only of files on more than 4 groups | `layout` |
//! | counters | `M` name | superblock, inode ids, incarnation, since when nothing was lost, inode count | `meta` |
//! | orphan | `O` inode:8 session:8 | version:1 | `orphan` |
//! | parts | `P` inode:8 | version:1, then the inode:8 of each part of a split directory | `parts` |
//! | session | `S` session:8 slot:4 | slot 0 the session itself, others stored replies | `session` |
//! | transaction | `T` id:8 (round:1) | version:1, then a decision, or with a round the parts prepared | `transaction` |
//! | attribute | `X` inode:8 name | the value as it is (no version) | `xattr` |
//! | symlink | `Y` inode:8 | the target as it is (no version) | `symlink` |
//!
//! Kept for later: `U` quota. `FORMAT` in the superblock is raised with any
//! change that an older release would misread.
//!
//! Nothing here trusts what it reads: a key or value that is not what it must be is a `Damage`, never a panic.

use types::id::InodeId;

use crate::error::Damage;

mod attr;
pub mod contents;
pub mod deletion;
pub mod edge;
pub mod inode;
pub mod layout;
pub mod meta;
pub mod orphan;
pub mod parts;
pub mod session;
pub mod symlink;
pub mod transaction;
pub mod xattr;

/// Version of the whole store's format, in its superblock.
pub const FORMAT: u32 = 1;

/// The name of the rule by which keys are grouped. It changes with [`group`].
pub const GROUPS: &str = "weft.edges.1";

/// The front of a key that it has in common with those that it is looked for together with: of an edge's the directory and
/// the hash, of others all of it. A store may make its filters for these.
#[must_use]
pub fn group(key: &[u8]) -> &[u8] {
    match key {
        [edge::PREFIX, ..] => key.get(..edge::GROUP_LEN).unwrap_or(key),
        _ => key,
    }
}

/// Takes fixed-width fields off the front of a record.
pub(crate) struct Fields<'a> {
    record: &'a [u8],
    rest: &'a [u8],
    key: &'a [u8],
}

impl<'a> Fields<'a> {
    /// `key` is named in the damage, where there is any; it may be `record` itself.
    pub(crate) fn new(record: &'a [u8], key: &'a [u8]) -> Self {
        Self { record, rest: record, key }
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => Err(self.damage("record is too short")),
        }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damage> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Damage> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damage> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damage> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Damage> {
        self.take().map(i64::from_le_bytes)
    }

    /// A big-endian number of a key.
    pub(crate) fn key_u64(&mut self) -> Result<u64, Damage> {
        self.take().map(u64::from_be_bytes)
    }

    pub(crate) fn key_u32(&mut self) -> Result<u32, Damage> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn prefix(&mut self, prefix: u8) -> Result<(), Damage> {
        if self.u8()? == prefix { Ok(()) } else { Err(self.damage("key of another family")) }
    }

    pub(crate) fn version(&mut self, version: u8) -> Result<(), Damage> {
        if self.u8()? == version {
            Ok(())
        } else {
            Err(self.damage("record of a version that this release does not know"))
        }
    }

    /// The next `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Damage> {
        match self.rest.split_at_checked(length) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.damage("record is too short")),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn finish(self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.damage("record is too long")) }
    }

    pub(crate) fn damage(&self, what: &'static str) -> Damage {
        debug_assert!(self.rest.len() <= self.record.len());
        Damage::new(what, self.key)
    }
}

/// `prefix` and an inode: the key of the families that have one record per inode, and where those with several begin.
pub(crate) fn inode_key(key: &mut Vec<u8>, prefix: u8, inode: InodeId) {
    key.clear();
    key.push(prefix);
    key.extend_from_slice(&inode.0.to_be_bytes());
}

/// The end of the range of all keys that begin with `prefix` and `inode`.
pub(crate) fn inode_end(key: &mut Vec<u8>, prefix: u8, inode: InodeId) {
    match inode.0.checked_add(1) {
        Some(next) => inode_key(key, prefix, InodeId(next)),
        None => {
            key.clear();
            key.push(prefix + 1);
        }
    }
}

/// The inode of a key of a family that has one record per inode.
pub(crate) fn deser_inode_key(prefix: u8, key: &[u8]) -> Result<InodeId, Damage> {
    let mut fields = Fields::new(key, key);
    fields.prefix(prefix)?;
    let inode = InodeId(fields.key_u64()?);
    fields.finish()?;
    Ok(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_letters_of_their_own_in_the_tables_order() {
        let letters = [
            contents::PREFIX,
            edge::PREFIX,
            deletion::PREFIX,
            inode::PREFIX,
            layout::PREFIX,
            meta::PREFIX,
            orphan::PREFIX,
            parts::PREFIX,
            session::PREFIX,
            transaction::PREFIX,
            xattr::PREFIX,
            symlink::PREFIX,
        ];
        assert_eq!(&letters, b"BDGILMOPSTXY");
    }

    #[test]
    fn the_end_of_a_range_follows_all_its_keys() {
        let (mut key, mut end) = (Vec::new(), Vec::new());
        for id in [0, 1, 255, u64::MAX - 1, u64::MAX] {
            inode_key(&mut key, b'X', InodeId(id));
            key.extend_from_slice(&[255; 255]);
            inode_end(&mut end, b'X', InodeId(id));
            assert!(key < end);
        }
    }
}
