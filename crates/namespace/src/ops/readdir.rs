//! Listing a directory in pages.
//!
//! # Cookies
//! Entries lie in the order of (hash of the name, name): an order that no change moves them in, so a place in it is a
//! good cookie whatever comes and goes. An entry there during the whole listing lies after the places of the pages before
//! its own and not after that of its own, so it shows exactly once.
//!
//! A cookie is `hash << 4 | tie`. The last entry with a hash has tie 15: "after all entries of this hash". Others (two
//! names of one directory with the same 59 bits: once in 10^5 directories of a million entries) have their number
//! within the hash, from 1: "after so many of this hash", for kernels that cut a page in its midst; a page from
//! here never ends between them. A directory takes no more than 15 names of one hash (`has_room`), so that all have
//! cookies of their own, and no page grows beyond its bounds. The least hash is 1, so the least cookie is 17, and those below
//! are the caller's, for `.` and `..`.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use kv::Kv;
use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::edges::Edges;
use crate::error::Result;
use crate::namespace::Namespace;
use crate::schema::edge::{self, Edge};
use crate::schema::inode::{self, Inode, Role};
use types::name_hash::TIE_BITS;

/// Most entries of a page.
pub const PAGE_ENTRIES_MAX: usize = 4096;
/// Most bytes that a page's entries may come to in a reply, about.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// What an entry has beside its name, and what its attributes have, about.
const ENTRY_BYTES: usize = 32;
const ATTRIBUTES_BYTES: usize = 200;
/// Inodes that are missing in memory are scanned where they lie at most so far apart in the mean, else got one by one.
const SPREAD_MAX: u64 = 8;

const TIE_LAST: u64 = (1 << TIE_BITS) - 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub entries: Vec<PageEntry>,
    pub end: bool,
    pub parent: InodeId,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageEntry {
    pub name: Name,
    pub child: InodeId,
    pub kind: FileType,
    pub cookie: u64,
    /// Where asked for, at home here, and not damaged. A directory may come here by a split after its name.
    pub inode: Option<Inode>,
}

impl<K: Kv> Namespace<K> {
    /// Sees the turn's own changes.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`, `EREMOTE` where its parts have the next entries. A part to which names will still come has no
    /// end: after its last entry, it has an empty page that is not the end.
    pub fn readdir(&mut self, id: InodeId, cookie: u64, count: usize, attributes: bool) -> Result<Page> {
        let directory = self.existing(id)?;
        if !directory.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        let entry_bytes = ENTRY_BYTES + if attributes { ATTRIBUTES_BYTES } else { 0 };
        let mut collector = Collector::new(cookie, count, entry_bytes);
        match directory.role() {
            Role::Split(_) => return Err(Errno::EREMOTE.into()),
            Role::Splitting { cursor, .. } if collector.hash.max(1) < cursor => return Err(Errno::EREMOTE.into()),
            Role::Whole | Role::Splitting { .. } | Role::Part(_) | Role::Filling { .. } => {}
        }
        if directory.entries() > 0 {
            collect(&self.kv, &self.edges, id, &mut collector)?;
        }
        let (mut entries, is_last) = collector.finish();
        if attributes {
            self.add_attributes(&mut entries)?;
        }
        // What comes next is still in the directory that it is a part of.
        let end = is_last && !matches!(directory.role(), Role::Filling { .. });
        Ok(Page { entries, end, parent: directory.parent })
    }

    /// The entries of a directory after `cookie`, as in a page, and whether these are all.
    pub(crate) fn entries_after(&self, id: InodeId, cookie: u64, count: usize) -> Result<(Vec<PageEntry>, bool)> {
        let mut collector = Collector::new(cookie, count, ENTRY_BYTES);
        collect(&self.kv, &self.edges, id, &mut collector)?;
        Ok(collector.finish())
    }

    fn add_attributes(&mut self, entries: &mut [PageEntry]) -> Result<()> {
        // The others are known in their own shards.
        let shard = self.shard;
        let mut missing = Vec::new();
        for entry in entries.iter().filter(|entry| entry.child.home() == self.shard) {
            if self.inodes.peek(entry.child).is_none() {
                missing.push(entry.child);
            }
        }
        missing.sort_unstable();
        if let (Some(&first), Some(&last)) = (missing.first(), missing.last())
            && missing.len() > 1
            && last.0 - first.0 < SPREAD_MAX * missing.len() as u64
        {
            match self.warm_range(first, last) {
                Err(error) if !error.is_unreadable() => return Err(error),
                // Each is looked for by itself.
                _ => {}
            }
        }
        for entry in entries.iter_mut().filter(|entry| entry.child.home() == shard) {
            entry.inode = match self.find(entry.child) {
                Ok(inode) => inode.filter(|inode| inode.kind == entry.kind),
                // For who asks for this inode to be told of: nobody could list the others for it.
                Err(error) if error.is_unreadable() => None,
                Err(error) => return Err(error),
            };
        }
        Ok(())
    }

    /// Brings the inodes from `first` to `last` into memory with one scan.
    fn warm_range(&mut self, first: InodeId, last: InodeId) -> Result<()> {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        inode::ser_key(&mut from, first);
        inode::ser_key(&mut to, last);
        to.push(0);
        let inodes = &mut self.inodes;
        self.kv.scan(&from, &to, |key, value| {
            // What is damaged stays missing.
            if let Ok((id, inode)) = inode::deser_key(key).and_then(|id| Ok((id, inode::deser_value(key, value)?))) {
                inodes.warm(id, inode);
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
}

/// Feeds the collector with the store's entries under the turn's changes.
fn collect<K: Kv>(kv: &K, edges: &Edges, directory: InodeId, collector: &mut Collector) -> Result<()> {
    let changes = edges.changes_in(directory, collector.hash);
    let mut changes = changes.into_iter().peekable();
    let mut damage = None;
    let (mut from, mut to) = (Vec::new(), Vec::new());
    edge::ser_start(&mut from, directory, collector.hash);
    edge::ser_end(&mut to, directory);
    kv.scan(&from, &to, |key, value| {
        let (hash, name, edge) = match edge::deser_key(key).and_then(|(_, hash, name)| {
            let edge = edge::deser_value(key, value)?;
            Ok((hash, name, edge))
        }) {
            Ok(entry) => entry,
            Err(found) => {
                damage = Some(found);
                return ControlFlow::Break(());
            }
        };
        while let Some(&(changed_hash, changed_name, changed)) = changes.peek() {
            let order = (changed_hash, changed_name).cmp(&(hash, name));
            if order == Ordering::Greater {
                break;
            }
            changes.next();
            if let Some(changed) = changed {
                collector.push(changed_hash, changed_name, changed)?;
            }
            if order == Ordering::Equal {
                return ControlFlow::Continue(());
            }
        }
        collector.push(hash, name, edge)
    })?;
    if let Some(damage) = damage {
        return Err(damage.into());
    }
    for (hash, name, edge) in changes {
        if let Some(edge) = edge
            && collector.push(hash, name, edge).is_break()
        {
            break;
        }
    }
    Ok(())
}

/// Takes entries in order until a page is full.
struct Collector {
    /// Where the page begins, and how many entries of that hash came in pages before.
    hash: u64,
    skip: u64,
    count: usize,
    bytes: usize,
    entry_bytes: usize,
    entries: Vec<(u64, PageEntry)>,
    skipped: u64,
    full: bool,
}

impl Collector {
    fn new(cookie: u64, count: usize, entry_bytes: usize) -> Self {
        let (hash, tie) = (cookie >> TIE_BITS, cookie & TIE_LAST);
        let (hash, skip) = if tie == TIE_LAST { (hash + 1, 0) } else { (hash, tie) };
        Self {
            hash,
            skip,
            count: count.clamp(1, PAGE_ENTRIES_MAX),
            bytes: 0,
            entry_bytes,
            entries: Vec::new(),
            skipped: 0,
            full: false,
        }
    }

    fn push(&mut self, hash: u64, name: &[u8], edge: Edge) -> ControlFlow<()> {
        if self.full {
            return ControlFlow::Break(());
        }
        if hash == self.hash && self.skipped < self.skip {
            self.skipped += 1;
            return ControlFlow::Continue(());
        }
        let enough = self.entries.len() >= self.count || self.bytes >= PAGE_BYTES_MAX;
        if enough && self.entries.last().is_some_and(|(last, _)| *last != hash) {
            self.full = true;
            return ControlFlow::Break(());
        }
        // The hash was checked to be this name's, so it is one that once was valid; only damage makes it invalid.
        let Ok(name) = Name::new(name) else {
            return ControlFlow::Continue(());
        };
        self.bytes += name.len() + self.entry_bytes;
        self.entries.push((hash, PageEntry { name, child: edge.child, kind: edge.kind, cookie: 0, inode: None }));
        ControlFlow::Continue(())
    }

    fn finish(self) -> (Vec<PageEntry>, bool) {
        let Self { hash: first, skipped, mut entries, full, .. } = self;
        let mut number = skipped;
        for at in 0..entries.len() {
            let hash = entries[at].0;
            let continues = at > 0 && entries[at - 1].0 == hash;
            number = if continues || (at == 0 && hash == first) { number + 1 } else { 1 };
            let last = entries.get(at + 1).is_none_or(|next| next.0 != hash);
            let tie = if last { TIE_LAST } else { number };
            entries[at].1.cookie = hash << TIE_BITS | tie;
        }
        (entries.into_iter().map(|(_, entry)| entry).collect(), !full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists (hash, name) pairs in pages of `count`, going on after the last entry of each page.
    fn pages(entries: &[(u64, &str)], mut cookie: u64, count: usize) -> Vec<Vec<(String, u64)>> {
        let mut pages = Vec::new();
        loop {
            let mut collector = Collector::new(cookie, count, 0);
            let edge = Edge { child: InodeId(20), kind: FileType::Regular };
            let first = collector.hash;
            for &(hash, name) in entries.iter().filter(|entry| entry.0 >= first) {
                if collector.push(hash, name.as_bytes(), edge).is_break() {
                    break;
                }
            }
            let (page, end) = collector.finish();
            pages.push(page.iter().map(|entry| (entry.name.to_string(), entry.cookie)).collect());
            match page.last() {
                Some(last) if !end => cookie = last.cookie,
                _ => return pages,
            }
        }
    }

    const TIES: [(u64, &str); 6] = [(1, "a"), (5, "b"), (5, "c"), (5, "d"), (6, "e"), (9, "f")];

    #[test]
    fn a_page_never_ends_between_entries_of_one_hash() {
        for count in 1..8 {
            let pages = pages(&TIES, 0, count);
            let names: String = pages.iter().flatten().map(|entry| entry.0.as_str()).collect();
            assert_eq!(names, "abcdef", "{count}");
            assert!(pages.iter().all(|page| !page.last().is_some_and(|last| last.0 == "b" || last.0 == "c")));
        }
    }

    #[test]
    fn every_entry_has_a_cookie_to_go_on_after_it() {
        let all = pages(&TIES, 0, 10).concat();
        assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].1));
        for (at, (_, cookie)) in all.iter().enumerate() {
            let rest = pages(&TIES, *cookie, 1).concat();
            assert_eq!(rest, all[at + 1..], "after entry {at}");
        }
        assert!(all[0].1 >= 16);
    }
}
