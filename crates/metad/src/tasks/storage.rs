//! The way from a shard to objects on storage services, for its tasks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::map::{ClusterMap, NodeState};
use net::pairs::Selector;
use net::{CallError, Identity, Peer, To};
use ring::buf::Slice;
use types::error::Errno;
use types::id::{Epoch, GroupId, NodeId, ObjectId, TargetId};
use wire::frame::Status;
use wire::op::Call;

/// Requests in flight on one connection: those of all tasks together are fewer.
const IN_FLIGHT_MAX: usize = 512;
/// Longest wait for one answer.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Longest wait for one answer of a thread as a whole, and for a connection to it.
const LANE_CALL_MAX: Duration = Duration::from_secs(10);

/// Connections to storage lanes, of one thread.
pub(crate) struct Storage {
    identity: Rc<Identity>,
    map: RefCell<Arc<ClusterMap>>,
    interfaces: Arc<[Selector]>,
    /// By whom it is that is asked, and lane.
    peers: RefCell<BTreeMap<(Whom, usize), Rc<Peer>>>,
}

/// Each has its own connections. Who has lost one, or given up what it asked there, gets no other one before that has
/// its end: where a target's disk hangs, that takes as long as the disk. A thread as a whole can be asked meanwhile, and
/// so can its other targets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    Target(TargetId),
    Thread(NodeId),
}

/// A thread of a storage service, and where it is by the map of this epoch.
pub(crate) struct Lane {
    pub(crate) node: NodeId,
    number: usize,
    epoch: Epoch,
    addresses: Vec<SocketAddr>,
}

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The lane's own answer, or that its node runs without the target.
    Errno(Errno),
    /// It has much else to do: a little later it may be done. That is how it works, no fault of anybody's.
    Busy,
    /// Another time it may be done.
    Missed(String),
}

impl Storage {
    pub(crate) fn new(identity: Rc<Identity>, interfaces: Arc<[Selector]>) -> Rc<Self> {
        let map = RefCell::new(Arc::new(ClusterMap::empty(String::new())));
        Rc::new(Self { identity, interfaces, map, peers: RefCell::default() })
    }

    /// Another map: groups may be elsewhere now.
    pub(crate) fn set_map(&self, map: &Arc<ClusterMap>) {
        *self.map.borrow_mut() = Arc::clone(map);
        let mut lanes = BTreeMap::new();
        for target in map.targets.values().filter(|target| !target.ports.is_empty()) {
            lanes.extend([Whom::Target(target.id), Whom::Thread(target.node)].map(|whom| (whom, target.ports.len())));
        }
        self.peers.borrow_mut().retain(|(whom, lane), _| lanes.get(whom).is_some_and(|lanes| lane < lanes));
    }

    /// One attempt at a request about `object`, which is its file's in `group`.
    pub(crate) async fn call<C: Call>(
        &self,
        group: GroupId,
        object: ObjectId,
        request: &C,
        payload: Vec<Slice>,
    ) -> Result<C::Reply, Failure> {
        let missed = |reason: &str| Failure::Missed(reason.to_owned());
        let epoch = self.map.borrow().epoch;
        let route = self.map.borrow().route_object(group, object);
        let Some(route) = route else {
            // Nobody is left waiting for a disk that is away: it may be for days.
            let is_left_out = self.map.borrow().is_left_out(group);
            return Err(if is_left_out { Failure::Errno(Errno::EIO) } else { missed("it is not in the cluster map") });
        };
        let lanes = self.map.borrow().targets.get(&route.target).map_or(1, |target| target.ports.len());
        let peer = self.peer((Whom::Target(route.target), object.lane(lanes)), &route.uuid, route.addresses);
        let connection = match peer.pick() {
            Some(connection) => connection,
            None => peer.connection().await.map_err(|error| Failure::Missed(error.to_string()))?,
        };
        let to = To { group: route.group, generation: route.generation, epoch };
        match ring::timeout(CALL_MAX, connection.call_payload(to, request, payload, None)).await {
            Ok(Ok(answer)) => Ok(answer.message),
            Ok(Err(CallError::Status(Status::Errno(errno)))) => Err(Failure::Errno(errno)),
            Ok(Err(CallError::Status(Status::Busy))) => Err(Failure::Busy),
            Ok(Err(error)) => Err(Failure::Missed(error.to_string())),
            Err(_) => Err(missed("no answer")),
        }
    }

    /// Nothing is left of it, and nothing ever will be. What is not known yet is not meant.
    pub(crate) fn is_deleted(&self, group: GroupId) -> bool {
        self.map.borrow().deleted_groups.contains(&group)
    }

    /// All threads of all storage services.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let (epoch, all) = (self.map.borrow().epoch, self.map.borrow().all_lanes());
        let mut lanes = Vec::new();
        for (node, addresses) in all {
            let lane = |(number, addresses)| Lane { node, number, epoch, addresses };
            lanes.extend(addresses.into_iter().enumerate().map(lane));
        }
        lanes
    }

    /// mgmtd has not heard of it for long, or it is none of the cluster any more.
    pub(crate) fn is_offline(&self, node: NodeId) -> bool {
        self.map.borrow().nodes.get(&node).is_none_or(|node| node.state == NodeState::Offline)
    }

    /// One attempt at a request that concerns the thread, and that it may take some time to answer.
    pub(crate) async fn call_lane<C: Call>(&self, lane: &mut Lane, request: &C) -> Result<C::Reply, Failure> {
        self.find(lane).ok_or_else(|| Failure::Missed("it is not in the cluster map".to_owned()))?;
        let uuid = self.map.borrow().nodes.get(&lane.node).map_or_else(String::new, |node| node.uuid.clone());
        let peer = self.peer((Whom::Thread(lane.node), lane.number), &uuid, lane.addresses.clone());
        let answer = ring::timeout(LANE_CALL_MAX, async {
            let connection = peer.connection().await.map_err(|error| error.to_string())?;
            connection.call_patiently(To::default(), request).await.map_err(|error| error.to_string())
        });
        let answer = answer.await.map_err(|_| Failure::Missed("no answer".to_owned()))?;
        answer.map_err(Failure::Missed)
    }

    /// Where the lane is now. To look that up takes a walk over all targets, and there may be thousands of lanes.
    fn find(&self, lane: &mut Lane) -> Option<()> {
        let map = self.map.borrow();
        if lane.epoch != map.epoch {
            lane.addresses = map.lanes(lane.node).into_iter().nth(lane.number)?;
            lane.epoch = map.epoch;
        }
        Some(())
    }

    /// `uuid`: of the node that is to be there.
    fn peer(&self, lane: (Whom, usize), uuid: &str, addresses: Vec<SocketAddr>) -> Rc<Peer> {
        let mut peers = self.peers.borrow_mut();
        let make = || {
            let limits = super::limits(IN_FLIGHT_MAX, &self.interfaces);
            Rc::new(Peer::new(addresses.clone(), Rc::clone(&self.identity), limits).of_node(uuid))
        };
        let peer = peers.entry(lane).or_insert_with(make);
        if !peer.is_of_node(uuid) {
            *peer = make();
        }
        peer.set_addresses(addresses.clone());
        Rc::clone(peer)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Errno(errno) => errno.fmt(f),
            Self::Busy => f.write_str("it is busy"),
            Self::Missed(reason) => f.write_str(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use net::{ClusterKey, Limits, Request, Service};
    use types::id::{InodeId, SessionId, ShardId};
    use wire::op::Op;
    use wire::v1::session::{Empty, FenceSession};
    use wire::v1::storage::Remove;

    use super::*;
    use crate::local::{TestTarget, storage_map};

    /// A lane whose disk hangs.
    #[derive(Default)]
    struct Hanging {
        removals: RefCell<Vec<Request>>,
    }

    impl Service for Hanging {
        fn on_request(self: &Rc<Self>, request: Request) {
            if request.header.op == Op::Remove {
                self.removals.borrow_mut().push(request);
            } else {
                request.responder.reply(&Empty {});
            }
        }
    }

    fn identity() -> Identity {
        Identity { incarnation: 1, ..Identity::new(ClusterKey::from_bytes([7; 32]), "test") }
    }

    #[test]
    fn a_thread_answers_though_a_removal_at_its_hanging_disk_was_given_up() {
        ring::Ring::new(&ring::Config::default()).expect("a ring").run(async {
            let (listener, address) = ring::op::listen(([127, 0, 0, 1], 0).into()).expect("a free port");
            let (hanging, epoch) = (Rc::new(Hanging::default()), Rc::new(Cell::new(Epoch(1))));
            let limits = Limits::default();
            ring::spawn(net::serve(listener, Rc::new(identity()), limits, epoch, Rc::clone(&hanging)));
            let storage = Storage::new(Rc::new(identity()), Arc::default());
            let (id, port) = (TargetId(1), address.port());
            storage.set_map(&Arc::new(storage_map(&[TestTarget { id, port }])));
            let object = ObjectId { inode: InodeId::new(ShardId(0), 7), stripe: 0 };
            let (request, moment) = (Remove { object }, Duration::from_millis(100));
            let remove = || ring::timeout(moment, storage.call(GroupId(1), object, &request, Vec::new()));
            while hanging.removals.borrow().is_empty() {
                assert!(remove().await.is_err(), "it hangs");
            }

            let mut lane = storage.lanes().pop().expect("there is one");
            let fence = FenceSession { session: SessionId(3) };
            let fenced = ring::timeout(Duration::from_secs(2), storage.call_lane(&mut lane, &fence)).await;
            assert_eq!(fenced.expect("answered at once"), Ok(Empty {}));
            assert!(remove().await.is_err(), "the one before is at work yet");
            assert_eq!(hanging.removals.borrow().len(), 1);
        });
    }
}
