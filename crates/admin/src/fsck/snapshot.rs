//! What one pass of the check has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use types::attr::FileType;
use types::id::{GroupId, InodeId, ObjectId, TargetId};
use types::layout::Layout;
use types::parts::PartNumber;
use types::time::Timestamp;

use super::sorted::Sorted;

/// Directories above each other that are followed at most: deeper paths do not fit any system call, and in a circle there is no
/// end.
const DEPTH_MAX: usize = 8192;

/// All records of all shards and all objects of all storage groups. Filled, then sealed, then asked.
#[derive(Default)]
pub(super) struct Snapshot {
    pub(super) inodes: Sorted<InodeId, Inode>,
    /// By child, once sealed.
    pub(super) edges: Vec<Edge>,
    /// Objects to be deleted: those of removed files.
    pub(super) deletions: BTreeSet<(GroupId, ObjectId)>,
    pub(super) objects: Sorted<(GroupId, ObjectId), Object>,
    /// Lengths of contents in the metadata, in bytes.
    pub(super) contents: Sorted<InodeId, u32>,
    /// Records that cannot be read.
    pub(super) damaged: Vec<Damaged>,
    /// Of these, inodes: they are there, and nobody knows what they are.
    pub(super) unreadable: BTreeSet<InodeId>,
    /// Directories that are split, with the upper bits of the hash below which their parts have the names: all bits set where
    /// they have all.
    pub(super) split: BTreeMap<InodeId, u32>,
    /// Their parts.
    pub(super) parts: BTreeMap<InodeId, PartOf>,
    /// Groups that could not be asked for their objects, or not for all, and the target of each.
    pub(super) away: BTreeMap<GroupId, TargetId>,
    /// Those of them that are served, and whose disk gives errors.
    pub(super) failing: BTreeSet<GroupId>,
    /// Each layout once: with few storage groups, files have few different ones.
    pub(super) layouts: BTreeSet<Arc<Layout>>,
}

impl Snapshot {
    /// `layout`, in memory once.
    pub(super) fn share(&mut self, layout: Layout) -> Arc<Layout> {
        let layout = Arc::new(layout);
        if let Some(known) = self.layouts.get(&layout) {
            return Arc::clone(known);
        }
        self.layouts.insert(Arc::clone(&layout));
        layout
    }

    /// Nothing comes any more.
    pub(super) fn seal(&mut self) {
        self.inodes.seal();
        self.objects.seal();
        self.contents.seal();
        self.edges.sort_by_key(|edge| edge.child);
        self.edges.shrink_to_fit();
    }

    /// The names of an inode.
    pub(super) fn names(&self, inode: InodeId) -> &[Edge] {
        let begin = self.edges.partition_point(|edge| edge.child < inode);
        let count = self.edges[begin..].partition_point(|edge| edge.child == inode);
        &self.edges[begin..begin + count]
    }

    /// The path of an inode from the root of the file system, by the first of its names; `None` where none leads there.
    pub(super) fn path(&self, inode: InodeId) -> Option<String> {
        let (mut at, mut names) = (inode, Vec::new());
        for _ in 0..DEPTH_MAX {
            if at == InodeId::ROOT {
                names.reverse();
                return Some(format!("/{}", names.join("/")));
            }
            at = match self.parts.get(&at) {
                Some(part) => part.directory,
                None => {
                    let edge = self.names(at).first()?;
                    names.push(&*edge.name);
                    edge.parent
                }
            };
        }
        None
    }
}

pub(super) struct Damaged {
    /// That it is, or belongs to.
    pub(super) inode: InodeId,
    /// What is wrong with which record.
    pub(super) what: Box<str>,
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
    pub(super) layout: Option<Arc<Layout>>,
    /// Its contents are in the metadata.
    pub(super) inline: bool,
    /// Unlinked but held open by so many sessions.
    pub(super) orphan: Option<u32>,
}

/// A part of a split directory.
#[derive(Clone, Copy)]
pub(super) struct PartOf {
    pub(super) directory: InodeId,
    pub(super) number: PartNumber,
}

pub(super) struct Edge {
    pub(super) parent: InodeId,
    /// The upper bits of the name's hash: there is room for so many.
    pub(super) hash: u32,
    pub(super) name: Box<str>,
    pub(super) child: InodeId,
    pub(super) kind: FileType,
}
