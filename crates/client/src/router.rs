//! From a group to a connection, and a call over it: with the map's generation, retried until the bound.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use net::{Answer, CallError, Connection, Limits, Peer, To};
use ring::buf::{Buf, Slice};
use rustc_hash::FxHashMap;
use telemetry::names;
use tracing::{error, info, warn};
use types::error::Errno;
use types::id::{Epoch, GroupId, InodeId, NodeId, ObjectId, ShardId};
use wire::codec::Bytes;
use wire::frame::Status;
use wire::op::Call;
use wire::v1::session::SessionOpen;

use crate::caller::Caller;
use crate::heartbeat;
use crate::later::Later;
use crate::retry::{Failure, Ladder, Step};
use crate::shared::Shared;

/// Bytes of payloads that one thread may have in memory shared with servers of this host; what is more goes over
/// sockets. Address space alone, until it is used.
const SHARED_MAX: usize = 64 << 20;

/// One thread's client: connections of its own on this thread's ring.
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    identity: Rc<net::Identity>,
    routes: RefCell<FxHashMap<GroupId, Rc<GroupRoute>>>,
    shards: RefCell<FxHashMap<ShardId, GroupId>>,
    /// The map that `routes` and `shards` were made from.
    epoch: Cell<Epoch>,
    pub(crate) later: Rc<Later>,
    itself: Weak<Client>,
}

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    Shard(ShardId),
    Object(GroupId, ObjectId),
    /// A thread of the group's primary, counted modulo their number.
    Lane(GroupId, usize),
}

impl Destination {
    /// The shard that owns `inode`.
    pub(crate) fn home(inode: InodeId) -> Self {
        Destination::Shard(inode.home())
    }
}

/// The way to one group.
struct GroupRoute {
    to: To,
    node: NodeId,
    lanes: Vec<LaneRoute>,
}

struct LaneRoute {
    peer: Peer,
    name: String,
    /// Connected, and for a shard with the session opened on it.
    ready: RefCell<Option<Connection>>,
    /// One at a time makes it ready.
    making: Rc<ring::sync::Semaphore>,
}

impl Client {
    /// On the current ring.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Rc<Self> {
        shared.join();
        if shared.config.share_memory {
            ring::shared::lend(SHARED_MAX);
        }
        Rc::new_cyclic(|itself| Self {
            identity: Rc::new(shared.identity.clone()),
            shared,
            routes: RefCell::default(),
            shards: RefCell::default(),
            epoch: Cell::new(Epoch(0)),
            later: Rc::default(),
            itself: Weak::clone(itself),
        })
    }

    /// Sends `request` until it is answered or the bound is over.
    ///
    /// # Errors
    /// The server's errno; `EINTR` where the caller was interrupted while waiting for a server; `EIO` at the bound.
    pub(crate) async fn call<C: Call>(
        &self,
        caller: &Caller<'_>,
        destination: Destination,
        request: &C,
    ) -> Result<C::Reply, Errno> {
        self.call_payload(caller, destination, request, &[], 0).await.map(|answer| answer.message)
    }

    /// As [`Self::call`], with bytes to send along, and up to `room` bytes that come back.
    pub(crate) async fn call_payload<C: Call>(
        &self,
        caller: &Caller<'_>,
        destination: Destination,
        request: &C,
        payload: &[Slice],
        room: usize,
    ) -> Result<Answer<C::Reply>, Errno> {
        let mut ladder = Ladder::new(ring::now(), self.shared.config.retry_timeout);
        loop {
            // Pinned where it is made: it is some kilobytes, and to move it costs as much as a short request.
            let attempt = pin!(self.attempt(destination, request, payload, room));
            let failure = match until_interrupted(caller, &ladder, attempt).await? {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(Failure::Errno(errno))) => return Err(errno),
                Some(Err(failure)) => failure,
                None => Failure::Unreachable("it does not answer".into()),
            };
            match ladder.after(ring::now(), &failure) {
                Step::GiveUp => {
                    let (server, waited) = (self.describe(destination), ladder.waited(ring::now()));
                    error!(op = C::OP.name(), "giving up on {server} after {waited:.1?}: {failure}");
                    return Err(Errno::EIO);
                }
                Step::Again { after, report } => {
                    if report {
                        warn!(op = C::OP.name(), "waiting for {}: {failure}", self.describe(destination));
                    }
                    if caller.is_interrupted() {
                        return Err(Errno::EINTR);
                    }
                    self.count_retry(destination);
                    ring::sleep(after).await;
                }
            }
        }
    }

    fn limits(&self) -> Limits {
        Limits { local_sockets: self.shared.config.local_sockets, ..Limits::default() }
    }

    fn count_retry(&self, destination: Destination) {
        if let Some(metrics) = &self.shared.config.metrics {
            let group = self.route(destination).map_or_else(|| "none".to_owned(), |route| route.to.group.to_string());
            metrics.counter(&names::CLIENT_RETRIES, &[&group]).inc();
        }
    }

    pub(crate) async fn attempt<C: Call>(
        &self,
        destination: Destination,
        request: &C,
        payload: &[Slice],
        room: usize,
    ) -> Result<Answer<C::Reply>, Failure> {
        if self.later.hurry() {
            ring::yield_now().await;
        }
        let route = self.route(destination).ok_or(Failure::NoRoute)?;
        let lane = route.lane(destination);
        let ready = lane.ready.borrow().as_ref().filter(|connection| !connection.is_closed()).cloned();
        let connection = match ready {
            Some(connection) => connection,
            None => self.make_ready(&route, lane, destination).await?,
        };
        let into = (room >= net::PLACED_MIN).then(|| Buf::shareable(room));
        match connection.call_payload(route.to, request, payload.to_vec(), into).await {
            Ok(answer) => Ok(answer),
            Err(CallError::Closed(why)) => Err(Failure::Unreachable(why)),
            Err(CallError::Protocol(why)) => Err(Failure::Unreachable(why)),
            Err(CallError::Status(status)) => {
                if status == Status::NoSession {
                    lane.ready.borrow_mut().take();
                    if let Destination::Shard(shard) = destination {
                        self.shared.forget_incarnation(shard);
                    }
                }
                Err(failure_of(status))
            }
        }
    }

    async fn make_ready(
        &self,
        route: &GroupRoute,
        lane: &LaneRoute,
        destination: Destination,
    ) -> Result<Connection, Failure> {
        let _turn = lane.making.acquire(1).await;
        if let Some(connection) = lane.ready.borrow().as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = lane.peer.connection().await.map_err(|error| Failure::Unreachable(error.to_string()))?;
        if let Destination::Shard(shard) = destination {
            self.open_session(&connection, route.to, shard).await?;
        }
        *lane.ready.borrow_mut() = Some(connection.clone());
        Ok(connection)
    }

    /// Makes the session known on a new connection; where the shard has restarted, also what it held open.
    async fn open_session(&self, connection: &Connection, to: To, shard: ShardId) -> Result<(), Failure> {
        let description = Bytes(self.shared.config.description.clone().into_bytes());
        let mut request = SessionOpen { session: self.shared.session, description, opens: Vec::new() };
        let opened = connection.call(to, &request).await.map_err(failure_of_call)?;
        if self.shared.shard_restarted(shard, opened.incarnation) {
            self.shared.lose_exclusivity(shard);
            request.opens = self.shared.held_opens(shard);
            info!(%shard, opens = request.opens.len(), "the shard has restarted: telling it what is open here");
            connection.call(to, &request).await.map_err(failure_of_call)?;
        }
        self.shared.saw_incarnation(shard, opened.incarnation);
        if self.shared.may_beat() {
            ring::spawn(heartbeat::beat(Weak::clone(&self.itself), Duration::from_millis(opened.expiry_ms)));
        }
        Ok(())
    }

    fn route(&self, destination: Destination) -> Option<Rc<GroupRoute>> {
        if self.epoch.get() != self.shared.epoch() {
            self.rebuild_routes();
        }
        let group = match destination {
            Destination::Shard(shard) => *self.shards.borrow().get(&shard)?,
            Destination::Object(group, _) | Destination::Lane(group, _) => group,
        };
        self.routes.borrow().get(&group).cloned()
    }

    /// Takes over the connections to addresses that did not change.
    fn rebuild_routes(&self) {
        let map = self.shared.map();
        let mut old = std::mem::take(&mut *self.routes.borrow_mut());
        let mut routes = FxHashMap::default();
        for &group in map.groups.keys() {
            let Some(first) = map.route_lane(group, 0) else { continue };
            let to = To { group, generation: first.generation, epoch: map.epoch };
            let lane_count = map.targets.get(&first.target).map_or(0, |target| target.ports.len());
            let mut kept = old.remove(&group).and_then(Rc::into_inner).map_or_else(Vec::new, |route| route.lanes);
            let lanes = (0..lane_count)
                .filter_map(|lane| map.route_lane(group, lane))
                .map(|route| match kept.iter().position(|lane| lane.peer.addresses() == route.addresses) {
                    Some(index) => kept.swap_remove(index),
                    None => LaneRoute::new(&self.identity, self.limits(), &route),
                })
                .collect();
            routes.insert(group, Rc::new(GroupRoute { to, node: first.node, lanes }));
        }
        *self.routes.borrow_mut() = routes;
        *self.shards.borrow_mut() = map.shards.iter().map(|(&shard, &group)| (shard, group)).collect();
        self.epoch.set(map.epoch);
    }

    fn describe(&self, destination: Destination) -> String {
        match self.route(destination) {
            Some(route) => format!("node {} ({})", route.node, route.lane(destination).name),
            None => format!("{destination:?}"),
        }
    }
}

impl GroupRoute {
    fn lane(&self, destination: Destination) -> &LaneRoute {
        let count = self.lanes.len();
        match destination {
            Destination::Shard(_) => &self.lanes[0],
            Destination::Object(_, object) => &self.lanes[object.lane(count)],
            Destination::Lane(_, lane) => &self.lanes[lane % count],
        }
    }
}

impl LaneRoute {
    fn new(identity: &Rc<net::Identity>, limits: Limits, route: &cluster::map::Route) -> Self {
        let name = route.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        Self {
            peer: Peer::new(route.addresses.clone(), Rc::clone(identity), limits),
            name,
            ready: RefCell::default(),
            making: Rc::new(ring::sync::Semaphore::new(1)),
        }
    }
}

fn failure_of(status: Status) -> Failure {
    match status {
        Status::Errno(errno) => Failure::Errno(errno),
        Status::StaleMap => Failure::StaleMap,
        Status::NoSession => Failure::NoSession,
        Status::Busy => Failure::Busy,
        Status::Ok => Failure::Errno(Errno::EPROTO),
    }
}

fn failure_of_call(error: CallError) -> Failure {
    match error {
        CallError::Closed(why) | CallError::Protocol(why) => Failure::Unreachable(why),
        CallError::Status(status) => failure_of(status),
    }
}

/// Waits for `attempt`; `None` when the ladder's bound is over first.
async fn until_interrupted<F: Future>(
    caller: &Caller<'_>,
    ladder: &Ladder,
    mut attempt: Pin<&mut F>,
) -> Result<Option<F::Output>, Errno> {
    let mut check: Option<ring::Tick> = None;
    std::future::poll_fn(move |cx| {
        if let Poll::Ready(output) = attempt.as_mut().poll(cx) {
            return Poll::Ready(Ok(Some(output)));
        }
        loop {
            // A tick is short for who presses Ctrl-C, and for a bound in seconds.
            if Pin::new(check.get_or_insert_with(ring::tick)).poll(cx).is_pending() {
                return Poll::Pending;
            }
            check = None;
            if caller.is_interrupted() {
                return Poll::Ready(Err(Errno::EINTR));
            }
            if ladder.is_over(Instant::now()) {
                return Poll::Ready(Ok(None));
            }
        }
    })
    .await
}
