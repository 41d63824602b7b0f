//! Entries of sidecars in memory: of those that were used last, for all objects of a target and lane. What is here is in the
//! sidecar's file too: losing it costs a read.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::sums::Entry;

/// Entries that come and go together.
pub(super) const PAGE: u64 = 512;
/// Pages of one target and lane, of 4 KiB each: the entries of 8 GiB of objects.
pub(super) const PAGES_MAX: usize = 4096;

type Entries = [Entry; PAGE as usize];

/// The number of an open sidecar, never given twice, and that of a page in it.
type Key = (u64, u64);

struct Slot {
    /// `None` where it is free.
    key: Option<Key>,
    used: bool,
    entries: Box<Entries>,
}

/// Second-chance order: a page that was used since the hand came by stays for another turn.
struct Pages {
    places: FxHashMap<Key, usize>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    hand: usize,
    max: usize,
}

pub(super) struct EntryCache {
    pages: RefCell<Pages>,
    next_serial: Cell<u64>,
}

impl EntryCache {
    pub(super) fn new(pages_max: usize) -> Self {
        let pages =
            Pages { places: FxHashMap::default(), slots: Vec::new(), free: Vec::new(), hand: 0, max: pages_max.max(1) };
        Self { pages: RefCell::new(pages), next_serial: Cell::new(0) }
    }

    /// For a sidecar that was opened.
    pub(super) fn serial(&self) -> u64 {
        self.next_serial.replace(self.next_serial.get() + 1)
    }

    /// Fills `out` with the entries from block `first` on; false where some are not here.
    pub(super) fn copy(&self, serial: u64, first: u64, out: &mut [Entry]) -> bool {
        let mut pages = self.pages.borrow_mut();
        parts(first, out.len()).all(|(page, inside, part)| match pages.find((serial, page)) {
            Some(entries) => {
                out[part].copy_from_slice(&entries[inside]);
                true
            }
            None => false,
        })
    }

    /// These are in the sidecar's file now; what is not here stays away.
    pub(super) fn update(&self, serial: u64, first: u64, written: &[Entry]) {
        let mut pages = self.pages.borrow_mut();
        for (page, inside, part) in parts(first, written.len()) {
            if let Some(entries) = pages.find((serial, page)) {
                entries[inside].copy_from_slice(&written[part]);
            }
        }
    }

    /// A whole page, as it is in the sidecar's file.
    pub(super) fn insert(&self, serial: u64, page: u64, entries: &[Entry]) {
        let mut pages = self.pages.borrow_mut();
        let at = pages.place((serial, page));
        pages.slots[at].entries.copy_from_slice(entries);
    }

    /// Pages with any of these blocks.
    pub(super) fn forget(&self, serial: u64, blocks: Range<u64>) {
        let mut pages = self.pages.borrow_mut();
        let range = blocks.start / PAGE..blocks.end.div_ceil(PAGE);
        if range.end.saturating_sub(range.start) < 64 {
            range.for_each(|page| pages.remove((serial, page)));
        } else {
            let keys: Vec<Key> =
                pages.places.keys().filter(|key| key.0 == serial && range.contains(&key.1)).copied().collect();
            keys.into_iter().for_each(|key| pages.remove(key));
        }
    }
}

impl Pages {
    fn find(&mut self, key: Key) -> Option<&mut Entries> {
        let at = *self.places.get(&key)?;
        let slot = &mut self.slots[at];
        slot.used = true;
        Some(&mut slot.entries)
    }

    fn remove(&mut self, key: Key) {
        if let Some(at) = self.places.remove(&key) {
            self.slots[at].key = None;
            self.free.push(at);
        }
    }

    /// A slot for the page: its own, a free one, a new one, or that of another page.
    fn place(&mut self, key: Key) -> usize {
        if let Some(&at) = self.places.get(&key) {
            return at;
        }
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.slots.len() < self.max => {
                let entries = Box::new([Entry::default(); PAGE as usize]);
                self.slots.push(Slot { key: None, used: false, entries });
                self.slots.len() - 1
            }
            None => self.give_up_one(),
        };
        self.slots[at].key = Some(key);
        self.slots[at].used = false;
        self.places.insert(key, at);
        at
    }

    fn give_up_one(&mut self) -> usize {
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if !std::mem::replace(&mut slot.used, false) {
                if let Some(key) = slot.key.take() {
                    self.places.remove(&key);
                }
                return at;
            }
        }
    }
}

/// The pages of `len` entries from block `first` on: the page, where in it, and where in the entries.
fn parts(first: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let end = first + len as u64;
    (first / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let (from, to) = (first.max(page * PAGE), end.min((page + 1) * PAGE));
        let inside = (from - page * PAGE) as usize..(to - page * PAGE) as usize;
        (page, inside, (from - first) as usize..(to - first) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> Entry {
        Entry::settled(n as u32)
    }

    fn page(of: u64) -> Vec<Entry> {
        (0..PAGE).map(|n| entry(of * PAGE + n)).collect()
    }

    #[test]
    fn what_is_inserted_and_updated_is_found_over_pages() {
        let cache = EntryCache::new(8);
        let (one, other) = (cache.serial(), cache.serial());
        assert_ne!(one, other);
        let mut out = [Entry::default(); 4];
        cache.insert(one, 0, &page(0));
        assert!(cache.copy(one, 508, &mut out));
        assert!(!cache.copy(one, 510, &mut out), "the second page is not here");
        cache.insert(one, 1, &page(1));
        assert!(cache.copy(one, 510, &mut out));
        assert_eq!(out, [510, 511, 512, 513].map(entry));
        cache.update(one, 511, &[7, 8].map(entry));
        cache.update(other, 511, &[1, 2].map(entry));
        assert!(cache.copy(one, 510, &mut out));
        assert_eq!(out, [510, 7, 8, 513].map(entry));
        assert!(!cache.copy(other, 0, &mut out));
        cache.forget(one, 512..513);
        assert!(!cache.copy(one, 510, &mut out) && cache.copy(one, 0, &mut out));
        cache.forget(one, 3..u64::MAX);
        assert!(!cache.copy(one, 0, &mut out));
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let cache = EntryCache::new(4);
        let mut out = [Entry::default(); 1];
        for number in 0..100 {
            cache.insert(1, number, &page(number));
            assert!(cache.copy(1, 5, &mut out) && out[0] == entry(5), "it is asked for all the time");
        }
        assert!(!cache.copy(1, 50 * PAGE, &mut out) && cache.copy(1, 99 * PAGE, &mut out));
        assert_eq!(cache.pages.borrow().slots.len(), 4);
        assert_eq!(cache.pages.borrow().places.len(), 4);
        cache.forget(1, 0..u64::MAX);
        assert_eq!((cache.pages.borrow().places.len(), cache.pages.borrow().free.len()), (0, 4));
    }
}
