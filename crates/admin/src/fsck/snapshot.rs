//! What one pass of the check has seen.

use std::collections::{BTreeMap, BTreeSet};

use types::attr::FileType;
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;
use types::time::Timestamp;

/// All records of all shards and all objects of all storage groups.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) inodes: BTreeMap<InodeId, Inode>,
    pub(super) edges: Vec<Edge>,
    /// Objects to be deleted: those of removed files.
    pub(super) deletions: BTreeSet<(GroupId, ObjectId)>,
    pub(super) objects: BTreeMap<(GroupId, ObjectId), Object>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Object {
    /// Bytes.
    pub(super) size: u64,
    /// Units of 512 bytes that are allocated.
    pub(super) blocks: u64,
}

pub(super) struct Inode {
    pub(super) kind: FileType,
    pub(super) nlink: u32,
    pub(super) size: u64,
    /// Units of 512 bytes, as the objects had them when the file was settled.
    pub(super) blocks: u64,
    pub(super) ctime: Timestamp,
    pub(super) unsettled: bool,
    pub(super) has_objects: bool,
    pub(super) layout: Option<Layout>,
    /// Unlinked but held open by so many sessions.
    pub(super) orphan: Option<u32>,
}

pub(super) struct Edge {
    pub(super) parent: InodeId,
    pub(super) name: String,
    pub(super) child: InodeId,
    pub(super) kind: FileType,
}
