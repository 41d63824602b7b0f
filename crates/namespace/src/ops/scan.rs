//! Raw records for a check of the whole cluster.

use std::ops::ControlFlow;

use kv::Kv;
use types::attr::FileType;
use types::error::Errno;
use types::id::InodeId;
use types::name::Name;

use crate::error::{Damage, Result};
use crate::namespace::Namespace;
use crate::schema::inode::Inode;
use crate::schema::{contents, deletion, edge, inode, layout};
use crate::view::Deletion;

/// Between the contents and the inodes lie the edges and deletions and nothing else.
const FIRST: &[u8] = &[contents::PREFIX];
const END: &[u8] = &[inode::PREFIX + 1];

/// One record as it is in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Raw {
    Edge {
        parent: InodeId,
        name: Name,
        child: InodeId,
        kind: FileType,
    },
    Deletion(Deletion),
    Inode(InodeId, Inode),
    /// Bytes of a file's contents.
    Contents(InodeId, u32),
    Damaged(Damaged),
}

/// A record that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damaged {
    /// The inode that it is, or belongs to: of an edge the directory, of a deletion the file that was.
    pub inode: InodeId,
    /// It is the inode itself, or what one cannot be without.
    pub is_inode: bool,
    pub damage: Damage,
}

impl Damaged {
    /// In the families that are scanned, and in that of layouts, keys begin with an inode.
    pub(crate) fn of(damage: Damage) -> Self {
        let id = damage.key.get(1..9).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        let is_inode = matches!(damage.key.first(), Some(&(inode::PREFIX | layout::PREFIX)));
        Self { inode: InodeId(id), is_inode, damage }
    }
}

impl<K: Kv> Namespace<K> {
    /// At most `count` committed contents, edges, deletions and inodes in key order after `after`, and where to go on if there
    /// are more.
    ///
    /// # Errors
    /// `EINVAL` where `after` is no such place.
    pub fn scan(&mut self, after: &[u8], count: usize) -> Result<(Vec<Raw>, Option<Vec<u8>>)> {
        let from = match after {
            [] => FIRST.to_vec(),
            [first, ..] if (contents::PREFIX..=inode::PREFIX).contains(first) => [after, &[0]].concat(),
            _ => return Err(Errno::EINVAL.into()),
        };
        let mut records = Vec::new();
        let mut last: Vec<u8> = Vec::new();
        let mut more = false;
        self.kv.scan(&from, END, |key, value| {
            if records.len() >= count {
                more = true;
                return ControlFlow::Break(());
            }
            records.push(deser(key, value).unwrap_or_else(|damage| Raw::Damaged(Damaged::of(damage))));
            last.clear();
            last.extend_from_slice(key);
            ControlFlow::Continue(())
        })?;
        Ok((records, more.then_some(last)))
    }
}

pub(crate) fn deser(key: &[u8], value: &[u8]) -> std::result::Result<Raw, Damage> {
    match key.first() {
        Some(&edge::PREFIX) => {
            let (parent, _, name) = edge::deser_key(key)?;
            let name = Name::new(name).map_err(|_| Damage::new("an edge with an impossible name", key))?;
            let edge = edge::deser_value(key, value)?;
            Ok(Raw::Edge { parent, name, child: edge.child, kind: edge.kind })
        }
        Some(&deletion::PREFIX) => deletion::deser(key, value).map(Raw::Deletion),
        Some(&inode::PREFIX) => Ok(Raw::Inode(inode::deser_key(key)?, inode::deser_value(key, value)?)),
        Some(&contents::PREFIX) => {
            let length = contents::deser_value(key, value)?.len() as u32;
            Ok(Raw::Contents(contents::deser_key(key)?, length))
        }
        _ => Err(Damage::new("a record of an unknown family", key)),
    }
}
