//! Capacity of the whole file system.

use cluster::map::{NodeState, ServiceKind};
use types::error::Errno;
use types::id::{GroupId, ShardId};
use wire::v1::{meta, storage};

use crate::caller::Caller;
use crate::router::{Client, Destination};

/// What `df` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Bytes of all storage targets that answer.
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// More that fit: bounded by the inodes that the targets' file systems can still make.
    pub free_inodes: u64,
}

impl Client {
    /// Asks the targets themselves, so that the answer is of now. Targets of nodes that are offline do not count.
    ///
    /// # Errors
    /// `EIO` where a target that is online does not answer within the bound.
    pub async fn statfs(&self, caller: &Caller<'_>) -> Result<StatFs, Errno> {
        let shards: Vec<ShardId> = self.shared.map().shards.keys().copied().collect();
        let counts =
            shards.iter().map(async |&shard| self.call(caller, Destination::Shard(shard), &meta::StatFs {}).await);
        let groups = self.storage_groups_online();
        let capacities = groups
            .iter()
            .map(async |&group| self.call(caller, Destination::Lane(group, 0), &storage::TargetStat { group }).await);
        let mut sum = StatFs::default();
        for reply in ring::join_all(counts).await {
            sum.inodes += reply?.inodes;
        }
        for reply in ring::join_all(capacities).await {
            let reply = reply?;
            sum.total_bytes += reply.total_bytes;
            sum.free_bytes += reply.free_bytes;
            sum.free_inodes += reply.free_inodes;
        }
        Ok(sum)
    }

    fn storage_groups_online(&self) -> Vec<GroupId> {
        let map = self.shared.map();
        let online = |group: &cluster::map::Group| {
            let target = group.members.first().and_then(|target| map.targets.get(target));
            let node = target.and_then(|target| map.nodes.get(&target.node));
            node.is_some_and(|node| node.state != NodeState::Offline)
        };
        map.groups
            .values()
            .filter(|group| group.kind == ServiceKind::Storage && online(group))
            .map(|group| group.id)
            .collect()
    }
}
