//! What a thread knows of the way to a group that it has asked something.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use cluster::map::{ClusterMap, Route};
use net::{Connection, Peer, To, WeakConnection};
use types::id::{GroupId, NodeId, TargetId};

use crate::making::Making;
use crate::router::Destination;

/// The way to one group.
pub(super) struct GroupRoute {
    pub(super) to: Cell<To>,
    pub(super) node: NodeId,
    target: TargetId,
    /// Each is made when it is asked first, and kept from map to map: what is under way on their connections must be known to
    /// those who ask again.
    pub(super) lanes: Vec<OnceCell<Rc<LaneRoute>>>,
}

/// Each target has its own, also where others of its node have the same threads: what is given up at a disk that hangs ends
/// its connection, and the next one is given out only when the disk has answered.
pub(super) struct LaneRoute {
    pub(super) peer: Peer,
    /// For a shard: connected, with the session opened on it. The peer has it, as long as it lives and is used.
    pub(super) ready: RefCell<Option<WeakConnection>>,
    pub(super) making: Making,
    /// The version of some object of the lane that came last; 0: none. None that the lane gives out later is lower.
    pub(super) version: Cell<u64>,
}

impl GroupRoute {
    /// `None` where the map has no way to it. `old`: by the map before.
    pub(super) fn new(map: &ClusterMap, group: GroupId, old: Option<&GroupRoute>) -> Option<Self> {
        let (first, ports) = place(map, group)?;
        let old = old.filter(|old| old.target == first.target);
        let taken_over = |number: usize| {
            let lane = old.and_then(|old| old.lanes.get(number)?.get()).cloned();
            let lane = lane.filter(|lane| lane.peer.is_of_node(&first.uuid));
            if let (Some(lane), Some(route)) = (&lane, map.route_lane(group, number)) {
                lane.peer.set_addresses(route.addresses);
            }
            lane.map_or_else(OnceCell::new, OnceCell::from)
        };
        Some(Self {
            to: Cell::new(To { group, generation: first.generation, epoch: map.epoch }),
            node: first.node,
            target: first.target,
            lanes: (0..ports.len()).map(taken_over).collect(),
        })
    }

    pub(super) fn number(&self, destination: Destination) -> usize {
        match destination {
            Destination::Shard(_) => 0,
            Destination::Object(_, object) => object.lane(self.lanes.len()),
            Destination::Lane(_, lane) => lane % self.lanes.len(),
        }
    }

    /// Where it was asked something.
    pub(super) fn made(&self, destination: Destination) -> Option<&LaneRoute> {
        self.lanes[self.number(destination)].get().map(Rc::as_ref)
    }
}

/// All that the way to a group depends on: that to its first thread, and the ports of all.
pub(super) fn place(map: &ClusterMap, group: GroupId) -> Option<(Route, &[u16])> {
    let first = map.route_lane(group, 0)?;
    let ports = &map.targets.get(&first.target)?.ports;
    Some((first, ports))
}

impl LaneRoute {
    pub(super) fn ready(&self) -> Option<Connection> {
        let ready = self.ready.borrow().as_ref().and_then(WeakConnection::upgrade);
        ready.filter(|connection| !connection.is_closed())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Arc;

    use cluster::map::{CapacityClass, Group, Node, NodeState, Rail, ServiceKind, Target, TargetState};
    use types::id::{Epoch, Generation};

    use super::*;
    use crate::test_client;

    const NODE: NodeId = NodeId(1);

    /// Groups from 1 on, of a target each, of a node with eight threads.
    fn map_of(groups: u32, epoch: u64) -> ClusterMap {
        let mut map = ClusterMap::empty(String::new());
        map.epoch = Epoch(epoch);
        let rail = Rail { interface: "lo".into(), address: IpAddr::from([127, 0, 0, 1]) };
        let (kind, alias, state) = (ServiceKind::Storage, "one".to_owned(), NodeState::Online);
        let (uuid, rails, metrics) = ("u1".to_owned(), vec![rail], String::new());
        map.nodes.insert(NODE, Node { id: NODE, uuid, kind, alias, state, rails, metrics });
        for number in 1..=groups {
            let (id, group) = (TargetId(number), GroupId(number));
            let (state, class, ports) = (TargetState::Good, CapacityClass::Normal, (1..=8).collect());
            let (uuid, path) = (String::new(), String::new());
            map.targets.insert(id, Target { id, uuid, node: NODE, kind, state, class, ports, path });
            map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![id] });
        }
        map
    }

    #[test]
    fn what_is_not_asked_costs_nothing_and_a_map_that_changes_nothing_of_a_way_leaves_it_alone() {
        test_client::run(async |client| {
            let [one, other] = [1, 2].map(|group| Destination::Lane(GroupId(group), 3));
            let way = |destination| client.route(destination).expect("it is in the map");
            let peer_at = |route: &GroupRoute| std::ptr::from_ref(client.lane(route, one));
            client.shared.update_map(Arc::new(map_of(1000, 2)));
            let (first, beside) = (way(one), way(other));
            let peer = peer_at(&first);
            assert_eq!(client.routes.borrow().len(), 2);
            assert_eq!(first.lanes.iter().filter(|lane| lane.get().is_some()).count(), 1);

            let mut map = map_of(1000, 3);
            map.nodes.get_mut(&NODE).expect("the node").state = NodeState::ProbablyOffline;
            client.shared.update_map(Arc::new(map.clone()));
            assert!(Rc::ptr_eq(&way(one), &first) && first.to.get().epoch == Epoch(3));

            map.epoch = Epoch(4);
            map.targets.get_mut(&TargetId(1)).expect("the target").ports = (11..=16).collect();
            client.shared.update_map(Arc::new(map.clone()));
            let moved = way(one);
            assert!(Rc::ptr_eq(&way(other), &beside) && !Rc::ptr_eq(&moved, &first));
            assert_eq!(peer_at(&moved), peer, "it knows what was lost");
            assert_eq!(client.lane(&moved, one).peer.addresses(), [SocketAddr::from(([127, 0, 0, 1], 14))]);

            assert!(client.lane(&moved, one).peer.is_of_node("u1"));
            map.epoch = Epoch(5);
            map.nodes.get_mut(&NODE).expect("the node").uuid = "u2".to_owned();
            client.shared.update_map(Arc::new(map.clone()));
            let another = way(one);
            assert!(client.lane(&another, one).peer.is_of_node("u2"), "whose fences are not the former's");

            map.epoch = Epoch(6);
            map.groups.remove(&GroupId(1));
            client.shared.update_map(Arc::new(map));
            assert!(client.route(one).is_none() && client.routes.borrow().len() == 1);
        });
    }
}
