//! From a group to a connection, and a call over it: with the map's generation, retried until the bound.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use cluster::map::ClusterMap;
use net::{Answer, CallError, Connection, Limits, Peer, To};
use ring::buf::{Buf, Slice};
use rustc_hash::FxHashMap;
use telemetry::names;
use telemetry::seldom::Seldom;
use tracing::{error, warn};
use types::error::Errno;
use types::id::{Epoch, GroupId, InodeId, ObjectId, ShardId};
use wire::frame::Status;
use wire::op::{Call, Op};
use wire::v1::session::SessionOpen;

use crate::caller::Caller;
use crate::heartbeat;
use crate::later::Later;
use crate::locks::assurance::Sending;
use crate::making::Making;
use crate::retry::{Attempts, Failure, Ladder, Sent, Step};
use crate::shared::Shared;
use ways::{GroupRoute, LaneRoute, place};

mod ways;

/// For a map with a new shard to come.
const MAP_LATE: Duration = Duration::from_secs(2);
/// Bytes of payloads that one thread may have in memory shared with servers of this host; what is more goes over
/// sockets. Address space alone, until it is used.
const SHARED_MAX: usize = 64 << 20;

/// Log lines of requests that nobody answers: each program that needs a disk which hangs has its own.
static LATE: LazyLock<Seldom> = LazyLock::new(|| Seldom::every(Duration::from_secs(10)));

/// One thread's client: connections of its own on this thread's ring.
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    identity: Rc<net::Identity>,
    /// To the groups that were asked something: of thousands, a thread asks few.
    routes: RefCell<FxHashMap<GroupId, Rc<GroupRoute>>>,
    shards: RefCell<FxHashMap<ShardId, GroupId>>,
    /// What `routes` and `shards` are made from, and its epoch.
    map: RefCell<Arc<ClusterMap>>,
    epoch: Cell<Epoch>,
    pub(crate) later: Rc<Later>,
    itself: Weak<Client>,
    /// Among those of the mount.
    thread: u32,
    /// Sessions opened on connections of this thread.
    sessions_opened: Cell<u64>,
    /// How many requests of this thread for write intents were given up, of files for which a task waits until all are over.
    pub(crate) intents_in_doubt: RefCell<FxHashMap<InodeId, u64>>,
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

/// The bytes that go along with a request, and how many there is room for in its answer.
#[derive(Clone, Copy)]
pub(crate) struct Payloads<'a> {
    pub(crate) sent: &'a [Slice],
    pub(crate) room: usize,
}

impl Payloads<'_> {
    pub(crate) const NONE: Self = Self { sent: &[], room: 0 };
}

impl Client {
    /// On the current ring.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Rc<Self> {
        let thread = shared.join();
        if shared.config.share_memory {
            ring::shared::lend(SHARED_MAX);
        }
        Rc::new_cyclic(|itself| Self {
            identity: Rc::new(shared.identity.clone()),
            shared,
            routes: RefCell::default(),
            shards: RefCell::default(),
            map: RefCell::new(Arc::new(ClusterMap::empty(String::new()))),
            epoch: Cell::new(Epoch(0)),
            later: Rc::default(),
            itself: Weak::clone(itself),
            thread,
            sessions_opened: Cell::new(0),
            intents_in_doubt: RefCell::default(),
        })
    }

    /// Sends `request` until it is answered or the bound is over.
    ///
    /// # Errors
    /// The server's errno; `EINTR` where the caller ends by a signal while it waits for a server; `EIO` at the bound.
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
        self.call_noting(caller, destination, request, Payloads { sent: payload, room }, &Sent::default()).await
    }

    /// As [`Self::call_payload`]; `sent` tells then whether some attempt, of this call or one before with the same, may have
    /// been carried out without an answer.
    pub(crate) async fn call_noting<C: Call>(
        &self,
        caller: &Caller<'_>,
        destination: Destination,
        request: &C,
        payloads: Payloads<'_>,
        sent: &Sent,
    ) -> Result<Answer<C::Reply>, Errno> {
        let mut ladder = Ladder::new(ring::now(), self.shared.config.retry_timeout);
        let unanswered = Unanswered { client: self, caller, op: C::OP, destination, sent, is_over: Cell::new(false) };
        loop {
            // Pinned where it is made: it is some kilobytes, and to move it costs as much as a short request.
            let attempt = pin!(self.attempt(destination, request, payloads, sent));
            let late = || self.tell_late(destination, C::OP);
            let failure = match until_ending(caller, &ladder, attempt, late).await? {
                Some(Ok(answer)) => {
                    unanswered.is_over.set(true);
                    return Ok(answer);
                }
                Some(Err(Failure::Errno(errno))) => {
                    unanswered.is_over.set(true);
                    return Err(errno);
                }
                Some(Err(failure @ Failure::Forgotten)) => {
                    error!(op = C::OP.name(), "giving up on {}: {failure}", self.describe(destination));
                    return Err(Errno::EIO);
                }
                Some(Err(Failure::Lapsed)) => {
                    self.regain(caller, destination).await?;
                    Failure::Lapsed
                }
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
                    if caller.is_ending() {
                        return Err(Errno::EINTR);
                    }
                    self.count_retry(destination);
                    ring::sleep(after).await;
                }
            }
        }
    }

    fn limits(&self) -> Limits {
        let config = &self.shared.config;
        let interfaces = Arc::clone(&config.interfaces);
        Limits { local_sockets: config.local_sockets, payload_sums: config.checksums, interfaces, ..Limits::default() }
    }

    fn count_retry(&self, destination: Destination) {
        if let Some(metrics) = &self.shared.config.metrics {
            let group =
                self.route(destination).map_or_else(|| "none".to_owned(), |route| route.to.get().group.to_string());
            metrics.counter(&names::CLIENT_RETRIES, &[&group]).inc();
        }
    }

    /// `sent` hears when the request is on its way.
    pub(crate) async fn attempt<C: Call>(
        &self,
        destination: Destination,
        request: &C,
        payloads: Payloads<'_>,
        sent: &Sent,
    ) -> Result<Answer<C::Reply>, Failure> {
        if let Destination::Object(_, object) = destination
            && C::OP != Op::TargetStat
        {
            self.shared.doubts.while_on(object).await;
        }
        let (route, connection) = self.connection(destination).await?;
        // With the connection in hand: where the session ends from here on, the connection does too, before anybody is told.
        if C::OP.changes_objects() && !self.may_change(destination, connection.begun()) {
            return Err(Failure::Lapsed);
        }
        if C::OP.is_done_once() && self.has_forgotten(destination, sent) {
            return Err(Failure::Forgotten);
        }
        let before = sent.goes(ring::now());
        let into = (payloads.room >= net::PLACED_MIN).then(|| Buf::shareable(payloads.room));
        let answer = connection.call_payload(route.to.get(), request, payloads.sent.to_vec(), into).await;
        if let Err(CallError::Status(status)) = &answer {
            sent.answered(before);
            // A service tells each connection once of data that was lost before: over another one it would be news again.
            if C::OP == Op::Sync && matches!(status, Status::Errno(_)) {
                connection.keep();
            }
        }
        answer.map_err(|error| self.failed(&route, destination, error))
    }

    /// As [`Self::attempt`], for an answer that may take long and is not waited for at anybody's expense.
    pub(crate) async fn attempt_patiently<C: Call>(
        &self,
        destination: Destination,
        request: &C,
        sent: &Sent,
    ) -> Result<C::Reply, Failure> {
        let (route, connection) = self.connection(destination).await?;
        sent.goes(ring::now());
        let answer = connection.call_patiently(route.to.get(), request).await;
        answer.map_err(|error| self.failed(&route, destination, error))
    }

    /// What is answered to a request over the connection over which it was `sent` last. `None` where that is gone, or the
    /// session, under which the shard would know that it has carried it out.
    pub(crate) async fn answer_over_the_same<C: Call>(
        &self,
        destination: Destination,
        request: &C,
        sent: Attempts,
    ) -> Option<Result<C::Reply, Failure>> {
        let route = self.route(destination)?;
        let connection = route.made(destination)?.ready().filter(|connection| connection.begun() <= sent.last)?;
        if self.has_forgotten_since(destination, sent.first) {
            return None;
        }
        Some(connection.call_patiently(route.to.get(), request).await.map_err(failure_of_call))
    }

    /// The shard has lost this session, and with it the answers to its changes, since it may have done what was sent.
    fn has_forgotten(&self, destination: Destination, sent: &Sent) -> bool {
        sent.unanswered_since().is_some_and(|since| self.has_forgotten_since(destination, since))
    }

    /// The shard has lost this session since this moment, and with it the answers to changes that it may have done.
    pub(crate) fn has_forgotten_since(&self, destination: Destination, since: Instant) -> bool {
        let Destination::Shard(shard) = destination else { return false };
        self.shared.shards.has_forgotten_since(shard, since)
    }

    /// One that is ready to be used.
    async fn connection(&self, destination: Destination) -> Result<(Rc<GroupRoute>, Connection), Failure> {
        if self.later.hurry() {
            ring::yield_now().await;
        }
        let route = self.route(destination).ok_or_else(|| self.no_route(destination))?;
        let lane = self.lane(&route, destination);
        let ready = || match destination {
            // A session is opened on one connection.
            Destination::Shard(_) => lane.ready(),
            Destination::Object(..) | Destination::Lane(..) => lane.peer.pick(),
        };
        let connection = match ready() {
            Some(connection) => connection,
            None => lane.making.make(ready, self.make_ready(&route, lane, destination)).await?,
        };
        Ok((route, connection))
    }

    /// Whoever needs a disk that is away hears so at once: it may be away for days.
    fn no_route(&self, destination: Destination) -> Failure {
        match destination {
            Destination::Object(group, _) | Destination::Lane(group, _) if self.shared.map().is_left_out(group) => {
                Failure::Errno(Errno::EIO)
            }
            Destination::Shard(_) | Destination::Object(..) | Destination::Lane(..) => Failure::NoRoute,
        }
    }

    /// Shards to which the connection is gone.
    pub(crate) fn lost_shards(&self) -> Vec<ShardId> {
        let is_lost = |&shard: &ShardId| {
            let destination = Destination::Shard(shard);
            let Some(route) = self.route(destination) else { return false };
            let Some(lane) = route.made(destination) else { return false };
            lane.ready.borrow().is_some() && lane.ready().is_none()
        };
        self.shared.shards.seen().into_iter().filter(is_lost).collect()
    }

    fn failed(&self, route: &GroupRoute, destination: Destination, error: CallError) -> Failure {
        if error == CallError::Status(Status::NoSession) {
            if let Some(lane) = route.made(destination) {
                lane.ready.borrow_mut().take();
            }
            if let Destination::Shard(shard) = destination {
                self.shared.forget_incarnation(shard);
            }
        }
        failure_of_call(error)
    }

    async fn make_ready(
        &self,
        route: &GroupRoute,
        lane: &LaneRoute,
        destination: Destination,
    ) -> Result<Connection, Failure> {
        let connection = lane.peer.connection().await.map_err(|error| Failure::Unreachable(error.to_string()))?;
        if let Destination::Shard(shard) = destination {
            self.open_session(&connection, route.to.get(), shard).await?;
            *lane.ready.borrow_mut() = Some(connection.downgrade());
        }
        Ok(connection)
    }

    /// Makes the session known on a new connection; where the shard has restarted, also what it held open.
    async fn open_session(&self, connection: &Connection, to: To, shard: ShardId) -> Result<(), Failure> {
        let sent = Sending::now();
        self.shared.shards.asks_for_session(shard);
        let opened = connection.call(to, &self.ask_for_session()).await.map_err(failure_of_call)?;
        let expiry = Duration::from_millis(opened.expiry_ms);
        if self.shared.shards.has_restarted(shard, opened.incarnation) {
            self.tell_in_turn(connection, to, shard, &opened).await?;
        }
        self.shared.assurances.opened(shard, sent, expiry);
        self.shared.shards.saw_incarnation(shard, opened.incarnation);
        if self.shared.may_beat() {
            ring::spawn(heartbeat::beat(Weak::clone(&self.itself)));
        }
        Ok(())
    }

    /// Later than all that this thread has asked so before.
    pub(crate) fn ask_for_session(&self) -> SessionOpen {
        let description = self.shared.config.description.clone().into_bytes();
        let number = self.sessions_opened.get() + 1;
        self.sessions_opened.set(number);
        SessionOpen::asking(self.shared.session, description, self.thread, number)
    }

    /// The next call of this thread opens the session there anew, and hears whether the shard has kept it.
    pub(crate) fn reopen_session(&self, shard: ShardId) {
        let destination = Destination::Shard(shard);
        if let Some(route) = self.route(destination)
            && let Some(lane) = route.made(destination)
        {
            lane.ready.borrow_mut().take();
        }
    }

    /// Over how many rails requests about this object go.
    pub(crate) fn width(&self, group: GroupId, object: ObjectId) -> usize {
        let destination = Destination::Object(group, object);
        self.route(destination).and_then(|route| Some(route.made(destination)?.peer.width())).unwrap_or(1)
    }

    /// Notes a version that the lane of this object gave out just now.
    pub(crate) fn saw_version(&self, group: GroupId, object: ObjectId, version: u64) {
        let destination = Destination::Object(group, object);
        if let Some(route) = self.route(destination)
            && let Some(lane) = route.made(destination)
        {
            lane.version.set(version);
        }
    }

    /// One that it gave out before, of whatever object; 0: none is known.
    pub(crate) fn version_of_lane(&self, group: GroupId, object: ObjectId) -> u64 {
        let destination = Destination::Object(group, object);
        self.route(destination).and_then(|route| Some(route.made(destination)?.version.get())).unwrap_or(0)
    }

    /// The number of a file that was just opened: no other one's of this mount, and they rise.
    #[must_use]
    pub fn number_open_file(&self) -> u64 {
        self.shared.number_open_file()
    }

    /// Starts a task on this thread that outlives the operation which started it.
    pub(crate) fn in_background(&self, task: impl AsyncFnOnce(Rc<Client>) + 'static) {
        if let Some(client) = self.itself() {
            ring::spawn(async move { task(client).await });
        }
    }

    /// For tasks that outlive the operation that started them: see [`Self::in_background`].
    pub(crate) fn itself(&self) -> Option<Rc<Client>> {
        self.itself.upgrade()
    }

    /// The map names the shard, whether or not it is served now, or does so soon: it may be on its way.
    pub async fn finds_shard(&self, shard: ShardId) -> bool {
        let is_there = || self.shared.map().shards.contains_key(&shard);
        let deadline = ring::now() + MAP_LATE;
        while !is_there() && ring::now() < deadline {
            ring::sleep(MAP_LATE / 20).await;
        }
        is_there()
    }

    fn route(&self, destination: Destination) -> Option<Rc<GroupRoute>> {
        if self.epoch.get() != self.shared.epoch() {
            self.renew_routes();
        }
        let group = match destination {
            Destination::Shard(shard) => *self.shards.borrow().get(&shard)?,
            Destination::Object(group, _) | Destination::Lane(group, _) => group,
        };
        let known = self.routes.borrow().get(&group).cloned();
        known.or_else(|| self.make_route(group))
    }

    fn make_route(&self, group: GroupId) -> Option<Rc<GroupRoute>> {
        let made = Rc::new(GroupRoute::new(&self.map.borrow(), group, None)?);
        self.routes.borrow_mut().insert(group, Rc::clone(&made));
        Some(made)
    }

    /// Takes over the connections to targets that are still there. Most maps change nothing of most groups.
    fn renew_routes(&self) {
        let map = self.shared.map();
        let old = self.map.replace(Arc::clone(&map));
        self.routes.borrow_mut().retain(|&group, route| {
            if place(&map, group) == place(&old, group) {
                route.to.set(To { epoch: map.epoch, ..route.to.get() });
                return true;
            }
            let renewed = GroupRoute::new(&map, group, Some(route));
            renewed.map(|renewed| *route = Rc::new(renewed)).is_some()
        });
        *self.shards.borrow_mut() = map.shards.iter().map(|(&shard, &group)| (shard, group)).collect();
        self.epoch.set(map.epoch);
    }

    /// Of a route that was looked up just now.
    fn lane<'a>(&self, route: &'a GroupRoute, destination: Destination) -> &'a LaneRoute {
        let number = route.number(destination);
        route.lanes[number].get_or_init(|| Rc::new(self.new_lane(route.to.get().group, number)))
    }

    fn new_lane(&self, group: GroupId, number: usize) -> LaneRoute {
        let route = self.map.borrow().route_lane(group, number);
        let (addresses, node) = route.map_or_else(Default::default, |route| (route.addresses, route.uuid));
        // The threads of a mount, and its shards, begin at different rails.
        let start = self.thread as usize + group.0 as usize;
        LaneRoute {
            peer: Peer::starting_at(start, addresses, Rc::clone(&self.identity), self.limits()).of_node(&node),
            ready: RefCell::default(),
            making: Making::new(),
            version: Cell::new(0),
        }
    }

    /// It is there, and does not answer: most likely its disk does not either.
    fn tell_late(&self, destination: Destination, op: Op) {
        if let Some(left_out) = LATE.is_due(Instant::now()) {
            warn!(op = op.name(), left_out, "waiting for {}: no answer yet", self.describe(destination));
        }
    }

    /// Of a node with many disks also whose one is needed.
    fn describe(&self, destination: Destination) -> String {
        let route = self.route(destination);
        let what = match destination {
            Destination::Shard(shard) => format!("shard {shard}"),
            Destination::Object(group, _) | Destination::Lane(group, _) => {
                let map = self.map.borrow();
                let target = map.groups.get(&group).and_then(|group| group.members.first());
                target.map_or_else(|| format!("group {group}"), |target| format!("target {target}"))
            }
        };
        match route {
            Some(route) => {
                let addresses = self.lane(&route, destination).peer.addresses();
                let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                format!("{what} of node {} ({addresses})", route.node)
            }
            None => what,
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

pub(crate) fn failure_of_call(error: CallError) -> Failure {
    match error {
        CallError::Closed(why) | CallError::Protocol(why) => Failure::Unreachable(why),
        CallError::Status(status) => failure_of(status),
    }
}

/// A request from when it is sent until it is answered. Dropped before that, by whoever gives it up, it may be carried out
/// all the same.
struct Unanswered<'a, 'c> {
    client: &'a Client,
    caller: &'a Caller<'c>,
    op: Op,
    destination: Destination,
    sent: &'a Sent,
    is_over: Cell<bool>,
}

impl Drop for Unanswered<'_, '_> {
    fn drop(&mut self) {
        let Some(unanswered) = self.sent.unanswered().filter(|_| !self.is_over.get()) else { return };
        self.caller.note_doubt(unanswered);
        if self.op.changes_files() {
            self.client.shared.contents.doubt(Instant::now());
        }
        if self.op.changes_objects() {
            self.client.doubt(self.destination);
        }
    }
}

/// Waits for `attempt`; `None` when the ladder's bound is over first, `EINTR` when the caller ends. `late` is called once
/// where that takes long.
pub(crate) async fn until_ending<F: Future>(
    caller: &Caller<'_>,
    ladder: &Ladder,
    mut attempt: Pin<&mut F>,
    late: impl Fn(),
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
            if caller.is_ending() {
                return Poll::Ready(Err(Errno::EINTR));
            }
            let now = Instant::now();
            if ladder.is_over(now) {
                return Poll::Ready(Ok(None));
            }
            if ladder.is_late(now) {
                late();
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use types::cred::Credentials;

    use super::*;
    use crate::test_client;

    #[test]
    fn what_takes_long_is_told_once_by_its_name() {
        test_client::run(async |client| {
            let caller = Caller::patient(Credentials::default());
            let told = Cell::new(0);
            let begun = Instant::now().checked_sub(Duration::from_secs(20)).expect("the machine runs for longer");
            for (ladder, times) in
                [(Ladder::new(begun, Duration::MAX), 1), (Ladder::new(ring::now(), Duration::MAX), 0)]
            {
                told.set(0);
                let attempt = pin!(ring::sleep(Duration::from_millis(500)));
                let ended = until_ending(&caller, &ladder, attempt, || told.set(told.get() + 1)).await;
                assert_eq!((ended, told.get()), (Ok(Some(())), times));
            }
            assert_eq!(client.describe(Destination::Shard(ShardId(7))), "shard 7");
            assert_eq!(client.describe(Destination::Lane(GroupId(7), 0)), "group 7");
        });
    }

    /// A lease runs out while what was kept back under it is being written: `ring::timeout` drops the request.
    #[test]
    fn a_change_that_is_dropped_before_its_answer_is_in_doubt() {
        test_client::run(async |client| {
            let object = ObjectId { inode: InodeId(77), stripe: 0 };
            let destination = Destination::Object(GroupId(1), object);
            let caller = Caller::patient(Credentials::default());
            let in_doubt = |op, goes: bool, is_over: bool| {
                let sent = Sent::default();
                if goes {
                    sent.goes(ring::now());
                }
                let (client, caller, sent, is_over) = (&*client, &caller, &sent, Cell::new(is_over));
                drop(Unanswered { client, caller, op, destination, sent, is_over });
                client.shared.doubts.are_on(object)
            };
            assert!(!in_doubt(Op::Write, false, false), "it was not sent");
            assert!(!in_doubt(Op::Write, true, true), "it was answered");
            assert!(!in_doubt(Op::Read, true, false), "it changes nothing");
            assert!(in_doubt(Op::Write, true, false));
        });
    }
}
