//! Requests to shards and lanes from an administrator's process: few, one at a time, without the client's machinery.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use cluster::map::{ClusterMap, Route};
use net::{CallError, Connection, Identity, Limits, Peer, To};
use thiserror::Error;
use types::error::Errno;
use types::id::{GroupId, NodeId, ObjectId, SessionId, ShardId, TargetId};
use wire::codec::Bytes;
use wire::frame::Status;
use wire::op::Call;
use wire::v1::meta::{Exactly, Scan};
use wire::v1::session::{SessionClose, SessionOpen};

/// A server that does not answer is given up on after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// And one that is busy after this: a change may first wait for a lease to end, and then meet others again and again.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Why a request has no answer.
#[derive(Clone, Debug, Error)]
pub enum DataError {
    #[error("{0} is not in the cluster map: is its service registered?")]
    NoRoute(String),
    #[error(
        "target {0} is not served: its node cannot open it, and its log says why, or has it no more in its configuration"
    )]
    LeftOut(TargetId),
    #[error("{server} does not answer: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("{0} did not come to it: others change the same all the time, or its disk is slow. Try again")]
    Busy(String),
    #[error("it cannot be split: {0}")]
    Split(String),
    #[error("it cannot be set: {0}")]
    Policy(String),
    #[error("{op}: {errno}")]
    Errno { op: &'static str, errno: Errno },
}

/// Asks mgmtd for the cluster map as it is now; `None` where it does not answer.
pub(crate) type AskMap<'a> = Box<dyn Fn() -> Option<ClusterMap> + 'a>;

/// Connections of one administrative command, on the current ring.
pub(crate) struct DataPlane<'a> {
    identity: Rc<Identity>,
    map: ClusterMap,
    /// `map`, or what became of it.
    current: RefCell<ClusterMap>,
    ask_map: AskMap<'a>,
    session: SessionId,
    sequence: Cell<u64>,
    /// Sessions opened on connections.
    connections: Cell<u64>,
    lines: RefCell<BTreeMap<Place, Rc<Line>>>,
    /// Nodes that were given up on, and why: a command that asks for many things there waits for them once.
    silent: RefCell<BTreeMap<NodeId, String>>,
}

/// A node's UUID and the addresses of its thread.
type Place = (String, Vec<SocketAddr>);

struct Line {
    peer: Peer,
    /// For shards: the session was opened on it.
    ready: RefCell<Option<Connection>>,
}

impl<'a> DataPlane<'a> {
    pub(crate) fn new(identity: Identity, map: ClusterMap, ask_map: AskMap<'a>, session: SessionId) -> Self {
        Self {
            identity: Rc::new(identity),
            current: RefCell::new(map.clone()),
            map,
            ask_map,
            session,
            sequence: Cell::new(0),
            connections: Cell::new(0),
            lines: RefCell::default(),
            silent: RefCell::default(),
        }
    }

    /// The cluster as it was when the command began.
    pub(crate) fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// The cluster as it is now. Who was given up on is asked again.
    ///
    /// # Errors
    /// Where mgmtd does not answer.
    pub(crate) async fn renewed(&self) -> Result<ClusterMap, DataError> {
        let begin = ring::now();
        loop {
            if let Some(map) = (self.ask_map)() {
                self.silent.borrow_mut().clear();
                self.current.borrow_mut().clone_from(&map);
                return Ok(map);
            }
            if ring::now().duration_since(begin) > PATIENCE {
                let reason = "it cannot be asked for the cluster map".to_owned();
                return Err(DataError::Unreachable { server: "the management service".to_owned(), reason });
            }
            ring::sleep(PAUSE).await;
        }
    }

    /// Numbers a change. Each is answered before the next begins.
    pub(crate) fn exactly(&self) -> Exactly {
        let sequence = self.sequence.get() + 1;
        self.sequence.set(sequence);
        Exactly { sequence, answered_below: sequence }
    }

    pub(crate) async fn shard<C: Call>(&self, shard: ShardId, request: &C) -> Result<C::Reply, DataError> {
        let find =
            |map: &ClusterMap| map.route_shard(shard).ok_or_else(|| DataError::NoRoute(format!("shard {shard}")));
        self.call(find, Some(self.session), request).await
    }

    /// Waits until a shard goes by the map that this command began with, or a later one.
    pub(crate) async fn catch_up(&self, shard: ShardId) -> Result<(), DataError> {
        let begin = ring::now();
        loop {
            // Any request will do: each answer tells.
            self.shard(shard, &Scan { after: Bytes::default(), count: 1 }).await?;
            let route = self.current.borrow().route_shard(shard);
            let line = route.and_then(|route| self.lines.borrow().get(&(route.uuid, route.addresses)).cloned());
            let seen = line.and_then(|line| line.ready.borrow().as_ref().map(Connection::epoch_seen));
            if seen >= Some(self.map.epoch) {
                return Ok(());
            }
            if ring::now().duration_since(begin) > PATIENCE {
                let reason = "it has not heard of the newest cluster map".to_owned();
                return Err(DataError::Unreachable { server: format!("shard {shard}"), reason });
            }
            ring::sleep(PAUSE).await;
        }
    }

    pub(crate) async fn object<C: Call>(
        &self,
        group: GroupId,
        object: ObjectId,
        request: &C,
    ) -> Result<C::Reply, DataError> {
        self.call(|map| map.route_object(group, object).ok_or_else(|| no_group(map, group)), None, request).await
    }

    pub(crate) async fn lane<C: Call>(&self, group: GroupId, lane: usize, request: &C) -> Result<C::Reply, DataError> {
        self.call(|map| map.route_lane(group, lane).ok_or_else(|| no_group(map, group)), None, request).await
    }

    /// Ends the session, so that the shards need not wait for it to expire. Whoever cannot be told will see it expire.
    pub(crate) async fn close(&self) {
        let shards: Vec<ShardId> = self.current.borrow().shards.keys().copied().collect();
        for shard in shards {
            let route = self.current.borrow().route_shard(shard);
            let is_open = route.is_some_and(|route| self.lines.borrow().contains_key(&(route.uuid, route.addresses)));
            if is_open {
                let _ = self.shard(shard, &SessionClose { session: self.session }).await;
            }
        }
    }

    /// A server that was started again may be elsewhere: after each failure the map is asked for anew.
    async fn call<C: Call>(
        &self,
        find: impl Fn(&ClusterMap) -> Result<Route, DataError>,
        session: Option<SessionId>,
        request: &C,
    ) -> Result<C::Reply, DataError> {
        let begin = ring::now();
        loop {
            let (route, epoch) = {
                let map = self.current.borrow();
                (find(&map)?, map.epoch)
            };
            let server = || format!("node {} ({:?})", route.node, route.addresses);
            if let Some(reason) = self.silent.borrow().get(&route.node) {
                return Err(DataError::Unreachable { server: server(), reason: reason.clone() });
            }
            let to = To { group: route.group, generation: route.generation, epoch };
            let line = self.line(&route);
            let attempt = self.attempt(&line, to, session, request).await;
            let waited = ring::now().duration_since(begin);
            match attempt {
                Ok(reply) => return Ok(reply),
                Err(Attempt::Errno(errno)) => return Err(DataError::Errno { op: C::OP.name(), errno }),
                Err(Attempt::Busy) if waited > BUSY_PATIENCE => return Err(DataError::Busy(server())),
                Err(Attempt::Failed(reason)) if waited > PATIENCE => {
                    self.silent.borrow_mut().insert(route.node, reason.clone());
                    return Err(DataError::Unreachable { server: server(), reason });
                }
                Err(Attempt::Busy | Attempt::Failed(_)) => {}
            }
            ring::sleep(PAUSE).await;
            if let Some(map) = (self.ask_map)() {
                *self.current.borrow_mut() = map;
            }
        }
    }

    async fn attempt<C: Call>(
        &self,
        line: &Line,
        to: To,
        session: Option<SessionId>,
        request: &C,
    ) -> Result<C::Reply, Attempt> {
        let ready = line.ready.borrow().as_ref().filter(|connection| !connection.is_closed()).cloned();
        let connection = match ready {
            Some(connection) => connection,
            None => {
                let connection = line.peer.connection().await.map_err(|error| Attempt::Failed(error.to_string()))?;
                if let Some(session) = session {
                    self.connections.set(self.connections.get() + 1);
                    let name = self.identity.name.clone().into_bytes();
                    let open = SessionOpen::asking(session, name, 0, self.connections.get());
                    // It holds nothing, so no restarted shard has to wait for it.
                    connection.call(to, &SessionOpen { tells: true, ..open }).await?;
                }
                *line.ready.borrow_mut() = Some(connection.clone());
                connection
            }
        };
        let result = connection.call(to, request).await;
        if matches!(result, Err(CallError::Status(Status::NoSession))) {
            line.ready.borrow_mut().take();
        }
        Ok(result?)
    }

    fn line(&self, Route { uuid, addresses, .. }: &Route) -> Rc<Line> {
        let mut lines = self.lines.borrow_mut();
        let make = || {
            let peer = Peer::new(addresses.clone(), Rc::clone(&self.identity), Limits::default()).of_node(uuid);
            Rc::new(Line { peer, ready: RefCell::default() })
        };
        Rc::clone(lines.entry((uuid.clone(), addresses.clone())).or_insert_with(make))
    }
}

enum Attempt {
    Errno(Errno),
    /// Worth another try, as all below.
    Busy,
    Failed(String),
}

impl From<CallError> for Attempt {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status(Status::Errno(errno)) => Attempt::Errno(errno),
            CallError::Status(Status::Busy) => Attempt::Busy,
            error => Attempt::Failed(error.to_string()),
        }
    }
}

/// How many lanes serve a storage group: at least one.
///
/// # Errors
/// Where none does: what is on its target cannot be asked for.
pub(crate) fn lanes(map: &ClusterMap, group: GroupId) -> Result<usize, DataError> {
    let target = map.groups.get(&group).and_then(|group| map.targets.get(group.members.first()?));
    target.map(|target| target.ports.len()).filter(|&lanes| lanes > 0).ok_or_else(|| no_group(map, group))
}

fn no_group(map: &ClusterMap, group: GroupId) -> DataError {
    let primary = map.groups.get(&group).and_then(|group| group.members.first());
    match primary {
        Some(&target) if map.is_left_out(group) => DataError::LeftOut(target),
        _ => DataError::NoRoute(format!("group {group}")),
    }
}

/// Runs `work` to its end on a ring of its own, on this thread.
pub(crate) fn on_ring<F: Future>(work: F) -> std::io::Result<F::Output> {
    let config = ring::Config { entries: 64, ..ring::Config::default() };
    Ok(ring::Ring::new(&config)?.run(work))
}

#[cfg(test)]
mod tests {
    use cluster::map::{CapacityClass, Group, Node, NodeState, ServiceKind, Target, TargetState};
    use types::id::Generation;

    use super::*;

    #[test]
    fn what_came_since_the_command_began_is_known_when_it_asks() {
        let (begin, mut now) = (ClusterMap::empty(String::new()), ClusterMap::empty(String::new()));
        now.shards.insert(ShardId(1), GroupId(7));
        let (answers, then) = (Cell::new(0), now.clone());
        // At first, mgmtd is being started again.
        let ask = || (answers.replace(answers.get() + 1) > 0).then(|| then.clone());
        let key = net::ClusterKey::from_bytes([7; 32]);
        let identity = Identity { incarnation: 1, ..Identity::new(key, "test") };
        let data = DataPlane::new(identity, begin.clone(), Box::new(ask), SessionId(1));
        let renewed = on_ring(async { data.renewed().await }).expect("a ring").expect("it answers");
        assert_eq!((&renewed, data.map(), &*data.current.borrow()), (&now, &begin, &now));
    }

    #[test]
    fn a_target_that_its_node_runs_without_is_no_empty_one() {
        let (kind, node, text) = (ServiceKind::Storage, NodeId(1), String::new);
        let mut map = ClusterMap::empty(text());
        let (uuid, alias, state, metrics) = (text(), text(), NodeState::Online, text());
        map.nodes.insert(node, Node { id: node, uuid, kind, alias, state, rails: Vec::new(), metrics });
        for (id, ports) in [(1, vec![7, 8]), (2, vec![])] {
            let (id, group, uuid, path) = (TargetId(id), GroupId(10 + id), text(), text());
            let (state, class) = (TargetState::Good, CapacityClass::Normal);
            map.targets.insert(id, Target { id, uuid, node, kind, state, class, ports, path });
            map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![id] });
        }
        assert!(matches!(lanes(&map, GroupId(11)), Ok(2)));
        assert!(matches!(lanes(&map, GroupId(12)), Err(DataError::LeftOut(TargetId(2)))));
        assert!(matches!(lanes(&map, GroupId(13)), Err(DataError::NoRoute(_))));
        map.nodes.get_mut(&node).expect("there").state = NodeState::Offline;
        assert!(matches!(lanes(&map, GroupId(12)), Err(DataError::NoRoute(_))));
    }
}
