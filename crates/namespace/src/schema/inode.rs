//! `I` inode: the inode itself, 100 bytes at fixed places.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version of this format |
//! | 1 | 1 | kind |
//! | 2 | 2 | permission bits |
//! | 4 | 2 | flags |
//! | 6 | 1 | logarithm of the chunk size: a file's own, or a directory's for its new files |
//! | 7 | 1 | flags as `chattr` sets them, by the bits of `FS_IOC_GETFLAGS` |
//! | 8, 12, 16, 20 | 4 each | uid, gid, nlink, rdev |
//! | 24 | 8 | size, bytes; of a directory its number of entries |
//! | 32 | 8 | blocks of 512 bytes; of a directory that is being split, or a part of one, a hash, below |
//! | 40, 48, 56, 64 | 8 each | atime, mtime, ctime, btime, nanoseconds |
//! | 72 | 8 | parent |
//! | 80 | 2 | a file's number of stripes; a directory's wished number for its new files |
//! | 82 | 2 | of a file with its contents in the metadata, the limit for these less one; else 0 |
//! | 84 | 16 | a file's groups where it has at most 4; of a directory what follows |
//! | 84, 88, 92 | 4 each | a directory's pool for its new files, the placement of its new directories, how many bytes of a
//! new file stay in the metadata |
//! | 96, 98 | 2 each | of a part of a split directory, its number and that of all; of a split one 0xffff, and the number of its
//! parts; of other directories 0. While it is being split, a directory has 0xfffe, and the hash at 32: names below are in its
//! parts. A part to which names will still come has 0x8000 more as the number of all, and the hash up to which they have |
//!
//! The placement is 0 random, 1 round robin, 2 inherit, 3 a shard, whose number is in the high half.

use types::attr::{Attr, FileType, PERMISSION_BITS};
use types::flags::FileFlags;
use types::id::{GroupId, InodeId, PoolId};
use types::layout::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, INLINE_MAX, LayoutPolicy, STRIPE_COUNT_MAX};
use types::parts::{HASH_END, PARTS_MAX, PARTS_MIN, PartNumber};
use types::placement::Placement;
use types::time::Timestamp;

use crate::error::Damage;
use crate::schema::{Fields, deser_inode_key, inode_key};

pub const PREFIX: u8 = b'I';
pub const VALUE_LEN: usize = 100;
/// A file on more groups than these has them in its layout record.
pub const GROUPS_INLINE: usize = 4;

const VERSION: u8 = 1;

/// A client wrote or may have written: objects may exist.
pub const HAS_OBJECTS: u16 = 1;
/// The objects know size and mtime better than the inode.
pub const UNSETTLED: u16 = 2;
/// There are attribute records.
pub const HAS_XATTRS: u16 = 4;
/// The directory's policy was set on it, not inherited.
pub const POLICY_IS_OWN: u16 = 8;
/// Among the attribute records is an access ACL, which follows the permission bits.
pub const HAS_ACCESS_ACL: u16 = 16;
/// And a directory's default ACL, which new inodes in it get.
pub const HAS_DEFAULT_ACL: u16 = 32;
/// And capabilities of a program, which end with the next write.
pub const HAS_CAPABILITY: u16 = 64;
/// Made without a name, and never had one: it may get one.
pub const LINKABLE: u16 = 128;
/// In the record alone: the contents are in the metadata. In memory `Striping::inline_limit` says so.
const INLINE: u16 = 256;
/// Who has made the file may have kept back what was done to it since, and nobody else was told of it. Stays where a file was
/// closed as it was made.
pub const DRAFT: u16 = 512;
const FLAGS_KNOWN: u16 = HAS_OBJECTS
    | UNSETTLED
    | HAS_XATTRS
    | POLICY_IS_OWN
    | HAS_ACCESS_ACL
    | HAS_DEFAULT_ACL
    | HAS_CAPABILITY
    | LINKABLE
    | DRAFT;

/// One inode as the store has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inode {
    pub kind: FileType,
    /// Permission bits only.
    pub mode: u16,
    pub flags: u16,
    /// As users set them. A part of a split directory has those of that.
    pub file_flags: FileFlags,
    pub uid: u32,
    pub gid: u32,
    /// 0: unlinked, but held open.
    pub nlink: u32,
    pub rdev: u32,
    /// Bytes; 0 of a directory.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
    /// The directory that has the entry. 0 of a file that has or had several links: then it is not known. Root is its
    /// own parent.
    pub parent: InodeId,
    pub body: Body,
}

/// What differs by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    File(Striping),
    Directory {
        entries: u64,
        policy: LayoutPolicy,
        role: Role,
    },
    /// Symlinks (their target is a record of its own), device nodes, fifos and sockets.
    Other,
}

/// Whether a directory has its entries itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    #[default]
    Whole,
    /// So many parts have them.
    Split(u16),
    /// Has those of a split directory whose names' hashes are in the range of this part. No name leads to it, and its
    /// `parent` is the directory that it is a part of.
    Part(PartNumber),
    /// Is being split: so many parts have the names with hashes below `cursor`, it has the others.
    Splitting { count: u16, cursor: u64 },
    /// Such a part; it has the names with hashes below `until`.
    Filling { part: PartNumber, until: u64 },
}

/// Stands in a split directory's record where a part has its number, and in that of one which is being split.
const SPLIT: u16 = u16::MAX;
const SPLITTING: u16 = u16::MAX - 1;
/// With the number of parts in the record of a part that is being filled.
const FILLING: u16 = 1 << 15;

impl Role {
    fn to_numbers(self) -> (u16, u16, u64) {
        match self {
            Self::Whole => (0, 0, 0),
            Self::Split(count) => (SPLIT, count, 0),
            Self::Part(PartNumber { index, count }) => (index, count, 0),
            Self::Splitting { count, cursor } => (SPLITTING, count, cursor),
            Self::Filling { part: PartNumber { index, count }, until } => (index, count | FILLING, until),
        }
    }

    fn from_numbers(index: u16, count: u16, hash: u64) -> Option<Self> {
        let part = PartNumber { index, count };
        let filled = PartNumber { index, count: count & !FILLING };
        match (index, count, hash) {
            (0, 0, 0) => Some(Self::Whole),
            (SPLIT, PARTS_MIN..=PARTS_MAX, 0) => Some(Self::Split(count)),
            (SPLITTING, PARTS_MIN..=PARTS_MAX, 1..HASH_END) => Some(Self::Splitting { count, cursor: hash }),
            (_, FILLING.., until) => {
                let is_possible = filled.is_possible() && (filled.begin()..filled.end()).contains(&until);
                is_possible.then_some(Self::Filling { part: filled, until })
            }
            (_, _, 0) => part.is_possible().then_some(Self::Part(part)),
            _ => None,
        }
    }

    /// A directory of this role after its names below `hash` have gone to its parts, or a part after they have come.
    #[must_use]
    pub(crate) fn moved_to(self, hash: u64) -> Self {
        match self {
            Self::Splitting { count, .. } if hash >= HASH_END => Self::Split(count),
            Self::Splitting { count, .. } => Self::Splitting { count, cursor: hash },
            Self::Filling { part, .. } if hash >= part.end() => Self::Part(part),
            Self::Filling { part, .. } => Self::Filling { part, until: hash },
            Self::Whole | Self::Split(_) | Self::Part(_) => self,
        }
    }

    /// From which hash on names go to its parts next, or come to it.
    pub(crate) fn moves_from(self) -> Option<u64> {
        match self {
            Self::Splitting { cursor, .. } => Some(cursor),
            Self::Filling { until, .. } => Some(until),
            Self::Whole | Self::Split(_) | Self::Part(_) => None,
        }
    }
}

/// A file's layout, as far as the inode has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Striping {
    /// Bytes; a power of two.
    pub chunk_size: u32,
    pub stripes: u16,
    /// The first `stripes`, or all 0 where there are more than fit.
    pub groups: [GroupId; GROUPS_INLINE],
    /// The contents are in the metadata until they would be longer than this, bytes. 0: they are in objects.
    pub inline_limit: u32,
}

impl Striping {
    /// The groups, or `None` where they are in the layout record.
    #[must_use]
    pub fn inline(&self) -> Option<&[GroupId]> {
        self.groups.get(..usize::from(self.stripes))
    }
}

impl Inode {
    #[must_use]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// Number of entries; 0 of what is no directory.
    #[must_use]
    pub fn entries(&self) -> u64 {
        match self.body {
            Body::Directory { entries, .. } => entries,
            Body::File(_) | Body::Other => 0,
        }
    }

    #[must_use]
    pub fn role(&self) -> Role {
        match self.body {
            Body::Directory { role, .. } => role,
            Body::File(_) | Body::Other => Role::Whole,
        }
    }

    /// Its parts have its entries, or some of them: it is being split.
    #[must_use]
    pub fn is_split(&self) -> bool {
        matches!(self.role(), Role::Split(_) | Role::Splitting { .. })
    }

    /// It is a part of a directory.
    #[must_use]
    pub fn is_part(&self) -> bool {
        matches!(self.role(), Role::Part(_) | Role::Filling { .. })
    }

    /// The directory that users see where this one's entries are.
    #[must_use]
    pub fn visible(&self, id: InodeId) -> InodeId {
        if self.is_part() { self.parent } else { id }
    }

    #[must_use]
    pub fn attr(&self, id: InodeId) -> Attr {
        Attr {
            inode: id,
            kind: self.kind,
            mode: u32::from(self.mode),
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.rdev,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
        }
    }
}

pub fn ser_key(key: &mut Vec<u8>, inode: InodeId) {
    inode_key(key, PREFIX, inode);
}

/// # Errors
/// Where the key is no inode's.
pub fn deser_key(key: &[u8]) -> Result<InodeId, Damage> {
    deser_inode_key(PREFIX, key)
}

#[must_use]
pub fn ser_value(inode: &Inode) -> [u8; VALUE_LEN] {
    let mut value = [0; VALUE_LEN];
    let (size, chunk_size, stripes) = match inode.body {
        Body::File(striping) => (inode.size, striping.chunk_size, striping.stripes),
        Body::Directory { entries, policy, .. } => (entries, policy.chunk_size, policy.stripe_count),
        Body::Other => (inode.size, 0, 0),
    };
    value[0] = VERSION;
    value[1] = inode.kind as u8;
    value[2..4].copy_from_slice(&inode.mode.to_le_bytes());
    let inline = if inode.inline_limit().is_some() { INLINE } else { 0 };
    value[4..6].copy_from_slice(&(inode.flags | inline).to_le_bytes());
    value[6] = chunk_size.checked_ilog2().unwrap_or(0) as u8;
    value[7] = inode.file_flags.bits();
    value[8..12].copy_from_slice(&inode.uid.to_le_bytes());
    value[12..16].copy_from_slice(&inode.gid.to_le_bytes());
    value[16..20].copy_from_slice(&inode.nlink.to_le_bytes());
    value[20..24].copy_from_slice(&inode.rdev.to_le_bytes());
    value[24..32].copy_from_slice(&size.to_le_bytes());
    value[32..40].copy_from_slice(&inode.blocks.to_le_bytes());
    value[40..48].copy_from_slice(&inode.atime.0.to_le_bytes());
    value[48..56].copy_from_slice(&inode.mtime.0.to_le_bytes());
    value[56..64].copy_from_slice(&inode.ctime.0.to_le_bytes());
    value[64..72].copy_from_slice(&inode.btime.0.to_le_bytes());
    value[72..80].copy_from_slice(&inode.parent.0.to_le_bytes());
    value[80..82].copy_from_slice(&stripes.to_le_bytes());
    match inode.body {
        Body::File(striping) => {
            let limit = striping.inline_limit.saturating_sub(1) as u16;
            value[82..84].copy_from_slice(&limit.to_le_bytes());
            for (place, group) in value[84..].chunks_exact_mut(4).zip(striping.groups) {
                place.copy_from_slice(&group.0.to_le_bytes());
            }
        }
        Body::Directory { policy, role, .. } => {
            let (index, count, hash) = role.to_numbers();
            value[32..40].copy_from_slice(&hash.to_le_bytes());
            value[96..98].copy_from_slice(&index.to_le_bytes());
            value[98..100].copy_from_slice(&count.to_le_bytes());
            value[84..88].copy_from_slice(&policy.pool.0.to_le_bytes());
            value[88..92].copy_from_slice(&policy.directories.to_u32().to_le_bytes());
            value[92..96].copy_from_slice(&policy.inline_limit.to_le_bytes());
        }
        Body::Other => {}
    }
    value
}

/// # Errors
/// Where the value is no inode's.
pub fn deser_value(key: &[u8], value: &[u8]) -> Result<Inode, Damage> {
    let mut fields = Fields::new(value, key);
    fields.version(VERSION)?;
    let kind = FileType::from_u8(fields.u8()?).ok_or_else(|| fields.damage("inode of an unknown kind"))?;
    let mode = fields.u16()?;
    let flags = fields.u16()?;
    let (flags, is_inline) = (flags & !INLINE, flags & INLINE != 0);
    let chunk_log2 = fields.u8()?;
    let is_known = u32::from(mode) & !PERMISSION_BITS == 0 && flags & !FLAGS_KNOWN == 0;
    let file_flags = FileFlags::from_bits(fields.u8()?.into()).filter(|_| is_known);
    let file_flags = file_flags.ok_or_else(|| fields.damage("inode with unknown flags"))?;
    let mut inode = Inode {
        kind,
        mode,
        flags,
        file_flags,
        uid: fields.u32()?,
        gid: fields.u32()?,
        nlink: fields.u32()?,
        rdev: fields.u32()?,
        size: fields.u64()?,
        blocks: fields.u64()?,
        atime: Timestamp(fields.i64()?),
        mtime: Timestamp(fields.i64()?),
        ctime: Timestamp(fields.i64()?),
        btime: Timestamp(fields.i64()?),
        parent: InodeId(fields.u64()?),
        body: Body::Other,
    };
    let stripes = fields.u16()?;
    let limit = u32::from(fields.u16()?) + 1;
    let mut numbers = [0; GROUPS_INLINE];
    for number in &mut numbers {
        *number = fields.u32()?;
    }
    inode.body = match kind {
        FileType::Regular => {
            let inline_limit = if is_inline { limit } else { 0 };
            let groups = numbers.map(GroupId);
            Body::File(Striping { chunk_size: chunk_size(chunk_log2), stripes, groups, inline_limit })
        }
        FileType::Directory => {
            let directories = Placement::from_u32(numbers[1]);
            let directories = directories.ok_or_else(|| fields.damage("directory with an unknown placement"))?;
            let (chunk_size, pool, inline_limit) = (chunk_size(chunk_log2), PoolId(numbers[0]), numbers[2]);
            if inline_limit > INLINE_MAX {
                return Err(fields.damage("directory with an impossible limit for contents"));
            }
            let policy = LayoutPolicy { chunk_size, stripe_count: stripes, pool, directories, inline_limit };
            let entries = std::mem::take(&mut inode.size);
            let [index, index_high, count, count_high] = numbers[3].to_le_bytes();
            let (index, count) = (u16::from_le_bytes([index, index_high]), u16::from_le_bytes([count, count_high]));
            let role = Role::from_numbers(index, count, std::mem::take(&mut inode.blocks));
            let role = role.ok_or_else(|| fields.damage("directory with an impossible part"))?;
            Body::Directory { entries, policy, role }
        }
        FileType::Fifo | FileType::CharDevice | FileType::BlockDevice | FileType::Symlink | FileType::Socket => {
            Body::Other
        }
    };
    if inode.body != Body::Other && !striping_is_possible(chunk_size(chunk_log2), stripes) {
        return Err(fields.damage("inode with an impossible striping"));
    }
    fields.finish()?;
    // What this release does not use must be 0, or it would be lost at the next change.
    if ser_value(&inode)[..] != *value {
        return Err(Damage::new("inode with unknown fields", key));
    }
    Ok(inode)
}

/// 0 for a logarithm that no chunk has.
fn chunk_size(log2: u8) -> u32 {
    1_u32.checked_shl(u32::from(log2)).unwrap_or(0)
}

fn striping_is_possible(chunk_size: u32, stripes: u16) -> bool {
    (CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&chunk_size) && (1..=STRIPE_COUNT_MAX).contains(&stripes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn roles() -> impl Strategy<Value = Role> {
        let part = |(index, count): (u16, u16)| Role::Part(PartNumber { index: index % count, count });
        let counts = PARTS_MIN..=PARTS_MAX;
        let splitting = |(count, cursor)| Role::Splitting { count, cursor };
        let filling = |(index, count, at): (u16, u16, u64)| {
            let part = PartNumber { index: index % count, count };
            Role::Filling { part, until: part.begin() + at % (part.end() - part.begin()) }
        };
        prop_oneof![
            Just(Role::Whole),
            counts.clone().prop_map(Role::Split),
            (any::<u16>(), counts.clone()).prop_map(part),
            (counts.clone(), 1..HASH_END).prop_map(splitting),
            (any::<u16>(), counts, any::<u64>()).prop_map(filling),
        ]
    }

    fn body(kind: FileType) -> BoxedStrategy<(u64, Body)> {
        let chunk = (12u32..=26).prop_map(|log2| 1u32 << log2);
        match kind {
            FileType::Regular => (any::<u64>(), chunk, 1..=STRIPE_COUNT_MAX, any::<[u32; 4]>(), 0..=INLINE_MAX)
                .prop_map(|(size, chunk_size, stripes, groups, inline_limit)| {
                    (size, Body::File(Striping { chunk_size, stripes, groups: groups.map(GroupId), inline_limit }))
                })
                .boxed(),
            FileType::Directory => {
                (any::<u64>(), chunk, 1..=STRIPE_COUNT_MAX, any::<[u32; 2]>(), 0..=INLINE_MAX, roles())
                    .prop_map(|(entries, chunk_size, stripe_count, [pool, place], inline_limit, role)| {
                        let directories = Placement::from_u32(place & 0xffff_0000 | 3).expect("some shard");
                        let pool = PoolId(pool);
                        let policy = LayoutPolicy { chunk_size, stripe_count, pool, directories, inline_limit };
                        (0, Body::Directory { entries, policy, role })
                    })
                    .boxed()
            }
            _ => any::<u64>().prop_map(|size| (size, Body::Other)).boxed(),
        }
    }

    pub(crate) fn inodes() -> impl Strategy<Value = Inode> {
        let kinds = [1, 2, 4, 6, 8, 10, 12].map(|n| FileType::from_u8(n).expect("a kind"));
        let kind = prop::sample::select(kinds.to_vec());
        let known = any::<u16>().prop_map(|flags| flags & FLAGS_KNOWN);
        let flags = (known, (0u32..16).prop_map(|n| FileFlags::from_bits(n * 0x10).expect("four bits")));
        (kind, any::<[u32; 4]>(), 0u16..=0o7777, flags, any::<[i64; 4]>(), any::<[u64; 2]>()).prop_flat_map(
            |(kind, n, mode, (flags, file_flags), times, big)| {
                body(kind).prop_map(move |(size, body)| Inode {
                    kind,
                    mode,
                    flags,
                    file_flags,
                    uid: n[0],
                    gid: n[1],
                    nlink: n[2],
                    rdev: n[3],
                    size,
                    blocks: if kind == FileType::Directory { 0 } else { big[0] },
                    atime: Timestamp(times[0]),
                    mtime: Timestamp(times[1]),
                    ctime: Timestamp(times[2]),
                    btime: Timestamp(times[3]),
                    parent: InodeId(big[1]),
                    body,
                })
            },
        )
    }

    proptest! {
        #[test]
        fn round_trips(inode in inodes(), id: u64) {
            let mut key = Vec::new();
            ser_key(&mut key, InodeId(id));
            prop_assert_eq!(deser_key(&key), Ok(InodeId(id)));
            prop_assert_eq!(deser_value(&key, &ser_value(&inode)), Ok(inode));
        }

        #[test]
        fn damage_is_an_error_or_another_inode(
            inode in inodes(), at in 0..VALUE_LEN, bit in 0u8..8, len in 0..VALUE_LEN,
        ) {
            let mut value = ser_value(&inode);
            prop_assert!(deser_value(b"I", &value[..len]).is_err());
            value[at] ^= 1 << bit;
            prop_assert_ne!(deser_value(b"I", &value), Ok(inode));
        }
    }

    #[test]
    fn bytes_are_frozen() {
        let inode = Inode {
            kind: FileType::Regular,
            mode: 0o644,
            flags: HAS_OBJECTS,
            file_flags: FileFlags::NONE,
            uid: 1,
            gid: 2,
            nlink: 3,
            rdev: 4,
            size: 5,
            blocks: 6,
            atime: Timestamp(7),
            mtime: Timestamp(8),
            ctime: Timestamp(9),
            btime: Timestamp(10),
            parent: InodeId(11),
            body: Body::File(Striping {
                chunk_size: 1 << 19,
                stripes: 2,
                groups: [12, 13, 0, 0].map(GroupId),
                inline_limit: 0,
            }),
        };
        let mut expected = vec![1, 8, 0xa4, 1, 1, 0, 19, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
        for number in 5..=11_u64 {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        expected.extend_from_slice(&[2, 0, 0, 0, 12, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&ser_value(&inode)[..], &expected[..]);
        let mut inline = inode;
        let Body::File(striping) = &mut inline.body else { panic!("a file") };
        striping.inline_limit = 4096;
        (expected[5], expected[82], expected[83]) = (1, 0xff, 0x0f);
        assert_eq!(&ser_value(&inline)[..], &expected[..]);
        inline.file_flags = FileFlags::IMMUTABLE.with(FileFlags::NOATIME);
        expected[7] = 0x90;
        assert_eq!(&ser_value(&inline)[..], &expected[..]);
        expected[7] = 1;
        assert!(deser_value(b"I", &expected).is_err(), "a flag of a later release");
    }
}
