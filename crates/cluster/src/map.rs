//! The cluster map: everything that all services and clients must agree on, versioned by epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use types::id::{Epoch, Generation, GroupId, NodeId, ObjectId, PoolId, ShardId, TargetId};

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterMap {
    /// UUID given to the cluster at its first start; a service that belongs to another one is refused.
    pub cluster: String,
    pub epoch: Epoch,
    pub nodes: BTreeMap<NodeId, Node>,
    pub targets: BTreeMap<TargetId, Target>,
    pub groups: BTreeMap<GroupId, Group>,
    pub pools: BTreeMap<PoolId, Pool>,
    /// Which metadata group runs which shard.
    pub shards: BTreeMap<ShardId, GroupId>,
    /// Groups that there were once: what is still to be done on them never will be. One that is missing here and above is not
    /// known yet, or this map was made of an old store.
    pub deleted_groups: BTreeSet<GroupId>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceKind {
    Metadata,
    Storage,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    /// Made by the node at its first start and kept on its disk.
    pub uuid: String,
    pub kind: ServiceKind,
    /// Name for people; unique in the cluster.
    pub alias: String,
    pub state: NodeState,
    /// Where it can be reached, best first.
    pub rails: Vec<Rail>,
    /// `host:port` of its metrics and log-level endpoint; empty when it has none.
    pub metrics: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    Online,
    ProbablyOffline,
    Offline,
}

/// One network interface of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rail {
    pub interface: String,
    pub address: IpAddr,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    pub id: TargetId,
    pub uuid: String,
    pub node: NodeId,
    pub kind: ServiceKind,
    pub state: TargetState,
    pub class: CapacityClass,
    /// Ports of the threads that serve it: a storage target's lanes in order, a metadata target's one shard thread.
    pub ports: Vec<u16>,
    /// Its directory on the node's host, for people.
    pub path: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetState {
    Good,
    NeedsResync,
    Bad,
}

/// How full a target is: new files avoid `Low`, and use `Emergency` only where nothing else is left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityClass {
    Normal,
    Low,
    Emergency,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Group {
    pub id: GroupId,
    pub kind: ServiceKind,
    pub generation: Generation,
    /// `members[0]` is the primary.
    pub members: Vec<TargetId>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool {
    pub id: PoolId,
    pub name: String,
    /// Storage groups only.
    pub groups: Vec<GroupId>,
}

/// Where to send a request for one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    pub group: GroupId,
    pub generation: Generation,
    pub target: TargetId,
    pub node: NodeId,
    /// The node's: others may answer at its addresses.
    pub uuid: String,
    /// One address per rail of the node, best first.
    pub addresses: Vec<SocketAddr>,
}

impl ClusterMap {
    #[must_use]
    pub fn empty(cluster: String) -> Self {
        Self {
            cluster,
            epoch: Epoch(0),
            nodes: BTreeMap::new(),
            targets: BTreeMap::new(),
            groups: BTreeMap::new(),
            pools: BTreeMap::new(),
            shards: BTreeMap::new(),
            deleted_groups: BTreeSet::new(),
        }
    }

    /// The primary's thread that serves shard `shard`, or `None` while nothing is registered for it.
    #[must_use]
    pub fn route_shard(&self, shard: ShardId) -> Option<Route> {
        self.route(*self.shards.get(&shard)?, |_| 0)
    }

    /// The primary's lane that owns `object` in storage group `group`.
    #[must_use]
    pub fn route_object(&self, group: GroupId, object: ObjectId) -> Option<Route> {
        self.route(group, |lanes| object.lane(lanes))
    }

    /// Any thread of the primary of `group`: for requests that concern the whole target. `lane` counts modulo the
    /// number of lanes.
    #[must_use]
    pub fn route_lane(&self, group: GroupId, lane: usize) -> Option<Route> {
        self.route(group, |lanes| lane % lanes)
    }

    /// A target that a storage node serves: all of them have its lanes. None of a node of another kind.
    #[must_use]
    pub fn served_by(&self, node: NodeId) -> Option<&Target> {
        let is_its = |target: &&Target| target.node == node && target.kind == ServiceKind::Storage;
        self.targets.values().filter(is_its).find(|target| !target.ports.is_empty())
    }

    /// Where the threads of a storage node listen: of each its addresses, one per rail of the node, best first. None of a
    /// node that serves no target, or of another kind.
    #[must_use]
    pub fn lanes(&self, node: NodeId) -> Vec<Vec<SocketAddr>> {
        let (Some(target), Some(node)) = (self.served_by(node), self.nodes.get(&node)) else {
            return Vec::new();
        };
        lanes_of(target, node)
    }

    /// The [`Self::lanes`] of all nodes that have some, in one pass.
    #[must_use]
    pub fn all_lanes(&self) -> BTreeMap<NodeId, Vec<Vec<SocketAddr>>> {
        let mut lanes = BTreeMap::new();
        for target in self.targets.values().filter(|target| target.kind == ServiceKind::Storage) {
            if let Some(node) = self.nodes.get(&target.node).filter(|_| !target.ports.is_empty()) {
                lanes.entry(node.id).or_insert_with(|| lanes_of(target, node));
            }
        }
        lanes
    }

    /// The node of the group's primary runs without it: it could not open it.
    #[must_use]
    pub fn is_left_out(&self, group: GroupId) -> bool {
        let primary = self.groups.get(&group).and_then(|group| self.targets.get(group.members.first()?));
        primary.is_some_and(|target| {
            let node = self.nodes.get(&target.node);
            target.ports.is_empty() && node.is_some_and(|node| node.state == NodeState::Online)
        })
    }

    /// The group's primary, where it cannot be asked: its node is offline, or runs without it.
    #[must_use]
    pub fn away(&self, group: GroupId) -> Option<TargetId> {
        let primary = self.targets.get(self.groups.get(&group)?.members.first()?)?;
        self.is_away(primary).then_some(primary.id)
    }

    pub(crate) fn is_away(&self, target: &Target) -> bool {
        let node = self.nodes.get(&target.node);
        target.ports.is_empty() || node.is_none_or(|node| node.state == NodeState::Offline)
    }

    fn route(&self, group: GroupId, choose: impl FnOnce(usize) -> usize) -> Option<Route> {
        let group = self.groups.get(&group)?;
        let target = self.targets.get(group.members.first()?)?;
        let node = self.nodes.get(&target.node)?;
        if target.ports.is_empty() {
            return None;
        }
        let port = *target.ports.get(choose(target.ports.len()))?;
        let addresses = node.rails.iter().map(|rail| SocketAddr::new(rail.address, port)).collect();
        Some(Route {
            group: group.id,
            generation: group.generation,
            target: target.id,
            node: node.id,
            uuid: node.uuid.clone(),
            addresses,
        })
    }
}

fn lanes_of(target: &Target, node: &Node) -> Vec<Vec<SocketAddr>> {
    let addresses = |&port: &u16| node.rails.iter().map(|rail| SocketAddr::new(rail.address, port)).collect();
    target.ports.iter().map(addresses).collect()
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "metadata",
            Self::Storage => "storage",
        })
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Online => "online",
            Self::ProbablyOffline => "probably offline",
            Self::Offline => "offline",
        })
    }
}

impl fmt::Display for TargetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Good => "good",
            Self::NeedsResync => "needs-resync",
            Self::Bad => "bad",
        })
    }
}

impl fmt::Display for CapacityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Emergency => "emergency",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lanes_of_all_nodes_are_those_of_each() {
        let mut map = ClusterMap::empty(String::new());
        let rails: Vec<Rail> =
            [1, 2].map(|n| Rail { interface: String::new(), address: [10, 0, 0, n].into() }).to_vec();
        for (node, kind) in [(1, ServiceKind::Storage), (2, ServiceKind::Metadata), (3, ServiceKind::Storage)] {
            let (id, state, rails) = (NodeId(node), NodeState::Online, rails.clone());
            let (uuid, alias, metrics) = (String::new(), String::new(), String::new());
            map.nodes.insert(id, Node { id, uuid, kind, alias, state, rails, metrics });
        }
        // The first of node 1 could not be opened; node 4 is none of the cluster any more.
        for (target, node, ports) in
            [(1, 1, 0..0), (2, 1, 5..7), (3, 1, 5..7), (4, 2, 8..9), (5, 4, 5..6), (6, 3, 0..0)]
        {
            let (id, node) = (TargetId(target), NodeId(node));
            let kind = map.nodes.get(&node).map_or(ServiceKind::Storage, |node| node.kind);
            let (state, class, ports) = (TargetState::Good, CapacityClass::Normal, ports.collect());
            let (uuid, path) = (String::new(), String::new());
            map.targets.insert(id, Target { id, uuid, node, kind, state, class, ports, path });
        }
        let of_each = map.nodes.keys().map(|&node| (node, map.lanes(node))).filter(|(_, lanes)| !lanes.is_empty());
        assert_eq!(map.all_lanes(), of_each.collect());
        assert_eq!(map.all_lanes().keys().copied().collect::<Vec<_>>(), [NodeId(1)]);
    }
}
