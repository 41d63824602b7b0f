//! Capacity of the whole file system.

use std::pin::pin;
use std::time::Duration;

use cluster::map::{ClusterMap, Group, NodeState, ServiceKind};
use types::error::Errno;
use types::id::{GroupId, ShardId};
use wire::v1::{meta, storage};

use crate::caller::Caller;
use crate::router::{Client, Destination};

/// So often a target that has not answered is looked up in the map: its node may be known to be offline by now.
const LOOK: Duration = Duration::from_millis(200);

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
    /// Asks the targets themselves, so that the answer is of now. Targets of nodes that are offline, or turn out to be so
    /// meanwhile, do not count, nor do those that their nodes run without.
    ///
    /// # Errors
    /// `EIO` where a target that is served does not answer within the bound.
    pub async fn statfs(&self, caller: &Caller<'_>) -> Result<StatFs, Errno> {
        let shards: Vec<ShardId> = self.shared.map().shards.keys().copied().collect();
        let counts =
            shards.iter().map(async |&shard| self.call(caller, Destination::Shard(shard), &meta::StatFs {}).await);
        let groups = storage_groups_served(&self.shared.map());
        let capacities = groups.iter().map(async |&group| self.capacity(caller, group).await);
        let mut sum = StatFs::default();
        for reply in ring::join_all(counts).await {
            sum.inodes += reply?.inodes;
        }
        for reply in ring::join_all(capacities).await {
            let Some(reply) = reply? else { continue };
            sum.total_bytes += reply.total_bytes;
            sum.free_bytes += reply.free_bytes;
            sum.free_inodes += reply.free_inodes;
        }
        Ok(sum)
    }

    /// `None` where it is not served any more.
    async fn capacity(&self, caller: &Caller<'_>, group: GroupId) -> Result<Option<storage::TargetStatReply>, Errno> {
        let request = storage::TargetStat { group };
        let mut answer = pin!(self.call(caller, Destination::Lane(group, 0), &request));
        loop {
            let answer = ring::timeout(LOOK, answer.as_mut()).await;
            let is_served = || self.shared.map().groups.get(&group).is_some_and(|of| is_served(&self.shared.map(), of));
            match answer {
                Ok(Ok(reply)) => return Ok(Some(reply)),
                _ if !is_served() => return Ok(None),
                Ok(Err(errno)) => return Err(errno),
                Err(_) => {}
            }
        }
    }
}

fn is_served(map: &ClusterMap, group: &Group) -> bool {
    let target = group.members.first().and_then(|target| map.targets.get(target));
    let node = target.filter(|target| !target.ports.is_empty()).and_then(|target| map.nodes.get(&target.node));
    node.is_some_and(|node| node.state != NodeState::Offline)
}

fn storage_groups_served(map: &ClusterMap) -> Vec<GroupId> {
    let groups = map.groups.values().filter(|group| group.kind == ServiceKind::Storage);
    groups.filter(|group| is_served(map, group)).map(|group| group.id).collect()
}

#[cfg(test)]
mod tests {
    use cluster::map::{CapacityClass, Node, Target, TargetState};
    use types::id::{Generation, NodeId, TargetId};

    use super::*;

    #[test]
    fn targets_that_are_not_served_are_not_asked() {
        let (kind, text) = (ServiceKind::Storage, String::new);
        let mut map = ClusterMap::empty(text());
        for (id, state) in [(1, NodeState::Online), (2, NodeState::Offline)] {
            let (id, uuid, alias, metrics) = (NodeId(id), text(), text(), text());
            map.nodes.insert(id, Node { id, uuid, kind, alias, state, rails: Vec::new(), metrics });
        }
        for (id, node, ports) in [(1, 1, vec![7]), (2, 1, vec![]), (3, 2, vec![7])] {
            let (id, group, node, uuid, path) = (TargetId(id), GroupId(id), NodeId(node), text(), text());
            let (state, class) = (TargetState::Good, CapacityClass::Normal);
            map.targets.insert(id, Target { id, uuid, node, kind, state, class, ports, path });
            map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![id] });
        }
        assert_eq!(storage_groups_served(&map), [GroupId(1)]);
    }
}
