//! POSIX access control lists (POSIX.1e draft 17, as Linux keeps them): what lists are valid, and how they follow the
//! permission bits. Pure. Whether a list permits something is the caller's kernel's to say; that it has the right one is
//! ours.
//!
//! The form is that of Linux's extended attributes: a version, then entries of tag, permissions and id, little-endian.

use types::error::Errno;

/// The list that permits, and the one that a directory gives to what is made in it.
pub const ACCESS: &[u8] = types::xattr::ACCESS_ACL;
pub const DEFAULT: &[u8] = types::xattr::DEFAULT_ACL;

const VERSION: u32 = 2;
const ENTRY_LEN: usize = 8;
/// The id of entries that need none.
const NO_ID: u32 = u32::MAX;
/// `rwx` of one class.
const CLASS: u32 = 7;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tag {
    UserObj = 0x01,
    User = 0x02,
    GroupObj = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    fn from_u16(number: u16) -> Option<Self> {
        Some(match number {
            0x01 => Self::UserObj,
            0x02 => Self::User,
            0x04 => Self::GroupObj,
            0x08 => Self::Group,
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }

    fn is_named(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    tag: Tag,
    /// `rwx`.
    permissions: u32,
    /// Of a named user or group.
    id: u32,
}

/// A valid list: entries for owner, group and others, then named ones, and with those a mask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    entries: Vec<Entry>,
}

/// What a new inode gets from its directory's default list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// Permission bits, `0o777`.
    pub mode: u32,
    /// `None` where the bits say it all.
    pub access: Option<Acl>,
}

impl Acl {
    /// # Errors
    /// `EOPNOTSUPP` for another version of the form, `EINVAL` for what is no valid list.
    pub fn parse(value: &[u8]) -> Result<Self, Errno> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let (chunks, rest) = rest.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(Errno::EINVAL);
        }
        let entries: Option<Vec<Entry>> = chunks.iter().map(entry).collect();
        let acl = Self { entries: entries.ok_or(Errno::EINVAL)? };
        if acl.is_valid() { Ok(acl) } else { Err(Errno::EINVAL) }
    }

    /// In order, without gaps: one owner, named users, one group, named groups, a mask, one for all others.
    fn is_valid(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let ordered = self.entries.windows(2).all(|pair| pair[0].tag <= pair[1].tag);
        let single = [Tag::UserObj, Tag::GroupObj, Tag::Other].into_iter().all(|tag| count(tag) == 1);
        let named = count(Tag::User) + count(Tag::Group) > 0;
        let masked = count(Tag::Mask) == 1 || (count(Tag::Mask) == 0 && !named);
        let ids = self.entries.iter().all(|entry| entry.tag.is_named() == (entry.id != NO_ID));
        ordered && single && masked && ids
    }

    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&(entry.permissions as u16).to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    /// The permission bits that show a file with this list, `0o777`: those of the group class are the mask, where there
    /// is one.
    #[must_use]
    pub fn mode(&self) -> u32 {
        [Tag::UserObj, self.group_class(), Tag::Other].into_iter().fold(0, |mode, tag| (mode << 3) | self.of(tag))
    }

    /// It says no more than permission bits do.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.entries.len() == 3
    }

    /// Follows a chmod: owner and others get their bits, and the mask (or else the group) those of the group class.
    pub fn chmod(&mut self, mode: u32) {
        let group_class = self.group_class();
        self.set(Tag::UserObj, mode >> 6);
        self.set(group_class, mode >> 3);
        self.set(Tag::Other, mode);
    }

    /// What something made with `mode` gets of this default list: each class at most what both permit.
    #[must_use]
    pub fn inherited(&self, mode: u32) -> Inherited {
        let mode = mode & self.mode();
        let mut access = self.clone();
        access.chmod(mode);
        Inherited { mode, access: (!access.is_minimal()).then_some(access) }
    }

    fn group_class(&self) -> Tag {
        if self.entries.iter().any(|entry| entry.tag == Tag::Mask) { Tag::Mask } else { Tag::GroupObj }
    }

    fn of(&self, tag: Tag) -> u32 {
        self.entries.iter().find(|entry| entry.tag == tag).map_or(0, |entry| entry.permissions)
    }

    fn set(&mut self, tag: Tag, permissions: u32) {
        for entry in &mut self.entries {
            if entry.tag == tag {
                entry.permissions = permissions & CLASS;
            }
        }
    }
}

fn entry(bytes: &[u8; ENTRY_LEN]) -> Option<Entry> {
    let [tag0, tag1, permissions0, permissions1, id @ ..] = *bytes;
    let tag = Tag::from_u16(u16::from_le_bytes([tag0, tag1]))?;
    let permissions = u32::from(u16::from_le_bytes([permissions0, permissions1]));
    // What programs put there for entries without an id is not told apart.
    let id = if tag.is_named() { u32::from_le_bytes(id) } else { NO_ID };
    (permissions <= CLASS).then_some(Entry { tag, permissions, id })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `(tag, permissions, id)` each.
    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    const U: (u16, u16, u32) = (1, 7, NO_ID);
    const G: (u16, u16, u32) = (4, 5, NO_ID);
    const O: (u16, u16, u32) = (0x20, 4, NO_ID);
    const NAMED: [(u16, u16, u32); 6] = [U, (2, 6, 1000), G, (8, 7, 50), (0x10, 6, NO_ID), O];

    #[test]
    fn a_valid_list_comes_back_as_it_was() {
        for entries in [&[U, G, O][..], &[U, G, (0x10, 1, NO_ID), O], &NAMED] {
            let value = value(entries);
            assert_eq!(Acl::parse(&value).map(|acl| acl.to_bytes()), Ok(value));
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let bad: [&[(u16, u16, u32)]; 9] = [
            &[],
            &[U, G],
            &[U, U, G, O],
            &[G, U, O],
            &[U, (2, 6, 1000), G, O],
            &[U, G, (8, 6, NO_ID), (0x10, 7, NO_ID), O],
            &[U, G, (0x10, 1, NO_ID), (0x10, 1, NO_ID), O],
            &[U, G, (0x20, 8, NO_ID)],
            &[U, G, (3, 1, 1), O],
        ];
        for entries in bad {
            assert_eq!(Acl::parse(&value(entries)), Err(Errno::EINVAL), "{entries:?}");
        }
        assert_eq!(Acl::parse(&[value(&[U, G, O]), vec![0]].concat()), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(b"abc"), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
    }

    #[test]
    fn the_mask_stands_for_the_group_class() {
        let mut acl = Acl::parse(&value(&NAMED)).expect("valid");
        assert_eq!(acl.mode(), 0o764);
        acl.chmod(0o4610);
        assert_eq!(acl.mode(), 0o610);
        let expected = [(1, 6, NO_ID), NAMED[1], G, NAMED[3], (0x10, 1, NO_ID), (0x20, 0, NO_ID)];
        assert_eq!(acl.to_bytes(), value(&expected), "the group's own entry stays");
        let mut minimal = Acl::parse(&value(&[U, G, O])).expect("valid");
        minimal.chmod(0o421);
        assert_eq!(minimal.to_bytes(), value(&[(1, 4, NO_ID), (4, 2, NO_ID), (0x20, 1, NO_ID)]));
    }

    #[test]
    fn inherits_what_both_permit() {
        let acl = Acl::parse(&value(&NAMED)).expect("valid");
        let Inherited { mode, access: Some(access) } = acl.inherited(0o666) else {
            panic!("named entries are inherited")
        };
        assert_eq!(mode, 0o664);
        let expected = [(1, 6, NO_ID), NAMED[1], G, NAMED[3], (0x10, 6, NO_ID), (0x20, 4, NO_ID)];
        assert_eq!(access.to_bytes(), value(&expected));
        let minimal = Acl::parse(&value(&[U, G, O])).expect("valid");
        assert_eq!(minimal.inherited(0o777), Inherited { mode: 0o754, access: None });
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_list_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), mode: u32) {
            let bytes = [&2u32.to_le_bytes()[..], &bytes].concat();
            if let Ok(mut acl) = Acl::parse(&bytes) {
                prop_assert_eq!(Acl::parse(&acl.to_bytes()), Ok(acl.clone()));
                acl.chmod(mode);
                prop_assert_eq!(acl.mode(), mode & 0o777);
            }
        }
    }
}
