//! What placement may choose from, out of the cluster map and the targets' free space.

use cluster::capacity::Capacities;
use cluster::map::{CapacityClass, ClusterMap, Group, NodeState, Pool, TargetState};
use namespace::view::{GroupSpace, PoolSpace, SpaceClass};
use types::id::ShardId;

/// All pools, each with the groups that can take new files now. Where a pool has none because its nodes are away, those
/// that were good count: they come back, and the clients' writes wait for them.
pub(crate) fn pools(map: &ClusterMap, capacities: &Capacities) -> Vec<PoolSpace> {
    map.pools.values().map(|pool| pool_space(map, capacities, pool)).collect()
}

fn pool_space(map: &ClusterMap, capacities: &Capacities, pool: &Pool) -> PoolSpace {
    let usable = |away: bool| {
        let groups = pool.groups.iter().filter_map(|id| map.groups.get(id));
        groups.filter_map(|group| group_space(map, capacities, group, away)).collect::<Vec<_>>()
    };
    let online = usable(false);
    let groups = if online.is_empty() { usable(true) } else { online };
    PoolSpace { pool: pool.id, groups }
}

/// A group is as full as its fullest member, and takes nothing new while a member is out of order, or its node runs without
/// it. `away`: nor while one of its nodes is not online, unless this is set.
fn group_space(map: &ClusterMap, capacities: &Capacities, group: &Group, away: bool) -> Option<GroupSpace> {
    let mut space = GroupSpace { group: group.id, class: SpaceClass::Normal, free_bytes: u64::MAX };
    for member in &group.members {
        let target = map.targets.get(member)?;
        let online = map.nodes.get(&target.node)?.state == NodeState::Online;
        if !(online || away) || target.state != TargetState::Good || target.ports.is_empty() {
            return None;
        }
        space.class = space.class.max(class(target.class));
        // A target that has not reported yet gets the least weight.
        space.free_bytes = space.free_bytes.min(capacities.get(member).map_or(0, |capacity| capacity.free_bytes));
    }
    (!group.members.is_empty()).then_some(space)
}

fn class(class: CapacityClass) -> SpaceClass {
    match class {
        CapacityClass::Normal => SpaceClass::Normal,
        CapacityClass::Low => SpaceClass::Low,
        CapacityClass::Emergency => SpaceClass::Emergency,
    }
}

/// All shards, and those that get new directories: whose nodes seem to be there; of these, where there are some, those whose
/// targets are good; of these those with space, or else, where there are some, those that are not nearly full.
pub(crate) fn shards(map: &ClusterMap) -> (Vec<ShardId>, Vec<ShardId>) {
    let targets = |shard| {
        let group = map.route_shard(shard).and_then(|route| map.groups.get(&route.group));
        let members = group.into_iter().flat_map(|group| &group.members);
        members.filter_map(|member| map.targets.get(member))
    };
    let class = |shard| targets(shard).map(|target| class(target.class)).max();
    let is_well = |shard| targets(shard).all(|target| target.state == TargetState::Good);
    let is_online = |shard| {
        let node = map.route_shard(shard).and_then(|route| map.nodes.get(&route.node));
        node.is_some_and(|node| node.state == NodeState::Online)
    };
    let all: Vec<ShardId> = map.shards.keys().copied().collect();
    let online: Vec<ShardId> = all.iter().copied().filter(|&shard| is_online(shard)).collect();
    let well: Vec<ShardId> = online.iter().copied().filter(|&shard| is_well(shard)).collect();
    let online = if well.is_empty() { online } else { well };
    let least = online.iter().map(|&shard| class(shard)).min();
    let good = online.into_iter().filter(|&shard| Some(class(shard)) == least).collect();
    (all, good)
}

#[cfg(test)]
mod tests {
    use cluster::capacity::Capacity;
    use types::id::{GroupId, NodeId, PoolId, TargetId};

    use super::*;
    use crate::local::{TestTarget, storage_map};

    #[test]
    fn groups_with_a_member_out_of_order_are_left_out() {
        let targets = [1, 2, 3, 4].map(|id| TestTarget { id: TargetId(id), port: 1 });
        let mut map = storage_map(&targets);
        let capacity = |free_bytes| Capacity { total_bytes: 100, free_bytes, total_inodes: 0, free_inodes: 0 };
        let capacities: Capacities = [(TargetId(1), capacity(10)), (TargetId(3), capacity(30))].into();
        map.targets.get_mut(&TargetId(2)).expect("there").state = TargetState::Bad;
        map.targets.get_mut(&TargetId(3)).expect("there").class = CapacityClass::Low;
        map.targets.get_mut(&TargetId(4)).expect("there").ports.clear();
        let found = pools(&map, &capacities);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pool, PoolId::DEFAULT);
        let normal = GroupSpace { group: GroupId(1), class: SpaceClass::Normal, free_bytes: 10 };
        let low = GroupSpace { group: GroupId(3), class: SpaceClass::Low, free_bytes: 30 };
        assert_eq!(found[0].groups, [normal, low]);
    }

    #[test]
    fn nodes_that_are_away_are_chosen_only_where_all_are() {
        let mut map = storage_map(&[1, 2].map(|id| TestTarget { id: TargetId(id), port: 1 }));
        let chosen = |map: &ClusterMap| {
            let found = pools(map, &Capacities::new());
            found[0].groups.iter().map(|space| space.group.0).collect::<Vec<_>>()
        };
        map.nodes.get_mut(&NodeId(1)).expect("there").state = NodeState::ProbablyOffline;
        assert_eq!(chosen(&map), [2]);
        map.nodes.get_mut(&NodeId(2)).expect("there").state = NodeState::Offline;
        assert_eq!(chosen(&map), [1, 2]);
    }

    #[test]
    fn shards_whose_targets_are_bad_get_new_directories_only_where_all_are() {
        let mut map = storage_map(&[1, 2].map(|id| TestTarget { id: TargetId(id), port: 1 }));
        map.shards = [(ShardId(0), GroupId(1)), (ShardId(1), GroupId(2))].into();
        let good = |map: &ClusterMap| shards(map).1.iter().map(|shard| shard.0).collect::<Vec<_>>();
        map.targets.get_mut(&TargetId(1)).expect("there").state = TargetState::Bad;
        assert_eq!(good(&map), [1]);
        map.targets.get_mut(&TargetId(2)).expect("there").class = CapacityClass::Emergency;
        assert_eq!(good(&map), [1], "it takes something");
        map.targets.get_mut(&TargetId(2)).expect("there").state = TargetState::Bad;
        assert_eq!(good(&map), [0]);
        map.targets.get_mut(&TargetId(2)).expect("there").class = CapacityClass::Normal;
        assert_eq!(good(&map), [0, 1]);
    }

    #[test]
    fn shards_with_less_space_get_new_directories_only_where_all_have_less() {
        let mut map = storage_map(&[1, 2].map(|id| TestTarget { id: TargetId(id), port: 1 }));
        map.shards = [(ShardId(0), GroupId(1)), (ShardId(1), GroupId(2))].into();
        let good = |map: &ClusterMap| shards(map).1.iter().map(|shard| shard.0).collect::<Vec<_>>();
        assert_eq!(good(&map), [0, 1]);
        map.targets.get_mut(&TargetId(1)).expect("there").class = CapacityClass::Low;
        assert_eq!(good(&map), [1]);
        map.targets.get_mut(&TargetId(2)).expect("there").class = CapacityClass::Low;
        assert_eq!(good(&map), [0, 1]);
        map.targets.get_mut(&TargetId(1)).expect("there").class = CapacityClass::Emergency;
        assert_eq!(good(&map), [1]);
        map.targets.get_mut(&TargetId(2)).expect("there").class = CapacityClass::Emergency;
        assert_eq!(good(&map), [0, 1]);
        map.nodes.get_mut(&NodeId(2)).expect("there").state = NodeState::Offline;
        assert_eq!(shards(&map), (vec![ShardId(0), ShardId(1)], vec![ShardId(0)]));
    }
}
