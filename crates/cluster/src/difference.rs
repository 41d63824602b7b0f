//! What differs between two maps: who knows the one is told of the other in few words, however large they are.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use types::id::{Epoch, GroupId, NodeId, PoolId, ShardId, TargetId};

use crate::map::{ClusterMap, Group, Node, Pool, Target};

/// The way from one map to another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Of the map that it begins at.
    pub since: Epoch,
    /// Of the map that it comes to.
    pub epoch: Epoch,
    cluster: String,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    nodes: Changes<NodeId, Node>,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    targets: Changes<TargetId, Target>,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    groups: Changes<GroupId, Group>,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pools: Changes<PoolId, Pool>,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    shards: Changes<ShardId, GroupId>,
    /// All of them, where they are others than before: they are few.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_groups: Option<BTreeSet<GroupId>>,
}

/// Of the things of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Changes<K: Ord, V> {
    put: BTreeMap<K, V>,
    gone: BTreeSet<K>,
}

impl Difference {
    #[must_use]
    pub fn between(before: &ClusterMap, after: &ClusterMap) -> Self {
        let deleted = (before.deleted_groups != after.deleted_groups).then(|| after.deleted_groups.clone());
        Self {
            since: before.epoch,
            epoch: after.epoch,
            cluster: after.cluster.clone(),
            nodes: Changes::between(&before.nodes, &after.nodes),
            targets: Changes::between(&before.targets, &after.targets),
            groups: Changes::between(&before.groups, &after.groups),
            pools: Changes::between(&before.pools, &after.pools),
            shards: Changes::between(&before.shards, &after.shards),
            deleted_groups: deleted,
        }
    }

    /// The map that it comes to from `before`; `None` where it begins at a map of another epoch. That it begins at this very
    /// map, the caller has to know.
    #[must_use]
    pub fn apply(self, before: &ClusterMap) -> Option<ClusterMap> {
        if self.since != before.epoch {
            return None;
        }
        let mut map = ClusterMap { cluster: self.cluster, epoch: self.epoch, ..before.clone() };
        self.nodes.apply(&mut map.nodes);
        self.targets.apply(&mut map.targets);
        self.groups.apply(&mut map.groups);
        self.pools.apply(&mut map.pools);
        self.shards.apply(&mut map.shards);
        if let Some(deleted) = self.deleted_groups {
            map.deleted_groups = deleted;
        }
        Some(map)
    }
}

impl<K: Ord + Copy, V: Clone + PartialEq> Changes<K, V> {
    fn between(before: &BTreeMap<K, V>, after: &BTreeMap<K, V>) -> Self {
        let is_new = |(id, thing): &(&K, &V)| before.get(id) != Some(thing);
        Self {
            put: after.iter().filter(is_new).map(|(id, thing)| (*id, thing.clone())).collect(),
            gone: before.keys().filter(|id| !after.contains_key(id)).copied().collect(),
        }
    }

    fn apply(self, things: &mut BTreeMap<K, V>) {
        things.retain(|id, _| !self.gone.contains(id));
        things.extend(self.put);
    }
}

impl<K: Ord, V> Changes<K, V> {
    fn is_empty(&self) -> bool {
        self.put.is_empty() && self.gone.is_empty()
    }
}

impl<K: Ord, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self { put: BTreeMap::new(), gone: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::prelude::*;
    use types::id::Generation;

    use super::*;
    use crate::map::{CapacityClass, NodeState, ServiceKind, TargetState};

    const KIND: ServiceKind = ServiceKind::Storage;

    fn node(id: u32, ports: u16) -> Node {
        let state = [NodeState::Online, NodeState::ProbablyOffline, NodeState::Offline][usize::from(ports % 3)];
        let (uuid, alias, metrics) = (format!("u{id}"), format!("a{ports}"), String::new());
        Node { id: NodeId(id), uuid, kind: KIND, alias, state, rails: Vec::new(), metrics }
    }

    fn target(id: u32, port: u16) -> Target {
        let (state, class) = (TargetState::Good, CapacityClass::Normal);
        let (uuid, path, ports) = (format!("t{id}"), "/".to_owned(), vec![port]);
        Target { id: TargetId(id), uuid, node: NodeId(1), kind: KIND, state, class, ports, path }
    }

    fn group(id: u32, generation: u16) -> Group {
        let generation = Generation(generation.into());
        Group { id: GroupId(id), kind: KIND, generation, members: vec![TargetId(id)] }
    }

    fn pool(id: u32, name: u16) -> Pool {
        Pool { id: PoolId(id), name: name.to_string(), groups: vec![GroupId(name.into())] }
    }

    /// Few ids and few values, so that much stays the same from one map to the next, and much comes again.
    fn map() -> impl Strategy<Value = ClusterMap> {
        let things = || btree_map(0..4_u32, 0..3_u16, 0..4);
        let all = (0..4_u64, things(), things(), things(), things(), things(), btree_set(0..3_u32, 0..3));
        all.prop_map(|(epoch, nodes, targets, groups, pools, shards, deleted)| ClusterMap {
            cluster: "c".to_owned(),
            epoch: Epoch(epoch),
            nodes: nodes.into_iter().map(|(id, value)| (NodeId(id), node(id, value))).collect(),
            targets: targets.into_iter().map(|(id, value)| (TargetId(id), target(id, value))).collect(),
            groups: groups.into_iter().map(|(id, value)| (GroupId(id), group(id, value))).collect(),
            pools: pools.into_iter().map(|(id, value)| (PoolId(id), pool(id, value))).collect(),
            shards: shards.into_iter().map(|(id, value)| (ShardId(id as u16), GroupId(value.into()))).collect(),
            deleted_groups: deleted.into_iter().map(GroupId).collect(),
        })
    }

    proptest! {
        #[test]
        fn any_maps_follow_from_each_other(maps in vec(map(), 1..8)) {
            let mut known = ClusterMap::empty(String::new());
            for map in maps {
                let sent = serde_json::to_vec(&Difference::between(&known, &map)).expect("plain values");
                let difference: Difference = serde_json::from_slice(&sent).expect("its own encoding");
                let elsewhere = ClusterMap { epoch: Epoch(known.epoch.0 + 1), ..known.clone() };
                prop_assert_eq!(difference.clone().apply(&elsewhere), None);
                known = difference.apply(&known).expect("it begins there");
                prop_assert_eq!(&known, &map);
            }
        }
    }

    #[test]
    fn what_stays_is_not_told() {
        let mut before = ClusterMap::empty("c".to_owned());
        before.nodes = (0..500).map(|id| (NodeId(id), node(id, 0))).collect();
        before.targets = (0..2000).map(|id| (TargetId(id), target(id, 7))).collect();
        let mut after = before.clone();
        after.epoch = Epoch(1);
        after.nodes.insert(NodeId(7), node(7, 1));
        let told = serde_json::to_vec(&Difference::between(&before, &after)).expect("plain values");
        assert!(told.len() < 300, "{} bytes", told.len());
    }
}
