//! Passes over all shards and all storage groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::map::{ClusterMap, ServiceKind};
use serde::Serialize;
use types::attr::FileType;
use types::error::Errno;
use types::id::{GroupId, InodeId, ObjectId, ShardId, TargetId};
use types::name_hash::{HASH_BITS, name_hash};
use types::parts::PartNumber;
use types::time::AccessTimes;
use wire::codec::Bytes;
use wire::v1::meta::{Parts, Scan, ScanDamage, ScanRecord};
use wire::v1::storage::List;

use super::check::check;
use super::finding::Finding;
use super::snapshot::{Damaged, Edge, Inode, Object, PartOf, Snapshot};
use crate::data::{DataError, DataPlane, lanes};

/// Records in one reply of a shard, and objects in one of a lane.
const PAGE: u32 = 2048;
/// A suspicion is a finding if so many more passes see it too.
const CONFIRMATIONS: u32 = 2;
/// At least so long between two passes, so that what was under way is over.
const PAUSE: Duration = Duration::from_millis(300);

/// What the check has seen and found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub inodes: u64,
    pub directories: u64,
    pub names: u64,
    pub objects: u64,
    /// Sum of the objects' sizes.
    pub object_bytes: u64,
    /// Files that are being written, or whose writer died: their objects know their size.
    pub unsettled: u64,
    /// Unlinked files that somebody holds open.
    pub orphans: u64,
    /// Objects of removed files that wait for their deletion.
    pub deletions: u64,
    /// Files with contents in the metadata, and bytes of these.
    pub inline_files: u64,
    pub inline_bytes: u64,
    pub passes: u32,
    /// Targets that were away in some pass: little or nothing is known of what lies there.
    pub not_asked: Vec<NotAsked>,
    /// What does not belong together; empty where all is well.
    pub findings: Vec<Finding>,
}

/// A target that its service runs without, whose disk gives errors, or whose node is offline.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NotAsked {
    pub target: TargetId,
    /// Its directory on its node.
    pub path: String,
    pub node: String,
    /// The node is up and could not open it.
    pub left_out: bool,
    /// The node is up and has opened it, and its disk gives errors.
    pub failing: bool,
}

impl Report {
    /// Nothing was found, and nothing was left out.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty() && self.not_asked.is_empty()
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// From 1.
    pub pass: u32,
    /// Of this pass.
    pub objects: u64,
    /// Names and inodes of this pass.
    pub records: u64,
}

/// Checks everything that `data` leads to; `progress` is told now and then.
pub(crate) async fn run(data: &DataPlane<'_>, progress: &mut dyn FnMut(Stage)) -> Result<Report, DataError> {
    let mut snapshot = collect(data, 1, progress).await?;
    let mut report = summary(&snapshot);
    let mut suspicions = check(&snapshot);
    // Of what was away once, the other passes prove nothing: what only they have seen is no finding.
    let (mut away, mut failing) = (snapshot.away.clone(), snapshot.failing.clone());
    report.passes = 1;
    while !suspicions.is_empty() && report.passes <= CONFIRMATIONS {
        ring::sleep(PAUSE).await;
        report.passes += 1;
        // There is memory for one of them.
        drop(std::mem::take(&mut snapshot));
        snapshot = collect(data, report.passes, progress).await?;
        away.extend(&snapshot.away);
        failing.extend(&snapshot.failing);
        suspicions = suspicions.intersection(&check(&snapshot)).cloned().collect();
    }
    let located = |finding: Finding| Finding { path: snapshot.path(finding.inode), ..finding };
    report.findings = suspicions.into_iter().map(located).collect();
    let map = data.renewed().await?;
    // What was deleted since had nothing that anybody misses.
    away.retain(|group, _| map.groups.contains_key(group));
    report.not_asked = not_asked(&away, &failing, &map);
    Ok(report)
}

fn not_asked(away: &BTreeMap<GroupId, TargetId>, failing: &BTreeSet<GroupId>, map: &ClusterMap) -> Vec<NotAsked> {
    let describe = |(&group, &target): (&GroupId, &TargetId)| {
        let known = map.targets.get(&target);
        let node = known.and_then(|known| map.nodes.get(&known.node));
        NotAsked {
            target,
            path: known.map(|known| known.path.clone()).unwrap_or_default(),
            node: node.map(|node| node.alias.clone()).unwrap_or_default(),
            left_out: map.is_left_out(group),
            failing: failing.contains(&group),
        }
    };
    away.iter().map(describe).collect()
}

async fn collect(data: &DataPlane<'_>, pass: u32, progress: &mut dyn FnMut(Stage)) -> Result<Snapshot, DataError> {
    // Each pass knows what has come since the last one: what lies there belongs to something, or something to it.
    let map = data.renewed().await?;
    let mut snapshot = Snapshot::default();
    let mut stage = Stage { pass, objects: 0, records: 0 };
    // The objects first: each of them has a file at that time, and where the file goes later, so does the object.
    for group in map.groups.values().filter(|group| group.kind == ServiceKind::Storage).map(|group| group.id) {
        list_group(data, &map, group, &mut snapshot, |count| {
            stage.objects += count;
            progress(stage);
        })
        .await?;
    }
    for &shard in map.shards.keys() {
        scan_shard(data, shard, |records| {
            stage.records += records.len() as u64;
            progress(stage);
            records.into_iter().for_each(|record| add_record(&mut snapshot, record));
        })
        .await?;
    }
    for directory in snapshot.split.keys().copied().collect::<Vec<_>>() {
        find_parts(data, directory, &mut snapshot).await?;
    }
    snapshot.seal();
    Ok(snapshot)
}

/// All objects of a group, or the note that it is away.
async fn list_group(
    data: &DataPlane<'_>,
    map: &ClusterMap,
    group: GroupId,
    snapshot: &mut Snapshot,
    mut seen: impl FnMut(u64),
) -> Result<(), DataError> {
    if let Some(target) = map.away(group) {
        snapshot.away.insert(group, target);
        return Ok(());
    }
    let mut listed = Ok(());
    for lane in 0..lanes(map, group)? {
        if listed.is_ok() {
            listed = list_lane(data, group, lane, snapshot, &mut seen).await;
        }
    }
    let Err(error) = listed else { return Ok(()) };
    let now = data.renewed().await?;
    match now.away(group) {
        Some(target) => drop(snapshot.away.insert(group, target)),
        // It was deleted: it had nothing that anybody misses.
        None if !now.groups.contains_key(&group) => {}
        None => match (&error, primary(&now, group)) {
            // Its disk is dead or dying, and the service that has it open goes on with the others.
            (DataError::Errno { errno: Errno::EIO, .. }, Some(target)) => {
                snapshot.away.insert(group, target);
                snapshot.failing.insert(group);
            }
            _ => return Err(error),
        },
    }
    Ok(())
}

fn primary(map: &ClusterMap, group: GroupId) -> Option<TargetId> {
    map.groups.get(&group)?.members.first().copied()
}

async fn find_parts(data: &DataPlane<'_>, directory: InodeId, snapshot: &mut Snapshot) -> Result<(), DataError> {
    let reply = match data
        .shard(directory.home(), &Parts { inode: directory, lists: false, accesses: AccessTimes::Noatime })
        .await
    {
        // It has gone meanwhile.
        Err(DataError::Errno { .. }) => return Ok(()),
        reply => reply?,
    };
    if reply.cursor > 0 {
        snapshot.split.insert(directory, (reply.cursor >> (HASH_BITS - u32::BITS)) as u32);
    }
    let count = reply.parts.len() as u16;
    for (index, part) in (0..).zip(reply.parts) {
        snapshot.parts.insert(part, PartOf { directory, number: PartNumber { index, count } });
    }
    Ok(())
}

async fn list_lane(
    data: &DataPlane<'_>,
    group: GroupId,
    lane: usize,
    snapshot: &mut Snapshot,
    mut seen: impl FnMut(u64),
) -> Result<(), DataError> {
    let mut after: Option<ObjectId> = None;
    loop {
        let page = data.lane(group, lane, &List { after, count: PAGE }).await?;
        for listed in &page.objects {
            let object = Object { size: listed.size, blocks: listed.blocks };
            snapshot.objects.push((group, listed.object), object);
        }
        seen(page.objects.len() as u64);
        after = page.objects.last().map(|listed| listed.object);
        if page.end || after.is_none() {
            return Ok(());
        }
    }
}

/// All records of a shard, a page at a time.
pub(super) async fn scan_shard(
    data: &DataPlane<'_>,
    shard: ShardId,
    mut take: impl FnMut(Vec<ScanRecord>),
) -> Result<(), DataError> {
    let mut after = Bytes::default();
    loop {
        let page = data.shard(shard, &Scan { after, count: PAGE }).await?;
        take(page.records);
        match page.next {
            Some(next) => after = next,
            None => return Ok(()),
        }
    }
}

fn add_record(snapshot: &mut Snapshot, record: ScanRecord) {
    if let Some(found) = record.inode {
        let attr = found.reply.attr;
        let inode = Inode {
            kind: attr.kind,
            nlink: attr.nlink,
            size: attr.size,
            blocks: attr.blocks,
            ctime: attr.ctime,
            unsettled: found.reply.unsettled,
            has_objects: found.reply.has_objects,
            layout: found.reply.layout.map(|layout| snapshot.share(layout)),
            inline: found.reply.inline_limit > 0,
            orphan: found.orphan.then_some(found.orphan_holders),
        };
        if inode.kind == FileType::Directory && inode.unsettled {
            snapshot.split.insert(attr.inode, u32::MAX);
        }
        snapshot.inodes.push(attr.inode, inode);
    }
    if let Some(edge) = record.edge {
        let hash = (name_hash(&edge.name) >> (HASH_BITS - u32::BITS)) as u32;
        let (name, kind) = (edge.name.to_string().into_boxed_str(), edge.kind);
        snapshot.edges.push(Edge { parent: edge.parent, hash, name, child: edge.child, kind });
    }
    if let Some(deletion) = record.deletion {
        let object = ObjectId { inode: deletion.inode, stripe: deletion.stripe };
        snapshot.deletions.insert((deletion.group, object));
    }
    if let Some(contents) = record.contents {
        snapshot.contents.push(contents.inode, contents.length);
    }
    if let Some(ScanDamage { inode, is_inode, what }) = record.damage {
        if is_inode {
            snapshot.unreadable.insert(inode);
        }
        snapshot.damaged.push(Damaged { inode, what: String::from_utf8_lossy(&what.0).into() });
    }
}

fn summary(snapshot: &Snapshot) -> Report {
    let count = |of: &dyn Fn(&Inode) -> bool| snapshot.inodes.iter().filter(|(_, inode)| of(inode)).count() as u64;
    let parts = snapshot.parts.keys().filter(|part| snapshot.inodes.contains(part)).count() as u64;
    Report {
        inodes: snapshot.inodes.len() as u64 - parts,
        directories: count(&|inode| inode.kind == FileType::Directory) - parts,
        names: snapshot.edges.len() as u64,
        objects: snapshot.objects.len() as u64,
        object_bytes: snapshot.objects.iter().map(|(_, object)| object.size).sum(),
        unsettled: count(&|inode| inode.unsettled && inode.kind != FileType::Directory),
        orphans: count(&|inode| inode.orphan.is_some()),
        deletions: snapshot.deletions.len() as u64,
        inline_files: snapshot.contents.len() as u64,
        inline_bytes: snapshot.contents.iter().map(|(_, length)| u64::from(*length)).sum(),
        passes: 0,
        not_asked: Vec::new(),
        findings: Vec::new(),
    }
}
