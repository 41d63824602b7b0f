//! How inodes were when a name last led to them.
//!
//! Who asks for the attributes of a path asks twice: for what the name leads to, and then that for its attributes. When
//! another mount takes it away between the two, there is nothing left to ask; but a local file system would still answer,
//! since whoever has found a file holds it. What was seen at the name is that answer.

use std::sync::Mutex;

use types::attr::Attr;
use types::id::InodeId;

use crate::mutex::lock;

/// Remembered, by inode number modulo this: 128 KiB.
const PLACES: usize = 1 << 10;

pub(crate) struct Sightings(Box<[Mutex<Option<Attr>>]>);

impl Default for Sightings {
    fn default() -> Self {
        Self((0..PLACES).map(|_| Mutex::new(None)).collect())
    }
}

impl Sightings {
    fn place(&self, inode: InodeId) -> &Mutex<Option<Attr>> {
        &self.0[inode.0 as usize % PLACES]
    }

    /// A name led to it.
    pub(crate) fn note(&self, attr: Attr) {
        *lock(self.place(attr.inode)) = Some(attr);
    }

    /// What is left of an inode that is gone: as it was seen, without a name. `None` where that was forgotten.
    pub(crate) fn of_gone(&self, inode: InodeId) -> Option<Attr> {
        let seen = *lock(self.place(inode));
        seen.filter(|attr| attr.inode == inode).map(|attr| Attr { nlink: 0, ..attr })
    }
}

#[cfg(test)]
mod tests {
    use types::attr::FileType;
    use types::time::Timestamp;

    use super::*;

    fn file(inode: u64) -> Attr {
        let time = Timestamp(5);
        Attr {
            inode: InodeId(inode),
            kind: FileType::Regular,
            mode: 0o644,
            uid: 1,
            gid: 2,
            nlink: 3,
            rdev: 0,
            size: 7,
            blocks: 8,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    #[test]
    fn the_latest_of_a_place_is_remembered_without_its_names() {
        let (sightings, other) = (Sightings::default(), 3 + PLACES as u64);
        assert_eq!(sightings.of_gone(InodeId(3)), None);
        sightings.note(file(3));
        assert_eq!(sightings.of_gone(InodeId(3)), Some(Attr { nlink: 0, ..file(3) }));
        assert_eq!(sightings.of_gone(InodeId(other)), None);
        sightings.note(file(other));
        assert_eq!(sightings.of_gone(InodeId(3)), None);
    }
}
