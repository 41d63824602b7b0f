//! One file or directory: where it is at home, how it is striped, where its objects lie.

use cluster::map::ClusterMap;
use serde::Serialize;
use types::attr::FileType;
use types::error::Errno;
use types::id::{GroupId, InodeId, NodeId, ObjectId, PoolId, ShardId, TargetId};
use types::layout::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, INLINE_MAX, STRIPE_COUNT_MAX};
use types::name::Name;
use types::parts::{HASH_END, PARTS_MAX, PARTS_MIN};
use types::placement::Placement;
use types::time::AccessTimes;
use types::walk::{WalkEnd, WalkNames};
use wire::v1::meta::{self, EntryInfoReply, Walk};
use wire::v1::storage::Place;

use crate::data::{DataError, DataPlane};

/// How often in a row a name turns out to be elsewhere.
const DETOURS_MAX: usize = 16;

/// What `weft entry info` shows.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Hexadecimal, as logs and other commands write inode ids.
    pub id: String,
    /// Of the directory that it is in; of a file with several names, of one of them.
    pub parent: Option<String>,
    pub kind: &'static str,
    /// Bytes, as settled; `unsettled` says that its objects know better.
    pub size: u64,
    pub unsettled: bool,
    pub shard: ShardId,
    pub metadata_node: Option<NodeRef>,
    /// How bytes are spread: always `raid0` in this release.
    pub pattern: &'static str,
    /// Bytes. Of a directory: for files that are made in it.
    pub chunk_size: u32,
    pub desired_targets: u16,
    pub pool: PoolId,
    pub pool_name: Option<String>,
    /// A directory's: set on it, rather than taken from its parent when it was made.
    pub policy_is_own: Option<bool>,
    /// Of a directory: which shard directories that are made in it go to.
    pub placement: Option<Placement>,
    /// Of a directory that is split: where its parts are, in the order of their names' hashes.
    pub parts: Vec<Part>,
    /// Of a directory that is being split: which share of its names' hashes the parts have by now, in percent.
    pub split_percent: Option<u32>,
    /// Bytes: of a directory, up to which new files have their contents in the metadata (0: none have); of a file with its
    /// contents there, how long they may become before they move to the targets.
    pub inline_limit: Option<u32>,
    /// Those that are set of it, as `chattr` sets them.
    pub flags: Vec<&'static str>,
    /// Of a regular file, in the order of its chunks; none where its contents are in the metadata.
    pub stripes: Vec<Stripe>,
}

/// One part of a split directory.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Hexadecimal.
    pub id: String,
    pub shard: ShardId,
    pub metadata_node: Option<NodeRef>,
}

/// A node for people.
#[derive(Clone, Debug, Serialize)]
pub struct NodeRef {
    pub id: NodeId,
    pub alias: String,
}

/// Where one of a file's objects is.
#[derive(Clone, Debug, Serialize)]
pub struct Stripe {
    pub stripe: u32,
    pub group: GroupId,
    pub target: Option<TargetId>,
    pub node: Option<NodeRef>,
    /// Path of the object on its node's host; `None` where the node does not answer.
    pub place: Option<String>,
    /// Nothing was written to it yet, where it is false.
    pub exists: bool,
}

/// What new files of a directory get. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Bytes.
    pub chunk_size: Option<u32>,
    pub stripe_count: Option<u16>,
    pub pool: Option<PoolId>,
    pub placement: Option<Placement>,
    /// Bytes; 0: none.
    pub inline_limit: Option<u32>,
}

/// A directory can be split into so many parts in some cluster.
///
/// # Errors
/// One line that names the bounds.
pub fn validate_split(count: u16) -> Result<(), String> {
    let is_possible = (PARTS_MIN..=PARTS_MAX).contains(&count);
    is_possible.then_some(()).ok_or_else(|| format!("split into {count}: must be {PARTS_MIN} to {PARTS_MAX}"))
}

/// Whom a command is about: an inode, or a path from the root of the file system.
#[derive(Clone, Debug)]
pub enum Subject {
    Inode(InodeId),
    Path(Vec<Name>),
}

pub(crate) async fn info(data: &DataPlane<'_>, subject: &Subject) -> Result<Entry, DataError> {
    let inode = resolve(data, subject).await?;
    let mut reply = data.shard(inode.home(), &meta::EntryInfo { inode }).await?;
    // A file's policy is its directory's, which may be at home in another shard.
    if let Some(parent) = reply.parent.filter(|parent| parent.home() != inode.home())
        && reply.inode.attr.kind != FileType::Directory
    {
        reply.policy = data.shard(parent.home(), &meta::EntryInfo { inode: parent }).await?.policy;
    }
    describe(data, inode, reply).await
}

pub(crate) async fn set(data: &DataPlane<'_>, subject: &Subject, policy: Policy) -> Result<Entry, DataError> {
    let inode = resolve(data, subject).await?;
    let Policy { chunk_size, stripe_count, pool, placement: directories, inline_limit } = policy;
    let shard = inode.home();
    let ask = async || {
        let exactly = data.exactly();
        let request = meta::SetPolicy { exactly, inode, chunk_size, stripe_count, pool, directories, inline_limit };
        data.shard(shard, &request).await
    };
    let why = |error| match error {
        DataError::Errno { errno: Errno::ENOTDIR, .. } => DataError::Policy("it is no directory".to_owned()),
        DataError::Errno { errno: Errno::EINVAL, .. } => match (directories, &data.map().shards) {
            (Some(Placement::Shard(named)), shards) if !shards.contains_key(&named) => {
                let there: Vec<String> = shards.keys().map(ToString::to_string).collect();
                DataError::Policy(format!("there is no metadata shard {named}, only {}", there.join(", ")))
            }
            _ => error,
        },
        other => other,
    };
    let reply = unless_behind(ask, async || data.catch_up(shard).await).await.map_err(why)?;
    describe(data, inode, reply).await
}

/// Splits a directory into so many parts.
pub(crate) async fn split(data: &DataPlane<'_>, subject: &Subject, count: u16) -> Result<Entry, DataError> {
    let inode = resolve(data, subject).await?;
    let shard = inode.home();
    let ask = async || data.shard(shard, &meta::Split { exactly: data.exactly(), inode, count }).await;
    let why = |error| match error {
        DataError::Errno { errno: Errno::ENOTDIR, .. } => DataError::Split("it is no directory".to_owned()),
        DataError::Errno { errno: Errno::EEXIST, .. } => DataError::Split("it is split already".to_owned()),
        DataError::Errno { errno: Errno::EINVAL, .. } => {
            let shards = data.map().shards.len();
            DataError::Split(format!("{count} parts need as many metadata shards, and there are {shards}"))
        }
        other => other,
    };
    unless_behind(ask, async || data.catch_up(shard).await).await.map_err(why)?;
    info(data, &Subject::Inode(inode)).await
}

/// A shard that goes by an older map than this command refuses pools and shards that it has not heard of yet: it is asked again
/// when it has.
async fn unless_behind<T>(
    ask: impl AsyncFn() -> Result<T, DataError>,
    catch_up: impl AsyncFnOnce() -> Result<(), DataError>,
) -> Result<T, DataError> {
    match ask().await {
        refused @ Err(DataError::Errno { errno: Errno::EINVAL, .. }) => {
            // What it says first is what the caller is told where that is of no avail.
            match catch_up().await {
                Ok(()) => ask().await,
                Err(_) => refused,
            }
        }
        outcome => outcome,
    }
}

/// What a path leads to; symbolic links on it are not followed. A request for each shard on the way.
async fn resolve(data: &DataPlane<'_>, subject: &Subject) -> Result<InodeId, DataError> {
    let mut rest = match subject {
        Subject::Inode(inode) => return Ok(*inode),
        Subject::Path(names) => &names[..],
    };
    let refused = |errno| DataError::Errno { op: "Walk", errno };
    // The directory that has been come to; that, or a part of it, which has the next name; and how often that was another one.
    let (mut at, mut place, mut detours) = (InodeId::ROOT, InodeId::ROOT, 0);
    while let Some(names) = WalkNames::new(rest[..WalkNames::fitting(rest)].to_vec()) {
        let reply = match data.shard(place.home(), &Walk { start: place, names, leases: false }).await {
            // In a directory that is being split a name may move while it is looked for.
            Err(DataError::Errno { errno: Errno::EREMOTE | Errno::ENOENT, .. }) if place != at => None,
            reply => Some(reply?),
        };
        let (steps, end) = reply.map_or((Vec::new(), WalkEnd::GoOn(at)), |reply| (reply.steps, reply.end));
        detours = if steps.is_empty() { detours + 1 } else { 0 };
        at = steps.last().map_or(at, |step| step.attr.inode);
        rest = rest.get(steps.len()..).ok_or(refused(Errno::EIO))?;
        place = match end {
            WalkEnd::Found => at,
            WalkEnd::GoOn(place) if detours <= DETOURS_MAX => place,
            WalkEnd::GoOn(_) => return Err(refused(Errno::EIO)),
            WalkEnd::Absent => return Err(refused(Errno::ENOENT)),
            WalkEnd::NotDirectory | WalkEnd::Symlink => return Err(refused(Errno::ENOTDIR)),
        };
    }
    Ok(at)
}

async fn describe(data: &DataPlane<'_>, id: InodeId, reply: EntryInfoReply) -> Result<Entry, DataError> {
    let map = data.map();
    let attr = reply.inode.attr;
    let directory = attr.kind == FileType::Directory;
    let layout = reply.inode.layout.as_ref();
    let inline = Some(reply.inode.inline_limit).filter(|&limit| limit > 0);
    let (mut parts, mut cursor) = (Vec::new(), 0);
    if directory && reply.inode.unsettled {
        let split =
            data.shard(id.home(), &meta::Parts { inode: id, lists: false, accesses: AccessTimes::Noatime }).await?;
        (parts, cursor) = (split.parts, split.cursor);
    }
    let mut stripes = Vec::new();
    for (stripe, &group) in (0u32..).zip(layout.filter(|_| inline.is_none()).map_or(&[][..], |layout| &layout.groups)) {
        stripes.push(locate(data, ObjectId { inode: id, stripe }, group).await);
    }
    let node = |shard| map.route_shard(shard).and_then(|route| node_ref(map, route.node));
    let part = |id: InodeId| Part { id: id.to_string(), shard: id.home(), metadata_node: node(id.home()) };
    Ok(Entry {
        id: id.to_string(),
        parent: reply.parent.map(|parent| parent.to_string()),
        kind: kind_name(attr.kind),
        size: attr.size,
        unsettled: reply.inode.unsettled && !directory,
        shard: reply.shard,
        metadata_node: node(reply.shard),
        pattern: "raid0",
        chunk_size: layout.map_or(reply.policy.chunk_size, |layout| layout.chunk_size),
        desired_targets: reply.policy.stripe_count,
        pool: reply.policy.pool,
        pool_name: map.pools.get(&reply.policy.pool).map(|pool| pool.name.clone()),
        policy_is_own: directory.then_some(reply.policy_is_own),
        placement: directory.then_some(reply.policy.directories),
        parts: parts.into_iter().map(part).collect(),
        split_percent: (cursor > 0).then_some((u128::from(cursor) * 100 / u128::from(HASH_END)) as u32),
        inline_limit: if directory { Some(reply.policy.inline_limit) } else { inline },
        flags: reply.inode.flags.names().collect(),
        stripes,
    })
}

/// A node that does not answer hides the place of the object, not the rest.
async fn locate(data: &DataPlane<'_>, object: ObjectId, group: GroupId) -> Stripe {
    let map = data.map();
    let target = map.groups.get(&group).and_then(|group| group.members.first()).copied();
    let node = target.and_then(|target| map.targets.get(&target)).and_then(|target| node_ref(map, target.node));
    let reply = data.object(group, object, &Place { object }).await.ok();
    Stripe {
        stripe: object.stripe,
        group,
        target,
        node,
        exists: reply.as_ref().is_some_and(|reply| reply.exists),
        place: reply.map(|reply| String::from_utf8_lossy(&reply.path.0).into_owned()),
    }
}

fn node_ref(map: &ClusterMap, id: NodeId) -> Option<NodeRef> {
    map.nodes.get(&id).map(|node| NodeRef { id, alias: node.alias.clone() })
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character device",
        FileType::BlockDevice => "block device",
    }
}

/// The components of a path from the root of the file system.
///
/// # Errors
/// For components that no entry can be called, `..` among them.
pub fn components(path: &str) -> Result<Vec<Name>, Errno> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".").map(|part| Name::new(part.as_bytes())).collect()
}

impl Policy {
    /// What is asked for is possible in some cluster.
    ///
    /// # Errors
    /// One line that names the bounds.
    pub fn validate(&self) -> Result<(), String> {
        let chunk_ok = |size: u32| size.is_power_of_two() && (CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&size);
        if let Some(size) = self.chunk_size.filter(|&size| !chunk_ok(size)) {
            return Err(format!("chunk size {size}: must be a power of two from 4KiB to 64MiB"));
        }
        if let Some(limit) = self.inline_limit.filter(|&limit| limit > INLINE_MAX) {
            return Err(format!("inline limit {limit}: must be 0 to 64KiB"));
        }
        let count = self.stripe_count.filter(|count| !(1..=STRIPE_COUNT_MAX).contains(count));
        count.map_or(Ok(()), |count| Err(format!("stripe count {count}: must be 1 to {STRIPE_COUNT_MAX}")))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::data::on_ring;

    #[test]
    fn paths_become_names() {
        let names = components("/a//b/./c/").expect("valid");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(components("/").expect("the root").is_empty());
        assert!(components("/a/../b").is_err());
    }

    #[test]
    fn a_shard_that_has_not_heard_of_a_pool_is_asked_again_when_it_has() {
        let errno = |errno| Err(DataError::Errno { op: "SetPolicy", errno });
        let (asked, caught_up) = (Cell::new(0), Cell::new(false));
        let ask = async |known: bool, other: Errno| {
            asked.set(asked.get() + 1);
            if known && caught_up.get() { Ok(()) } else { errno(other) }
        };
        let catch_up = async || {
            caught_up.set(true);
            Ok(())
        };
        let run = |known, other| {
            asked.set(0);
            caught_up.set(false);
            let work = unless_behind(async || ask(known, other).await, catch_up);
            let outcome = on_ring(work).expect("a ring");
            (outcome.map_err(|error| error.to_string()), asked.get(), caught_up.get())
        };
        assert_eq!(run(true, Errno::EINVAL), (Ok(()), 2, true));
        // What no map makes possible is refused as it is.
        assert_eq!(run(false, Errno::EINVAL), (Err("SetPolicy: invalid argument (EINVAL)".to_owned()), 2, true));
        assert_eq!(run(false, Errno::ENOTDIR), (Err("SetPolicy: not a directory (ENOTDIR)".to_owned()), 1, false));
    }

    #[test]
    fn impossible_striping_is_refused() {
        let policy = |chunk_size, stripe_count| Policy { chunk_size, stripe_count, ..Policy::default() }.validate();
        assert_eq!(policy(Some(1 << 20), Some(256)), Ok(()));
        assert_eq!(policy(None, None), Ok(()));
        assert!(policy(Some(1 << 27), None).is_err() && policy(Some(5000), None).is_err());
        assert!(policy(None, Some(0)).is_err() && policy(None, Some(257)).is_err());
        let inline = |limit| Policy { inline_limit: Some(limit), ..Policy::default() }.validate();
        assert!(inline(0).is_ok() && inline(INLINE_MAX).is_ok() && inline(INLINE_MAX + 1).is_err());
    }
}
