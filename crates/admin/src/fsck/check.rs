//! The invariants of a cluster, each a function from one pass to suspicions. Pure.

use std::collections::{BTreeMap, BTreeSet};

use types::attr::FileType;
use types::id::{GroupId, InodeId, ObjectId};
use types::layout::Layout;
use types::name_hash::HASH_BITS;
use types::parts::PartNumber;

use super::finding::{Finding, Kind};
use super::snapshot::{Damaged, Edge, Inode, Object, PartOf, Snapshot};

/// Units of 512 bytes of a block of a file system. Less than that it may give back by itself; and of an object in pieces that
/// have grown together, a block that listed them. ext4 has none of these for fewer than five pieces.
const BLOCK: u64 = 8;
const LISTED_MIN: u64 = 5 * BLOCK;

pub(super) fn check(snapshot: &Snapshot) -> BTreeSet<Finding> {
    let mut findings = BTreeSet::new();
    check_records(snapshot, &mut findings);
    check_edges(snapshot, &mut findings);
    check_parts(snapshot, &mut findings);
    check_inodes(snapshot, &mut findings);
    check_reachability(snapshot, &mut findings);
    check_objects(snapshot, &mut findings);
    check_contents(snapshot, &mut findings);
    check_sizes(snapshot, &mut findings);
    check_reach(snapshot, &mut findings);
    findings
}

fn finding(kind: Kind, id: InodeId, inode: Option<&Inode>, text: String) -> Finding {
    // Where it is is asked of what is found in the end: many a suspicion is none.
    let path = None;
    Finding { kind, inode: id, text, path, ctime: inode.map_or(0, |inode| inode.ctime.0) }
}

fn check_records(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    for Damaged { inode, what } in &snapshot.damaged {
        let text = format!("a record of {inode} cannot be read: {what}");
        findings.insert(finding(Kind::DamagedRecord, *inode, snapshot.inodes.get(inode), text));
    }
}

fn check_edges(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    for edge in &snapshot.edges {
        let Edge { parent, name, child, kind, .. } = edge;
        match snapshot.inodes.get(parent) {
            Some(inode) if inode.kind == FileType::Directory => {}
            None if snapshot.unreadable.contains(parent) => {}
            other => {
                let text = format!("name {name:?} (inode {child}) is in {parent}, which is no directory");
                findings.insert(finding(Kind::StrayName, *parent, other, text));
            }
        }
        match snapshot.inodes.get(child) {
            None if snapshot.unreadable.contains(child) => {}
            None => {
                let text = format!("name {name:?} in directory {parent} leads to inode {child}, which is not there");
                findings.insert(finding(Kind::DanglingName, *child, None, text));
            }
            Some(inode) if inode.kind != *kind => {
                let text = format!("name {name:?} in directory {parent} says {kind:?}, inode {child} {:?}", inode.kind);
                findings.insert(finding(Kind::WrongType, *child, Some(inode), text));
            }
            Some(_) => {}
        }
    }
}

/// Split directories have their parts, and these the names that are theirs.
fn check_parts(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    for (part, PartOf { directory, number }) in &snapshot.parts {
        let whole = snapshot.inodes.get(directory);
        // Its parts may go before it does.
        let is_removed = whole.is_some_and(|whole| whole.orphan.is_some());
        let is_there = snapshot.inodes.get(part).is_some_and(|inode| inode.kind == FileType::Directory);
        if !is_removed && !is_there && !snapshot.unreadable.contains(part) {
            let text =
                format!("part {} of directory {directory} should be {part}, which is no directory", number.index);
            findings.insert(finding(Kind::MissingPart, *directory, whole, text));
        }
    }
    for Edge { parent, hash, name, .. } in &snapshot.edges {
        if !is_home(snapshot, *parent, *hash) {
            let text = format!("name {name:?} is in {parent}, where nobody looks for it");
            findings.insert(finding(Kind::MisplacedName, *parent, snapshot.inodes.get(parent), text));
        }
    }
}

/// Names with these upper bits of their hashes can be in this directory.
fn is_home(snapshot: &Snapshot, directory: InodeId, hash: u32) -> bool {
    let Some(part) = snapshot.parts.get(&directory) else {
        // Names that have not gone to the parts yet.
        return snapshot.split.get(&directory).is_none_or(|&cursor| cursor < u32::MAX && hash >= cursor);
    };
    if snapshot.split.get(&part.directory).is_some_and(|&cursor| hash > cursor) {
        return false;
    }
    let least = u64::from(hash) << (HASH_BITS - u32::BITS);
    let greatest = least | ((1 << (HASH_BITS - u32::BITS)) - 1);
    let number = |hash| PartNumber::of_hash(hash, part.number.count);
    number(least) == part.number || number(greatest) == part.number
}

fn check_inodes(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    let mut subdirectories: BTreeMap<InodeId, u32> = BTreeMap::new();
    for edge in snapshot.edges.iter().filter(|edge| edge.kind == FileType::Directory) {
        *subdirectories.entry(edge.parent).or_default() += 1;
    }
    for (&id, inode) in snapshot.inodes.iter() {
        let mut found = |kind, text| {
            findings.insert(finding(kind, id, Some(inode), text));
        };
        let count = snapshot.names(id).len() as u32;
        let held = inode.orphan.is_some_and(|holders| holders > 0);
        if count == 0 && id != InodeId::ROOT && !held && !snapshot.parts.contains_key(&id) {
            found(Kind::Unreachable, format!("inode {id} ({:?}) has no name, and nobody holds it open", inode.kind));
        }
        let expected = if inode.kind == FileType::Directory {
            if count > 1 {
                found(Kind::LinkedDirectory, format!("directory {id} has {count} names"));
            }
            if held { inode.nlink } else { 2 + subdirectories.get(&id).copied().unwrap_or(0) }
        } else {
            count
        };
        if inode.nlink != expected {
            found(Kind::WrongLinkCount, format!("inode {id} has link count {}, it should be {expected}", inode.nlink));
        }
    }
}

/// Every directory leads up to the root by its names.
fn check_reachability(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    if !snapshot.inodes.contains(&InodeId::ROOT) && !snapshot.unreadable.contains(&InodeId::ROOT) {
        findings.insert(finding(Kind::NoRoot, InodeId::ROOT, None, "the root directory is not there".to_owned()));
        return;
    }
    let mut rooted = BTreeSet::from([InodeId::ROOT]);
    for (&id, inode) in snapshot.inodes.iter().filter(|(_, inode)| inode.kind == FileType::Directory) {
        let mut path = BTreeSet::new();
        let mut at = id;
        while !rooted.contains(&at) && path.insert(at) {
            match (snapshot.parts.get(&at), snapshot.names(at).first()) {
                (Some(part), _) => at = part.directory,
                (None, Some(edge)) => at = edge.parent,
                (None, None) => break,
            }
        }
        if rooted.contains(&at) {
            rooted.extend(path);
        } else if !snapshot.names(id).is_empty() {
            // One without any name is reported as that.
            let text = format!("directory {id} cannot be reached from the root");
            findings.insert(finding(Kind::Detached, id, Some(inode), text));
        }
    }
}

fn check_objects(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    for (&(group, object), Object { size, .. }) in snapshot.objects.iter() {
        let inode = snapshot.inodes.get(&object.inode).filter(|inode| inode.has_objects);
        match inode {
            Some(inode) if at_home(inode, group, object) => {}
            _ if snapshot.deletions.contains(&(group, object)) || snapshot.unreadable.contains(&object.inode) => {}
            Some(inode) => {
                let text = format!("object {object} lies in group {group}, where its file's layout does not have it");
                findings.insert(finding(Kind::MisplacedObject, object.inode, Some(inode), text));
            }
            None => {
                let text = format!("object {object} in group {group} ({size} bytes) belongs to no file");
                findings.insert(finding(Kind::StrayObject, object.inode, None, text));
            }
        }
    }
    for &(group, object) in &snapshot.deletions {
        let inode = snapshot.inodes.get(&object.inode);
        if let Some(inode) = inode.filter(|inode| inode.orphan.is_none() && at_home(inode, group, object)) {
            let text = format!("object {object} in group {group} is to be deleted, but its file is there");
            findings.insert(finding(Kind::DoomedObject, object.inode, Some(inode), text));
        }
    }
}

fn at_home(inode: &Inode, group: GroupId, object: ObjectId) -> bool {
    inode.layout.as_ref().is_some_and(|layout| layout.groups.get(object.stripe as usize) == Some(&group))
}

/// Contents in the metadata are those of files that have them there, and as long as these.
fn check_contents(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    for (&id, length) in snapshot.contents.iter() {
        let inode = snapshot.inodes.get(&id);
        if !inode.is_some_and(|inode| inode.inline) && !snapshot.unreadable.contains(&id) {
            let text = format!("{length} bytes of contents in the metadata belong to inode {id}, which has none there");
            findings.insert(finding(Kind::StrayContents, id, inode, text));
        }
    }
    for (&id, inode) in snapshot.inodes.iter().filter(|(_, inode)| inode.inline) {
        let length = snapshot.contents.get(&id).copied().unwrap_or(0);
        if u64::from(length) != inode.size {
            let text = format!("file {id} has {} bytes, its contents in the metadata have {length}", inode.size);
            findings.insert(finding(Kind::WrongSize, id, Some(inode), text));
        }
    }
}

/// What is settled is right: the file's size is what its objects come to, and none of them has gone since.
fn check_sizes(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    let files = snapshot.inodes.iter().filter(|(_, inode)| inode.kind == FileType::Regular);
    for (&id, inode) in files.filter(|(_, inode)| !inode.unsettled && !inode.inline) {
        let mut found = |kind, text| {
            findings.insert(finding(kind, id, Some(inode), text));
        };
        if !inode.has_objects {
            if inode.size != 0 {
                found(Kind::WrongSize, format!("file {id} has {} bytes, but no objects", inode.size));
            }
            continue;
        }
        let Some(layout) = inode.layout.as_deref().filter(|layout| layout::validate(layout).is_ok()) else {
            found(Kind::BadLayout, format!("file {id} has objects but no possible layout"));
            continue;
        };
        let objects = objects_of(snapshot, id, layout);
        let size = layout::file_size(layout, objects.iter().map(|object| object.size));
        // Of what is away nothing can be said: but the others must not come to more.
        let is_away = layout.groups.iter().any(|group| snapshot.away.contains_key(group));
        if is_away && size <= inode.size {
            continue;
        }
        if size != inode.size {
            found(Kind::WrongSize, format!("file {id} has {} bytes, its objects have {size}", inode.size));
        } else if let Some(Lost { stripe, bytes, before }) = lost_stripe(inode, layout, &objects) {
            let text = format!(
                "file {id} has lost data of its object {stripe}: its objects take {bytes} bytes, and took {before} when it was \
                 settled, of {size}",
            );
            found(Kind::LostData, text);
        }
    }
}

/// Whose bytes nobody gets as long as a target is away.
fn check_reach(snapshot: &Snapshot, findings: &mut BTreeSet<Finding>) {
    if snapshot.away.is_empty() {
        return;
    }
    for (&id, inode) in snapshot.inodes.iter().filter(|(_, inode)| inode.has_objects && !inode.inline) {
        let Some(layout) = inode.layout.as_deref().filter(|layout| layout::validate(layout).is_ok()) else { continue };
        let away = (0u32..).zip(&layout.groups).filter_map(|(stripe, group)| {
            let target = snapshot.away.get(group)?;
            Some((target, layout::object_size(layout, stripe, inode.size)))
        });
        // Of one that is being written, nobody but the objects knows how far it goes.
        let away: Vec<_> = away.filter(|&(_, bytes)| bytes > 0 || inode.unsettled).collect();
        let Some((target, _)) = away.first() else { continue };
        let bytes: u64 = away.iter().map(|(_, bytes)| bytes).sum();
        let text = if inode.unsettled {
            format!("file {id} was being written, and may have bytes on target {target}, which could not be asked")
        } else {
            let size = inode.size;
            format!("file {id} has up to {bytes} of its {size} bytes on target {target}, which could not be asked")
        };
        findings.insert(finding(Kind::OutOfReach, id, Some(inode), text));
    }
}

/// By stripe; those that are not there are empty.
fn objects_of(snapshot: &Snapshot, id: InodeId, layout: &Layout) -> Vec<Object> {
    let object = |(stripe, &group): (u32, &GroupId)| {
        snapshot.objects.get(&(group, ObjectId { inode: id, stripe })).copied().unwrap_or_default()
    };
    (0u32..).zip(&layout.groups).map(object).collect()
}

/// An object that is shorter than it was when its file was settled, and what the file took then and takes now.
struct Lost {
    stripe: u32,
    bytes: u64,
    before: u64,
}

/// A short object may be a hole. But a hole was one already when the file was settled: since then no space can have gone.
fn lost_stripe(inode: &Inode, layout: &Layout, objects: &[Object]) -> Option<Lost> {
    let blocks: u64 = objects.iter().map(|object| object.blocks).sum();
    let lists = objects.iter().filter(|object| object.blocks >= LISTED_MIN).count() as u64;
    if blocks + lists * BLOCK + BLOCK > inode.blocks {
        return None;
    }
    let short = |&(stripe, object): &(u32, &Object)| object.size < layout::object_size(layout, stripe, inode.size);
    let lost = |(stripe, _): (u32, &Object)| Lost { stripe, bytes: blocks * 512, before: inode.blocks * 512 };
    (0u32..).zip(objects).find(short).map(lost)
}

#[cfg(test)]
mod tests {
    use types::id::TargetId;
    use types::name_hash::name_hash;
    use types::time::Timestamp;

    use super::*;

    const DIR: InodeId = InodeId(20);
    const FILE: InodeId = InodeId(21);

    fn inode(kind: FileType, nlink: u32) -> Inode {
        Inode {
            kind,
            nlink,
            size: 0,
            blocks: 0,
            ctime: Timestamp(5),
            unsettled: false,
            has_objects: false,
            layout: None,
            inline: false,
            orphan: None,
        }
    }

    fn object(group: u32, stripe: u32) -> (GroupId, ObjectId) {
        (GroupId(group), ObjectId { inode: FILE, stripe })
    }

    fn seen(size: u64, blocks: u64) -> Object {
        Object { size, blocks }
    }

    fn edge(parent: InodeId, name: &str, child: InodeId, kind: FileType) -> Edge {
        let hash = (name_hash(name.as_bytes()) >> (HASH_BITS - u32::BITS)) as u32;
        Edge { parent, hash, name: name.into(), child, kind }
    }

    /// Root, a directory, and in it a file of 5000 bytes in two objects.
    fn sound() -> Snapshot {
        let layout = Layout { chunk_size: 4096, groups: vec![GroupId(2), GroupId(3)] };
        let file = Inode {
            size: 5000,
            blocks: 16,
            has_objects: true,
            layout: Some(layout.into()),
            ..inode(FileType::Regular, 1)
        };
        let mut snapshot = Snapshot {
            edges: vec![edge(InodeId::ROOT, "d", DIR, FileType::Directory), edge(DIR, "f", FILE, FileType::Regular)],
            ..Snapshot::default()
        };
        let root = inode(FileType::Directory, 3);
        for (id, inode) in [(InodeId::ROOT, root), (DIR, inode(FileType::Directory, 2)), (FILE, file)] {
            snapshot.inodes.push(id, inode);
        }
        snapshot.objects.push(object(2, 0), seen(4096, 8));
        snapshot.objects.push(object(3, 1), seen(904, 8));
        snapshot
    }

    /// The kinds found after `damage` was done to a sound cluster.
    fn kinds(damage: impl FnOnce(&mut Snapshot)) -> Vec<Kind> {
        let mut snapshot = sound();
        damage(&mut snapshot);
        snapshot.seal();
        check(&snapshot).into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn nothing_is_found_where_nothing_is_wrong() {
        assert_eq!(kinds(|_| {}), []);
        assert_eq!(check(&Snapshot::default()).len(), 1, "an empty one lacks its root");
    }

    #[test]
    fn what_cannot_be_read_is_told_once() {
        let unreadable = |s: &mut Snapshot, inode| {
            s.inodes.remove(&inode);
            s.unreadable.insert(inode);
            s.damaged.push(Damaged { inode, what: "a value of a wrong length".into() });
        };
        assert_eq!(kinds(|s| unreadable(s, FILE)), [Kind::DamagedRecord]);
        assert_eq!(kinds(|s| unreadable(s, DIR)), [Kind::DamagedRecord]);
        assert_eq!(kinds(|s| unreadable(s, InodeId::ROOT)), [Kind::DamagedRecord]);
        // Of a name nobody knows what it led to.
        let damaged = |s: &mut Snapshot| {
            s.edges.pop();
            s.damaged.push(Damaged { inode: DIR, what: "a value of a wrong length".into() });
        };
        assert_eq!(kinds(damaged), [Kind::DamagedRecord, Kind::Unreachable, Kind::WrongLinkCount]);
    }

    #[test]
    fn names_and_inodes_that_do_not_meet() {
        assert_eq!(
            kinds(|s| {
                s.inodes.remove(&FILE);
            }),
            [Kind::DanglingName, Kind::StrayObject, Kind::StrayObject]
        );
        assert_eq!(
            kinds(|s| {
                s.edges.pop();
            }),
            [Kind::Unreachable, Kind::WrongLinkCount]
        );
        assert_eq!(kinds(|s| s.edges[1].kind = FileType::Fifo), [Kind::WrongType]);
        assert_eq!(
            kinds(|s| s.edges.push(edge(FILE, "x", FILE, FileType::Regular))),
            [Kind::StrayName, Kind::WrongLinkCount]
        );
        assert_eq!(
            kinds(|s| {
                s.inodes.push(DIR, inode(FileType::Directory, 3));
            }),
            [Kind::WrongLinkCount]
        );
    }

    /// `DIR` in two parts, of which the first has the file.
    fn split(s: &mut Snapshot) {
        s.split.insert(DIR, u32::MAX);
        for index in 0..2 {
            let part = InodeId(30 + u64::from(index));
            s.inodes.push(part, inode(FileType::Directory, 2));
            s.parts.insert(part, PartOf { directory: DIR, number: PartNumber { index, count: 2 } });
        }
        let index = PartNumber::of_name(b"f", 2).index;
        s.edges[1].parent = InodeId(30 + u64::from(index));
    }

    #[test]
    fn what_is_found_has_a_path_where_a_name_leads_there() {
        let path = |change: fn(&mut Snapshot), inode| {
            let mut snapshot = sound();
            change(&mut snapshot);
            snapshot.seal();
            snapshot.path(inode)
        };
        assert_eq!(path(|_| {}, FILE).as_deref(), Some("/d/f"));
        assert_eq!(path(split, FILE).as_deref(), Some("/d/f"), "by the part that has it");
        assert_eq!(path(|_| {}, InodeId::ROOT).as_deref(), Some("/"));
        assert_eq!(path(|_| {}, InodeId(99)), None);
        assert_eq!(path(|s| s.edges[0].parent = DIR, FILE), None, "a circle");
    }

    #[test]
    fn parts_of_directories_are_there_and_have_their_names() {
        assert_eq!(kinds(split), []);
        assert_eq!(
            kinds(|s| {
                split(s);
                s.edges[1].parent = InodeId(61 - s.edges[1].parent.0);
            }),
            [Kind::MisplacedName]
        );
        assert_eq!(
            kinds(|s| {
                split(s);
                s.edges[1].parent = DIR;
            }),
            [Kind::MisplacedName]
        );
        // While it is being split, each is on its side of the cursor.
        let hash = edge(DIR, "f", FILE, FileType::Regular).hash;
        for (cursor, is_in_part, expected) in [
            (hash, false, vec![]),
            (hash + 1, true, vec![]),
            (hash + 1, false, vec![Kind::MisplacedName]),
            (hash - 1, true, vec![Kind::MisplacedName]),
        ] {
            let found = kinds(|s| {
                split(s);
                s.split.insert(DIR, cursor);
                s.edges[1].parent = if is_in_part { s.edges[1].parent } else { DIR };
            });
            assert_eq!(found, expected, "{cursor} {is_in_part}");
        }
        let empty = |s: &Snapshot| InodeId(61 - s.edges[1].parent.0);
        assert_eq!(
            kinds(|s| {
                split(s);
                let part = empty(s);
                s.inodes.remove(&part);
            }),
            [Kind::MissingPart]
        );
        assert_eq!(
            kinds(|s| {
                split(s);
                let part = empty(s);
                s.parts.remove(&part);
            }),
            [Kind::Unreachable],
            "a part that no directory has"
        );
    }

    #[test]
    fn directories_that_do_not_lead_to_the_root() {
        assert_eq!(kinds(|s| s.edges[0].parent = DIR), [Kind::Detached, Kind::WrongLinkCount, Kind::WrongLinkCount]);
        let twice = |s: &mut Snapshot| s.edges.push(edge(InodeId::ROOT, "e", DIR, FileType::Directory));
        assert_eq!(kinds(twice), [Kind::LinkedDirectory, Kind::WrongLinkCount]);
    }

    #[test]
    fn an_unlinked_file_that_is_held_open_is_no_finding() {
        let unlink = |s: &mut Snapshot, holders| {
            s.edges.pop();
            let file = s.inodes.get_mut(&FILE).expect("it is there");
            (file.nlink, file.orphan) = (0, Some(holders));
        };
        assert_eq!(kinds(|s| unlink(s, 1)), []);
        assert_eq!(kinds(|s| unlink(s, 0)), [Kind::Unreachable]);
    }

    #[test]
    fn objects_without_a_file_or_in_another_place() {
        let stray = ObjectId { inode: InodeId(99), stripe: 0 };
        assert_eq!(
            kinds(|s| {
                s.objects.push((GroupId(2), stray), seen(1, 8));
            }),
            [Kind::StrayObject]
        );
        let queued = |s: &mut Snapshot| {
            s.objects.push((GroupId(2), stray), seen(1, 8));
            s.deletions.insert((GroupId(2), stray));
        };
        assert_eq!(kinds(queued), []);
        assert_eq!(
            kinds(|s| {
                s.objects.push(object(3, 0), seen(1, 8));
            }),
            [Kind::MisplacedObject]
        );
        assert_eq!(
            kinds(|s| {
                s.deletions.insert(object(2, 0));
            }),
            [Kind::DoomedObject]
        );
    }

    #[test]
    fn of_a_target_that_is_away_nothing_is_suspected() {
        let leave_out = |s: &mut Snapshot, group: u32| {
            s.away.insert(GroupId(group), TargetId(10 + group));
            s.objects.remove(&object(group, group - 2));
        };
        for group in [2, 3] {
            assert_eq!(kinds(|s| leave_out(s, group)), [Kind::OutOfReach]);
        }
        let text = |change: fn(&mut Snapshot)| {
            let mut snapshot = sound();
            leave_out(&mut snapshot, 3);
            change(&mut snapshot);
            snapshot.seal();
            check(&snapshot).into_iter().map(|finding| finding.text).collect::<Vec<_>>().join("\n")
        };
        fn file(s: &mut Snapshot) -> &mut Inode {
            s.inodes.get_mut(&FILE).expect("it is there")
        }
        assert!(text(|_| {}).contains("has up to 904 of its 5000 bytes on target 13"), "{}", text(|_| {}));
        // It has nothing there, and may have something there.
        assert_eq!(text(|s| file(s).size = 4096), "");
        assert!(text(|s| (file(s).size, file(s).unsettled) = (0, true)).contains("may have bytes on target 13"));
        let too_long = |s: &mut Snapshot| s.objects.push(object(2, 0), seen(2 * 4096, 16));
        assert!(text(too_long).contains("has 5000 bytes, its objects have 12288"), "{}", text(too_long));
    }

    #[test]
    fn contents_in_the_metadata_belong_to_files_of_their_size() {
        let inline = |s: &mut Snapshot, length: Option<u32>| {
            let file = s.inodes.get_mut(&FILE).expect("it is there");
            (file.inline, file.has_objects) = (true, false);
            for (group, stripe) in [(2, 0), (3, 1)] {
                s.objects.remove(&object(group, stripe));
            }
            length.into_iter().for_each(|length| s.contents.push(FILE, length));
        };
        assert_eq!(kinds(|s| inline(s, Some(5000))), []);
        assert_eq!(kinds(|s| inline(s, Some(4999))), [Kind::WrongSize]);
        assert_eq!(kinds(|s| inline(s, None)), [Kind::WrongSize]);
        let empty = |s: &mut Snapshot| {
            inline(s, None);
            s.inodes.get_mut(&FILE).expect("it is there").size = 0;
        };
        assert_eq!(kinds(empty), []);
        assert_eq!(kinds(|s| s.contents.push(FILE, 1)), [Kind::StrayContents]);
        assert_eq!(kinds(|s| s.contents.push(InodeId(99), 1)), [Kind::StrayContents]);
        // It was about to grow out of the metadata: objects may be there, whatever is in them.
        let half_grown = |s: &mut Snapshot| {
            s.inodes.get_mut(&FILE).expect("it is there").inline = true;
            s.contents.push(FILE, 5000);
            s.objects.remove(&object(3, 1));
        };
        assert_eq!(kinds(half_grown), []);
    }

    #[test]
    fn a_lost_object_shows_in_the_size_unless_a_writer_is_there() {
        assert_eq!(
            kinds(|s| {
                s.objects.remove(&object(3, 1));
            }),
            [Kind::WrongSize]
        );
        let unsettled = |s: &mut Snapshot| {
            s.objects.remove(&object(3, 1));
            s.inodes.get_mut(&FILE).expect("it is there").unsettled = true;
        };
        assert_eq!(kinds(unsettled), []);
        // The first object does not decide about the size: only its space tells a loss from a hole.
        let lose = |s: &mut Snapshot| {
            s.objects.remove(&object(2, 0));
        };
        let hole = |s: &mut Snapshot| {
            s.objects.remove(&object(2, 0));
            s.inodes.get_mut(&FILE).expect("it is there").blocks = 8;
        };
        assert_eq!((kinds(lose), kinds(hole)), (vec![Kind::LostData], vec![]));
        // Lists of pieces may go, of objects that are long enough to have had some.
        let is_lost = |before: u64, now: u64| {
            let changed = |s: &mut Snapshot| {
                let file = s.inodes.get_mut(&FILE).expect("it is there");
                (file.size, file.blocks) = (20 * 4096 + 904, before);
                [object(2, 0), object(3, 1)].iter().for_each(|object| s.objects.remove(object));
                s.objects.push(object(2, 0), seen(10 * 4096 + 904, 88));
                s.objects.push(object(3, 1), seen(9 * 4096, now - 88));
            };
            kinds(changed) == [Kind::LostData]
        };
        assert!(!is_lost(168, 168) && !is_lost(184, 168) && is_lost(192, 168));
        assert!(!is_lost(128, 120) && is_lost(136, 120));
        let no_layout = |s: &mut Snapshot| s.inodes.get_mut(&FILE).expect("it is there").layout = None;
        assert_eq!(kinds(no_layout), [Kind::MisplacedObject, Kind::MisplacedObject, Kind::BadLayout]);
    }
}
