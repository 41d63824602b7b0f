//! Where object files lie, and which of their directory entries are known to be on disk.
//!
//! `objects/ab/cd/0001000000000010.3`: two levels of folders by a hash of the upper bits of the inode id, then the
//! inode in hexadecimal and the stripe. Files made together have adjacent ids and so share a folder: making, syncing
//! and removing them touches few directories.

use std::ffi::CString;

use rustc_hash::FxHashMap;
use types::id::{InodeId, ObjectId};

use crate::bounded_map::BoundedMap;

/// Low bits of the inode id that do not choose the folder.
const NEIGHBOUR_BITS: u32 = 10;
/// New objects remembered until their folder is synced.
const CREATED_MAX: usize = 1 << 16;

/// One of the 65,536 folders.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Folder(pub(super) u16);

impl Folder {
    pub(super) fn of(object: ObjectId) -> Self {
        let neighbours = ObjectId { inode: InodeId(object.inode.0 >> NEIGHBOUR_BITS), stripe: 0 };
        Self((neighbours.hash64() >> 48) as u16)
    }

    pub(super) fn outer_name(self) -> String {
        format!("{:02x}", self.0 >> 8)
    }

    pub(super) fn path(self) -> String {
        format!("{:02x}/{:02x}", self.0 >> 8, self.0 & 0xff)
    }
}

pub(super) fn file_name(object: ObjectId) -> String {
    format!("{:016x}.{}", object.inode.0, object.stripe)
}

/// The inverse of [`file_name`]; `None` for any other file that somebody put there.
pub(super) fn parse_file_name(name: &str) -> Option<ObjectId> {
    let (inode, stripe) = name.split_once('.')?;
    let object = ObjectId { inode: InodeId(u64::from_str_radix(inode, 16).ok()?), stripe: stripe.parse().ok()? };
    (file_name(object) == name).then_some(object)
}

/// Below the `objects` directory.
pub(super) fn path(object: ObjectId) -> CString {
    c_string(format!("{}/{}", Folder::of(object).path(), file_name(object)))
}

pub(super) fn c_string(path: String) -> CString {
    CString::new(path).expect("our own paths hold no zero byte")
}

/// Which directory entries a sync still has to make durable. Time is a counter of creations. What was made before this
/// service started, or was forgotten, counts as made at `unknown`.
pub(super) struct Entries {
    clock: u64,
    unknown: u64,
    created: BoundedMap<ObjectId, u64>,
    synced: FxHashMap<Folder, u64>,
}

impl Entries {
    pub(super) fn new() -> Self {
        Self { clock: 1, unknown: 1, created: BoundedMap::new(CREATED_MAX), synced: FxHashMap::default() }
    }

    pub(super) fn note_created(&mut self, object: ObjectId) {
        self.clock += 1;
        let forgotten = self.created.insert(object, self.clock);
        self.unknown = self.unknown.max(forgotten.into_values().max().unwrap_or(0));
    }

    pub(super) fn note_removed(&mut self, object: ObjectId) {
        self.created.remove(&object);
    }

    /// Whether the entry of `object` may be in memory alone.
    pub(super) fn is_unsynced(&self, object: ObjectId) -> bool {
        let created = self.created.get(&object).copied().unwrap_or(self.unknown);
        self.synced.get(&Folder::of(object)).is_none_or(|&synced| synced < created)
    }

    /// Whether the folder itself may be in memory alone.
    pub(super) fn is_new_folder(&self, folder: Folder) -> bool {
        !self.synced.contains_key(&folder)
    }

    /// To be asked before a sync of the folder, for [`Self::note_synced`] after it.
    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    pub(super) fn note_synced(&mut self, folder: Folder, begun_at: u64) {
        let synced = self.synced.entry(folder).or_default();
        *synced = begun_at.max(*synced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(inode: u64, stripe: u32) -> ObjectId {
        ObjectId { inode: InodeId(inode), stripe }
    }

    #[test]
    fn places_are_frozen() {
        // Objects on disk are found by these paths: they may never change.
        assert_eq!(path(object(0x0001_0000_0000_0010, 3)).to_str(), Ok("e6/68/0001000000000010.3"));
        assert_eq!(path(object(0xffff_ffff_ffff_ffff, 255)).to_str(), Ok("41/33/ffffffffffffffff.255"));
    }

    #[test]
    fn names_parse_back_and_strangers_do_not() {
        for known in [object(1, 0), object(u64::MAX, u32::MAX), object(0x1234_5678_9abc, 17)] {
            assert_eq!(parse_file_name(&file_name(known)), Some(known));
        }
        for stranger in
            ["", "x", "1.0", "0000000000000001.00", "000000000000000G.1", "0000000000000001.0.bak", "lost+found"]
        {
            assert_eq!(parse_file_name(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn files_made_together_share_a_folder_and_others_spread() {
        let folders = |step: u64| {
            (0..1000).map(|n| Folder::of(object(n * step, 0))).collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!(folders(1), 1);
        assert!(folders(1024) > 950, "{}", folders(1024));
    }

    #[test]
    fn a_new_entry_needs_one_sync_of_its_folder() {
        let mut entries = Entries::new();
        let (old, new) = (object(1, 0), object(2, 0));
        let folder = Folder::of(old);
        assert!(entries.is_unsynced(old) && entries.is_new_folder(folder), "nothing is known at the start");
        let begun = entries.clock();
        entries.note_created(new);
        entries.note_synced(folder, begun);
        assert!(!entries.is_unsynced(old) && !entries.is_new_folder(folder));
        assert!(entries.is_unsynced(new), "made while the sync ran");
        entries.note_synced(folder, entries.clock());
        assert!(!entries.is_unsynced(new));
    }

    #[test]
    fn a_forgotten_creation_counts_as_unsynced() {
        let mut entries = Entries::new();
        let first = object(5, 0);
        entries.note_synced(Folder::of(first), entries.clock());
        entries.note_created(first);
        for inode in 0..2 * CREATED_MAX as u64 {
            entries.note_created(object(1 << 30 | inode, 0));
        }
        assert!(!entries.created.contains(&first));
        assert!(entries.is_unsynced(first));
    }
}
