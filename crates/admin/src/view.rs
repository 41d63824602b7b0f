//! The cluster as mgmtd sees it, turned into lists for administrators. Pure.

use cluster::capacity::{Capacities, Capacity};
use cluster::map::{CapacityClass, ClusterMap, Node, NodeState, ServiceKind, Target, TargetState};
use serde::Serialize;
use types::id::{Generation, GroupId, NodeId, PoolId, ShardId, TargetId};

/// The cluster map, and how full the targets said they are.
#[derive(Clone, Copy, Debug)]
pub struct Lists<'a> {
    pub map: &'a ClusterMap,
    pub capacities: &'a Capacities,
}

/// Of a target's file system, as last reported, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Room {
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub total_inodes: u64,
    pub free_inodes: u64,
}

/// One line of `weft node list`.
#[derive(Clone, Debug, Serialize)]
pub struct NodeInfo {
    pub id: NodeId,
    pub alias: String,
    pub kind: ServiceKind,
    pub state: NodeState,
    /// One per rail, best first.
    pub addresses: Vec<String>,
    /// `host:port` of its metrics and log-level endpoint, or empty.
    pub metrics: String,
    pub targets: Vec<TargetId>,
}

/// One line of `weft target list`.
#[derive(Clone, Debug, Serialize)]
pub struct TargetInfo {
    pub id: TargetId,
    pub kind: ServiceKind,
    pub node: NodeId,
    pub node_alias: String,
    pub node_state: NodeState,
    pub state: TargetState,
    /// Its node runs without it, since it could not open it.
    pub left_out: bool,
    pub class: CapacityClass,
    pub group: Option<GroupId>,
    pub generation: Option<Generation>,
    /// Of storage targets.
    pub pool: Option<String>,
    /// Of metadata targets: the shards that they run.
    pub shards: Vec<ShardId>,
    /// On the node's host.
    pub path: String,
    /// `None` until it has reported.
    pub room: Option<Room>,
}

/// One line of `weft pool list`.
#[derive(Clone, Debug, Serialize)]
pub struct PoolInfo {
    pub id: PoolId,
    pub name: String,
    pub groups: Vec<GroupId>,
    pub room: Room,
}

/// What `weft df` shows.
#[derive(Clone, Debug, Serialize)]
pub struct Space {
    pub targets: Vec<TargetInfo>,
    pub metadata: Room,
    pub storage: Room,
}

impl Lists<'_> {
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.map.nodes.values().map(|node| self.node(node)).collect()
    }

    fn node(&self, node: &Node) -> NodeInfo {
        let targets = self.map.targets.values().filter(|target| target.node == node.id);
        NodeInfo {
            id: node.id,
            alias: node.alias.clone(),
            kind: node.kind,
            state: node.state,
            addresses: node.rails.iter().map(|rail| rail.address.to_string()).collect(),
            metrics: node.metrics.clone(),
            targets: targets.map(|target| target.id).collect(),
        }
    }

    #[must_use]
    pub fn targets(&self) -> Vec<TargetInfo> {
        self.map.targets.values().map(|target| self.target(target)).collect()
    }

    fn target(&self, target: &Target) -> TargetInfo {
        let group = self.map.groups.values().find(|group| group.members.contains(&target.id));
        let in_group = |id: &GroupId| group.is_some_and(|group| group.id == *id);
        let pool = self.map.pools.values().find(|pool| pool.groups.iter().any(in_group));
        let node = self.map.nodes.get(&target.node);
        TargetInfo {
            id: target.id,
            kind: target.kind,
            node: target.node,
            node_alias: node.map(|node| node.alias.clone()).unwrap_or_default(),
            node_state: node.map_or(NodeState::Offline, |node| node.state),
            state: target.state,
            left_out: group.is_some_and(|group| self.map.is_left_out(group.id)),
            class: target.class,
            group: group.map(|group| group.id),
            generation: group.map(|group| group.generation),
            pool: pool.map(|pool| pool.name.clone()),
            shards: self.map.shards.iter().filter(|(_, id)| in_group(id)).map(|(&shard, _)| shard).collect(),
            path: target.path.clone(),
            room: self.capacities.get(&target.id).map(room),
        }
    }

    #[must_use]
    pub fn pools(&self) -> Vec<PoolInfo> {
        let pool = |pool: &cluster::map::Pool| {
            // A group is as large as its smallest member; today each has one.
            let members = pool.groups.iter().filter_map(|group| self.map.groups.get(group)?.members.first());
            let room = members.filter_map(|target| self.capacities.get(target)).map(room).fold(Room::default(), add);
            PoolInfo { id: pool.id, name: pool.name.clone(), groups: pool.groups.clone(), room }
        };
        self.map.pools.values().map(pool).collect()
    }

    /// The targets' space and its sums. Targets that share a file system each report all of it, so the sums count it as
    /// often.
    #[must_use]
    pub fn space(&self) -> Space {
        let targets = self.targets();
        let sum = |kind: ServiceKind| {
            let of_kind = targets.iter().filter(|target| target.kind == kind);
            of_kind.filter_map(|target| target.room).fold(Room::default(), add)
        };
        Space { metadata: sum(ServiceKind::Metadata), storage: sum(ServiceKind::Storage), targets }
    }
}

fn room(capacity: &Capacity) -> Room {
    let Capacity { total_bytes, free_bytes, total_inodes, free_inodes } = *capacity;
    Room { total_bytes, free_bytes, total_inodes, free_inodes }
}

fn add(sum: Room, one: Room) -> Room {
    Room {
        total_bytes: sum.total_bytes.saturating_add(one.total_bytes),
        free_bytes: sum.free_bytes.saturating_add(one.free_bytes),
        total_inodes: sum.total_inodes.saturating_add(one.total_inodes),
        free_inodes: sum.free_inodes.saturating_add(one.free_inodes),
    }
}

#[cfg(test)]
mod tests {
    use cluster::map::{Group, Pool};

    use super::*;

    fn cluster() -> (ClusterMap, Capacities) {
        let mut map = ClusterMap::empty("c".to_owned());
        let node = |id, kind| Node {
            id: NodeId(id),
            uuid: String::new(),
            kind,
            alias: format!("n{id}"),
            state: NodeState::Online,
            rails: Vec::new(),
            metrics: String::new(),
        };
        let target = |id, node, kind| Target {
            id: TargetId(id),
            uuid: String::new(),
            node: NodeId(node),
            kind,
            state: TargetState::Good,
            class: CapacityClass::Normal,
            ports: vec![1],
            path: format!("/t{id}"),
        };
        let group = |id, kind| Group { id: GroupId(id), kind, generation: Generation(1), members: vec![TargetId(id)] };
        for (id, kind) in [(1, ServiceKind::Metadata), (2, ServiceKind::Storage)] {
            map.nodes.insert(NodeId(id), node(id, kind));
        }
        for (id, of, kind) in
            [(1, 1, ServiceKind::Metadata), (2, 2, ServiceKind::Storage), (3, 2, ServiceKind::Storage)]
        {
            map.targets.insert(TargetId(id), target(id, of, kind));
            map.groups.insert(GroupId(id), group(id, kind));
        }
        map.targets.get_mut(&TargetId(3)).expect("there").ports.clear();
        let pool = Pool { id: PoolId::DEFAULT, name: "default".into(), groups: vec![GroupId(2), GroupId(3)] };
        map.pools.insert(pool.id, pool);
        map.shards.insert(ShardId(0), GroupId(1));
        let capacity = |bytes| Capacity { total_bytes: bytes, free_bytes: bytes / 2, total_inodes: 8, free_inodes: 4 };
        let capacities = [(TargetId(1), capacity(100)), (TargetId(2), capacity(1000)), (TargetId(3), capacity(1000))];
        (map, capacities.into_iter().collect())
    }

    #[test]
    fn targets_know_their_node_group_pool_and_shards() {
        let (map, capacities) = cluster();
        let lists = Lists { map: &map, capacities: &capacities };
        let targets = lists.targets();
        assert_eq!((targets[0].shards.as_slice(), targets[0].pool.as_deref()), (&[ShardId(0)][..], None));
        assert_eq!((targets[2].group, targets[2].pool.as_deref()), (Some(GroupId(3)), Some("default")));
        assert_eq!(targets[2].node_alias, "n2");
        assert_eq!(lists.nodes()[1].targets, [TargetId(2), TargetId(3)]);
        assert_eq!([0, 1, 2].map(|index| targets[index].left_out), [false, false, true]);
    }

    #[test]
    fn space_is_summed_by_kind_and_pool() {
        let (map, capacities) = cluster();
        let lists = Lists { map: &map, capacities: &capacities };
        let space = lists.space();
        assert_eq!((space.metadata.total_bytes, space.storage.total_bytes), (100, 2000));
        assert_eq!(lists.pools()[0].room.free_bytes, 1000);
    }
}
