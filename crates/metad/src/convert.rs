//! From the namespace's values to the protocol's messages. The other way is plain enough to stand in `dispatch`.

use namespace::view::{
    Changed, Damaged, Deletion, DirEntry, DirPage, DirectoryView, EntryInfo, InodeView, Looked, ScanPage, ScanRecord,
    Standing, Walked,
};
use types::id::{GroupId, ShardId};
use types::name_hash::TIE_BITS;
use wire::codec::Bytes;
use wire::v1::meta;

/// Bytes of one page of entries that fit into a reply with room to spare.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// At least what one entry takes beside its name and layout.
const ENTRY_BYTES: usize = 192;

/// On the heap: it is a few hundred bytes, and goes through many hands.
pub(crate) fn inode(view: InodeView) -> Box<meta::InodeReply> {
    Box::new(meta::InodeReply {
        attr: view.attr,
        unsettled: view.unsettled,
        written_after: view.written_after,
        cutting: view.cutting,
        cuts: view.cuts,
        exclusive: view.exclusive,
        alone: view.alone,
        draft: view.draft,
        has_objects: view.has_objects,
        intents: view.intents,
        bare: view.bare,
        layout: view.layout,
        elsewhere: view.elsewhere,
        lease_ms: view.lease_ms,
        name_lease_ms: view.name_lease_ms,
        standing: view.standing.map(standing),
        parent: view.parent.as_deref().map(directory),
        inline_limit: view.inline_limit,
        contents: view.contents.map(Bytes),
        flags: view.flags,
        capability: view.capability,
    })
}

pub(crate) fn changed(changed: Changed) -> meta::ChangeReply {
    let Changed { parent, target, others, removed } = changed;
    meta::ChangeReply {
        parent: parent.as_deref().map(directory),
        target: target.as_deref().map(directory),
        told: others.is_some(),
        others: others.unwrap_or_default(),
        removed,
    }
}

fn directory(view: &DirectoryView) -> Box<meta::DirectoryReply> {
    let DirectoryView { attr, standing: at, lease_ms } = *view;
    Box::new(meta::DirectoryReply { attr, standing: standing(at), lease_ms })
}

fn standing(standing: Standing) -> meta::Standing {
    let Standing { order, empty } = standing;
    meta::Standing { order, empty }
}

pub(crate) fn looked(looked: Looked) -> meta::LookupReply {
    match looked {
        Looked::Found(view) => meta::LookupReply { found: Some(inode(view)), absent_lease_ms: 0 },
        Looked::Absent { lease_ms } => meta::LookupReply { found: None, absent_lease_ms: lease_ms },
    }
}

pub(crate) fn walked(walked: Walked) -> meta::WalkReply {
    meta::WalkReply { steps: walked.steps.into_iter().map(inode).collect(), end: walked.end }
}

pub(crate) fn page(page: DirPage) -> meta::ReadDirReply {
    let fitting = fitting(&page.entries);
    let end = page.end && fitting == page.entries.len();
    let entries = page.entries.into_iter().take(fitting).map(entry).collect();
    meta::ReadDirReply { entries, end, parent: page.parent, directory: page.directory.as_deref().map(directory) }
}

/// How many of the entries go into one reply. Those of one hash are never parted: who goes on in their midst does so by their
/// number, and would pass one over where another was removed before.
fn fitting(entries: &[DirEntry]) -> usize {
    let mut bytes = 0;
    let mut whole = 0;
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 && entries[index - 1].cookie >> TIE_BITS != entry.cookie >> TIE_BITS {
            whole = index;
        }
        let layout = entry.attributes.as_ref().and_then(|view| view.layout.as_ref());
        bytes += ENTRY_BYTES + entry.name.len() + layout.map_or(0, |layout| 4 * layout.groups.len());
        if bytes > PAGE_BYTES_MAX && whole > 0 {
            return whole;
        }
    }
    entries.len()
}

fn entry(entry: DirEntry) -> meta::DirEntry {
    let DirEntry { name, inode: id, kind, cookie, attributes } = entry;
    meta::DirEntry { name, inode: id, kind, cookie, attributes: attributes.map(inode) }
}

pub(crate) fn entry_info(info: EntryInfo, shard: ShardId, group: GroupId) -> meta::EntryInfoReply {
    let EntryInfo { inode: view, parent, policy, policy_is_own } = info;
    meta::EntryInfoReply { inode: inode(view), parent, shard, group, policy, policy_is_own }
}

pub(crate) fn scan(page: ScanPage) -> meta::ScanReply {
    meta::ScanReply { records: page.records.into_iter().map(record).collect(), next: page.next.map(Bytes) }
}

fn record(record: ScanRecord) -> meta::ScanRecord {
    let none = meta::ScanRecord { inode: None, edge: None, deletion: None, contents: None, damage: None };
    match record {
        ScanRecord::Inode { view, orphan } => {
            let (orphan_holders, orphan) = (orphan.unwrap_or(0), orphan.is_some());
            meta::ScanRecord { inode: Some(meta::ScanInode { reply: inode(view), orphan_holders, orphan }), ..none }
        }
        ScanRecord::Edge { parent, name, child, kind } => {
            meta::ScanRecord { edge: Some(meta::ScanEdge { parent, name, child, kind }), ..none }
        }
        ScanRecord::Deletion(Deletion { inode, stripe, group }) => {
            meta::ScanRecord { deletion: Some(meta::ScanDeletion { inode, stripe, group }), ..none }
        }
        ScanRecord::Contents { inode, length } => {
            meta::ScanRecord { contents: Some(meta::ScanContents { inode, length }), ..none }
        }
        ScanRecord::Damaged(Damaged { inode, is_inode, damage }) => {
            let what = Bytes(damage.to_string().into_bytes());
            meta::ScanRecord { damage: Some(meta::ScanDamage { inode, is_inode, what }), ..none }
        }
    }
}

#[cfg(test)]
mod tests {
    use types::attr::FileType;
    use types::id::InodeId;
    use types::name::Name;

    use super::*;

    fn entries(count: u64, per_hash: u64) -> Vec<DirEntry> {
        let name = Name::new(&[b'x'; 255]).expect("a name");
        let entry = |n: u64| DirEntry {
            name: name.clone(),
            inode: InodeId(n),
            kind: FileType::Regular,
            cookie: (1 + n / per_hash) << TIE_BITS | (1 + n % per_hash),
            attributes: None,
        };
        (0..count).map(entry).collect()
    }

    #[test]
    fn a_page_is_cut_between_hashes_only() {
        let all = page(DirPage { entries: entries(100, 1), end: true, parent: InodeId::ROOT, directory: None });
        assert_eq!((all.entries.len(), all.end), (100, true));
        let cut = page(DirPage { entries: entries(10_000, 3), end: true, parent: InodeId::ROOT, directory: None });
        assert!(cut.entries.len() > 1000 && cut.entries.len() < 4096);
        assert_eq!(cut.entries.len() % 3, 0);
        assert!(!cut.end);
    }
}
