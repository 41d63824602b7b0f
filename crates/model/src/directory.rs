//! The entries of one directory, by name and in listing order.

use std::collections::BTreeMap;
use std::ops::Bound;

use types::attr::{Attr, FileType};
use types::error::Errno;
use types::id::InodeId;

use crate::Model;

/// Entries are listed in the order of their cookies, which rise with every new name. A name that stays keeps its
/// cookie, also when another inode takes it over, so a listing shows it exactly once.
pub(crate) struct Directory {
    pub(crate) parent: InodeId,
    by_name: BTreeMap<Vec<u8>, Entry>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
}

struct Entry {
    inode: InodeId,
    cookie: u64,
}

/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub name: Vec<u8>,
    pub attr: Attr,
    /// To go on after this entry. From 1.
    pub cookie: u64,
}

impl Directory {
    pub(crate) fn new(parent: InodeId) -> Self {
        Self { parent, by_name: BTreeMap::new(), by_cookie: BTreeMap::new(), next_cookie: 1 }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<InodeId> {
        self.by_name.get(name).map(|entry| entry.inode)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Makes the name point to `inode`, whatever it was before.
    pub(crate) fn set(&mut self, name: &[u8], inode: InodeId) {
        if let Some(entry) = self.by_name.get_mut(name) {
            entry.inode = inode;
            return;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_name.insert(name.to_vec(), Entry { inode, cookie });
        self.by_cookie.insert(cookie, name.to_vec());
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.by_name.remove(name) {
            self.by_cookie.remove(&entry.cookie);
        }
    }
}

impl Model {
    /// Up to `count` entries after the one with `cookie`; 0 is the beginning. Without `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn readdir(&self, inode: InodeId, cookie: u64, count: usize) -> Result<Vec<Listed>, Errno> {
        let directory = self.directory(inode)?;
        let after = (Bound::Excluded(cookie), Bound::Unbounded);
        let listed = directory.by_cookie.range(after).take(count).map(|(&cookie, name)| {
            let inode = directory.get(name).expect("both maps hold the same names");
            let attr = self.inode(inode).expect("an entry's inode exists").attr();
            Listed { name: name.clone(), attr, cookie }
        });
        Ok(listed.collect())
    }

    /// The directory that holds this directory; the root's is itself.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn parent(&self, inode: InodeId) -> Result<InodeId, Errno> {
        self.directory(inode).map(|directory| directory.parent)
    }

    /// Whether `ancestor` is `inode` itself or above it.
    pub(crate) fn is_ancestor(&self, ancestor: InodeId, mut inode: InodeId) -> bool {
        loop {
            if inode == ancestor {
                return true;
            }
            match self.directory(inode) {
                Ok(directory) if directory.parent != inode => inode = directory.parent,
                _ => return false,
            }
        }
    }

    pub(crate) fn is_directory(&self, inode: InodeId) -> bool {
        self.inode(inode).is_ok_and(|node| node.kind == FileType::Directory)
    }
}
