//! One page of a directory listing, in the kernel's form.

use types::attr::FileType;
use types::id::InodeId;

use crate::abi::{DIRENT_ALIGN, Dirent, EntryOut, bytes_of};
use crate::filesystem::Entry;
use crate::reply;

/// Cookies 1 and 2 belong to `.` and `..`; those of the file system go on behind them.
const COOKIE_BASE: u64 = 2;
/// The kernel keeps positions in a signed number.
const COOKIE_MAX: u64 = i64::MAX as u64;

/// A page of a directory, as long as the kernel asked for.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    capacity: usize,
    plus: bool,
    /// `.` and `..` at the front of `bytes`, as far as they belong to this page: filled in by [`Listing::finish`].
    dots: &'static [(&'static [u8], u64)],
    /// The kernel learns of these.
    told: Vec<InodeId>,
}

const DOTS: &[(&[u8], u64)] = &[(b".", 1), (b"..", COOKIE_BASE)];

impl Listing {
    /// For the kernel's `offset` and buffer of `capacity` bytes. Also gives the cookie to ask the file system for.
    pub(crate) fn new(offset: u64, capacity: usize, plus: bool) -> (Self, u64) {
        let dots = &DOTS[offset.min(COOKIE_BASE) as usize..];
        let mut listing = Self { bytes: Vec::new(), capacity, plus, dots, told: Vec::new() };
        let len = dots.iter().map(|(name, _)| listing.entry_len(name)).sum();
        if len > capacity {
            // No kernel asks with so little room. An empty page is the end of the listing.
            (listing.dots, listing.capacity) = (&[], 0);
        } else {
            listing.bytes.reserve(capacity.min(64 << 10));
            listing.bytes.resize(len, 0);
        }
        (listing, offset.saturating_sub(COOKIE_BASE))
    }

    /// The attributes of each entry are welcome.
    #[must_use]
    pub fn wants_attributes(&self) -> bool {
        self.plus
    }

    /// The program begins to list, or goes back to the beginning.
    #[must_use]
    pub fn is_first(&self) -> bool {
        !self.dots.is_empty()
    }

    /// About how many entries with names of usual length still fit: a hint of how many to ask for.
    #[must_use]
    pub fn entries_left(&self) -> usize {
        const USUAL_NAME: &[u8] = b"a-usual-name.txt";
        (self.capacity - self.bytes.len()) / self.entry_len(USUAL_NAME)
    }

    /// Adds an entry; `cookie` (from 1) is what a later page starts after. False where it does not fit: the page is
    /// full. Entries without attributes are fine at any time.
    ///
    /// # Panics
    /// If `cookie` is 0 or above `i64::MAX` less the two that belong to the dots.
    pub fn push(&mut self, name: &[u8], inode: InodeId, kind: FileType, cookie: u64, entry: Option<&Entry>) -> bool {
        assert!((1..=COOKIE_MAX - COOKIE_BASE).contains(&cookie), "cookie {cookie:#x} out of range");
        if self.bytes.len() + self.entry_len(name) > self.capacity {
            return false;
        }
        let out = entry.map_or_else(EntryOut::default, reply::entry_out);
        let dirent = dirent(name, inode, kind, cookie + COOKIE_BASE);
        if self.plus {
            self.told.extend(entry.map(|entry| entry.attr.inode));
            self.bytes.extend_from_slice(bytes_of(&out));
        }
        self.bytes.extend_from_slice(bytes_of(&dirent));
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len().next_multiple_of(DIRENT_ALIGN), 0);
        true
    }

    fn entry_len(&self, name: &[u8]) -> usize {
        let head = if self.plus { size_of::<EntryOut>() } else { 0 };
        (head + size_of::<Dirent>() + name.len()).next_multiple_of(DIRENT_ALIGN)
    }

    /// The page as it goes to the kernel, and the inodes that it tells of.
    pub(crate) fn finish(mut self, inode: InodeId, parent: InodeId) -> (Vec<u8>, Vec<InodeId>) {
        let head = if self.plus { size_of::<EntryOut>() } else { 0 };
        let mut at = 0;
        for &(name, offset) in self.dots {
            let target = if offset == 1 { inode } else { parent };
            let dirent = dirent(name, target, FileType::Directory, offset);
            let start = at + head;
            let name_start = start + size_of::<Dirent>();
            self.bytes[start..name_start].copy_from_slice(bytes_of(&dirent));
            self.bytes[name_start..name_start + name.len()].copy_from_slice(name);
            at += self.entry_len(name);
        }
        (self.bytes, self.told)
    }
}

fn dirent(name: &[u8], inode: InodeId, kind: FileType, off: u64) -> Dirent {
    Dirent { ino: inode.0, off, namelen: name.len() as u32, kind: kind as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::read_front;

    fn names(bytes: &[u8], plus: bool) -> Vec<(String, u64, u64)> {
        let mut at = 0;
        let mut found = Vec::new();
        while at < bytes.len() {
            let start = at + if plus { size_of::<EntryOut>() } else { 0 };
            let dirent: Dirent = read_front(&bytes[start..]).expect("a whole entry");
            let name_start = start + size_of::<Dirent>();
            let name = &bytes[name_start..name_start + dirent.namelen as usize];
            found.push((String::from_utf8(name.to_vec()).expect("a name"), dirent.ino, dirent.off));
            at = (name_start + name.len()).next_multiple_of(DIRENT_ALIGN);
        }
        assert_eq!(at, bytes.len());
        found
    }

    #[test]
    fn the_first_page_begins_with_the_dots() {
        for plus in [false, true] {
            let (mut listing, cookie) = Listing::new(0, 4096, plus);
            assert_eq!(cookie, 0);
            assert!(listing.push(b"file", InodeId(20), FileType::Regular, 1, None));
            let bytes = listing.finish(InodeId(16), InodeId(1)).0;
            let expected = [(".", 16, 1), ("..", 1, 2), ("file", 20, 3)];
            assert_eq!(names(&bytes, plus), expected.map(|(name, ino, off)| (name.to_owned(), ino, off)));
        }
    }

    #[test]
    fn later_pages_go_on_after_the_cookie() {
        let (listing, cookie) = Listing::new(1, 4096, false);
        assert_eq!(cookie, 0);
        assert_eq!(names(&listing.finish(InodeId(16), InodeId(1)).0, false), [("..".to_owned(), 1, 2)]);
        let (listing, cookie) = Listing::new(9, 4096, false);
        assert_eq!(cookie, 7);
        assert_eq!(listing.finish(InodeId(16), InodeId(1)).0, Vec::<u8>::new());
    }

    #[test]
    fn cookies_made_of_hashes_use_63_bits() {
        let (mut listing, _) = Listing::new(2, 4096, true);
        let cookie = COOKIE_MAX - COOKIE_BASE;
        assert!(listing.push(b"late", InodeId(20), FileType::Regular, cookie, None));
        let bytes = listing.finish(InodeId(16), InodeId(1)).0;
        assert_eq!(names(&bytes, true), [("late".to_owned(), 20, COOKIE_MAX)]);
        assert_eq!(Listing::new(COOKIE_MAX, 4096, true).1, cookie);
    }

    #[test]
    fn a_page_stops_at_its_capacity() {
        let (mut listing, _) = Listing::new(2, 64, false);
        assert!(listing.push(b"a", InodeId(20), FileType::Regular, 1, None));
        assert!(listing.push(b"b", InodeId(21), FileType::Regular, 2, None));
        assert!(!listing.push(b"c", InodeId(22), FileType::Regular, 3, None));
        assert_eq!(listing.finish(InodeId(16), InodeId(1)).0.len(), 64);
    }
}
