//! One turn of the shard: all requests that came since the last one, in their order, in one batch.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;
use std::time::{Duration, Instant};

use control::View;
use kv::KvError;
use kv::rocks::RocksKv;
use namespace::error::store_errno;
use namespace::shard::Shard;
use namespace::shard::inline::{Grown, Growth};
use namespace::transaction::{Haste, Message, Outgoing, Reply};
use namespace::view::{Deletion, DeletionPage};
use net::{ConnectionId, Request, Responder};
use ring::buf::Slice;
use ring::sync::Notify;
use telemetry::metrics::level;
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, InodeId, SessionId, ShardId, TransactionId};
use wire::codec::decode_body;
use wire::frame::{Header, Status};
use wire::op::Op;
use wire::v1::session::{Recalls, RecallsReply, SessionOpen};

use crate::answer::Answer;
use crate::connections::Connections;
use crate::dispatch::{self, Context};
use crate::fail_points::FailPoints;
use crate::metrics::ShardMetrics;
use crate::parking::{Parking, Weighed};
use crate::pools;
use crate::syncer::Syncer;
use crate::tasks::removal::Floor;
use crate::waiting::Waiting;

mod newcomers;
mod refusals;
mod synced;
mod unsynced;
mod upkeep;
mod waits;

use newcomers::Newcomers;
pub(crate) use refusals::Condition;
use unsynced::{Buried, Held, Unsynced};
use upkeep::Inbox;

pub(crate) type Store = Rc<RocksKv>;

/// Bounds of what waits for a turn.
const QUEUE_REQUESTS_MAX: usize = 16 << 10;
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Of a long queue a turn takes half, but no less than this: its answers are on their way, and their receivers at work,
/// while the other half is executed. In one piece, a client with 64 requests in flight and the shard take turns at
/// doing nothing.
const SHARE_MIN: usize = 32;
/// From so many requests in a turn on it pays to look ahead at what they will look at.
const FORESIGHT_MIN: usize = 4;
/// `Fsync` requests that wait for the disk.
const WAITING_MAX: usize = 64 << 10;
/// Pause between two log lines about a store that goes on refusing.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// The shard and what waits for it. One per thread; the tasks of the thread share it.
pub(crate) struct Core {
    state: RefCell<State>,
    store: Store,
    /// The group that is served here, as the cluster map says.
    serving: Cell<Option<(GroupId, Generation)>>,
    pub(crate) epoch: Rc<Cell<Epoch>>,
    /// Something waits for a turn.
    pub(crate) work: Notify,
    /// There may be objects to remove.
    pub(crate) removable: Notify,
    /// From where on.
    pub(crate) deletions_floor: Floor,
    /// The shard cannot go on.
    pub(crate) given_up: Notify,
    /// There are messages for other shards.
    pub(crate) to_send: Notify,
    /// There are contents to be moved to objects.
    pub(crate) to_grow: Notify,
    /// There are sessions whose writes are to be ended.
    pub(crate) to_fence: Notify,
    pub(crate) metrics: ShardMetrics,
    syncer: Syncer,
    begun: Instant,
    pub(crate) fail_points: Rc<FailPoints>,
}

struct State {
    waiting: Waiting,
    shard: Shard<Store>,
    context: Context,
    condition: Condition,
    stopping: bool,
    connections: Connections,
    newcomers: Newcomers,
    queue: Vec<Queued>,
    queue_bytes: usize,
    /// Room for the answers of a turn, kept for the next one.
    answered: Vec<Answered>,
    /// What the thread's tasks have left for the next turn.
    inbox: Inbox,
    /// When time was last looked at.
    ticked: Option<Instant>,
    /// Files whose contents are to be moved to objects, and those of which the disk does not know that yet.
    growing: Vec<InodeId>,
    marked: Unsynced<InodeId>,
    /// Sessions that may write objects no more before they end.
    fencing: Vec<SessionId>,
    commits: u64,
    /// Of these, durable.
    synced: u64,
    // How the store is, which goes through these in their order, and from `reopening` back to the first where it can:
    // - It works: none of the four fields below counts.
    // - `store.is_failed()`: it takes nothing. Changes are refused with `failure`, reads go on. Where it is a sync that
    // has   failed, what waits for the disk is refused with `sync_failed`.
    // - `reopening`: it is closed. All requests are `Busy`.
    // - `fault`: it has come back as something else than the shard believes. Nothing is answered, and the thread ends.
    /// The last sync failed: nothing more becomes durable until the store is opened again.
    sync_failed: Option<Errno>,
    /// Why the store takes nothing until it is opened again.
    failure: Option<Errno>,
    /// The store is closed, and will be open again.
    reopening: bool,
    /// Why the shard cannot go on.
    fault: Option<KvError>,
    /// In the order of the commits that they wait for.
    syncing: VecDeque<(u64, Answered)>,
    complained: Option<Instant>,
    /// Requests that wait for transactions.
    parking: Parking<TransactionId, Queued>,
    /// Messages for other shards, and those that wait for the disk.
    outgoing: Vec<Outgoing>,
    held: Held,
    buried: Buried,
}

impl State {
    fn new(shard: Shard<Store>, context: Context) -> Self {
        Self {
            waiting: Waiting::default(),
            shard,
            context,
            condition: Condition::Good,
            stopping: false,
            connections: Connections::default(),
            newcomers: Newcomers::default(),
            queue: Vec::new(),
            queue_bytes: 0,
            answered: Vec::new(),
            inbox: Inbox::default(),
            ticked: None,
            growing: Vec::new(),
            marked: Unsynced::default(),
            fencing: Vec::new(),
            // The opening of the shard has committed.
            commits: 1,
            synced: 0,
            sync_failed: None,
            failure: None,
            reopening: false,
            fault: None,
            syncing: VecDeque::new(),
            complained: None,
            parking: Parking::default(),
            outgoing: Vec::new(),
            held: Held::default(),
            buried: Buried::default(),
        }
    }
}

pub(crate) struct Queued {
    header: Header,
    body: Slice,
    connection: ConnectionId,
    responder: Responder,
    arrived: Instant,
}

impl Queued {
    /// Nobody would see an answer.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.responder.is_closed()
    }

    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }
}

impl Weighed for Queued {
    fn bytes(&self) -> usize {
        self.len()
    }
}

pub(crate) struct Answered {
    op: Op,
    /// Of a change that has one, and the connection that it came on.
    sequence: Option<u64>,
    connection: ConnectionId,
    answer: Answer,
    pub(crate) responder: Responder,
    arrived: Instant,
}

impl Answered {
    pub(crate) fn with(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }
}

impl Core {
    pub(crate) fn new(
        shard: Shard<Store>,
        store: Store,
        context: Context,
        metrics: ShardMetrics,
        syncer: Syncer,
        fail_points: Rc<FailPoints>,
    ) -> Self {
        let state = State::new(shard, context);
        syncer.committed(state.commits, Haste::WithNextSync);
        Self {
            state: RefCell::new(state),
            store,
            serving: Cell::new(None),
            epoch: Rc::new(Cell::new(Epoch(0))),
            work: Notify::new(),
            removable: Notify::new(),
            deletions_floor: Floor::default(),
            given_up: Notify::new(),
            to_send: Notify::new(),
            to_grow: Notify::new(),
            to_fence: Notify::new(),
            metrics,
            syncer,
            // From here on sessions can come: the opening of the shard may have waited long for its disk.
            begun: Instant::now(),
            fail_points,
        }
    }

    pub(crate) fn store(&self) -> &RocksKv {
        &self.store
    }

    /// Another map: which group is served here, and what placement may choose from.
    pub(crate) fn set_map(&self, serving: Option<(GroupId, Generation)>, view: &View) {
        let epoch = view.map.epoch;
        let (all, good) = pools::shards(&view.map);
        let pools = pools::pools(&view.map, &view.capacities);
        let mut state = self.state.borrow_mut();
        state.shard.set_shards(all, good);
        self.serving.set(serving);
        self.epoch.set(epoch);
        self.metrics.epoch.set(level(epoch.0));
        if let Some((group, _)) = serving {
            state.context.group = group;
        }
        state.shard.set_pools(pools);
    }

    /// Looked at now and then; so is what else has no moment of its own to be counted.
    pub(crate) fn set_space(&self, condition: Condition, total_bytes: u64, free_bytes: u64) {
        let mut state = self.state.borrow_mut();
        state.condition = condition;
        (state.context.total_bytes, state.context.free_bytes) = (total_bytes, free_bytes);
        state.context.may_grow = condition != Condition::LowSpace;
        self.metrics.sessions.set(level(state.shard.session_count()));
        self.metrics.open_inodes.set(level(state.shard.held_count()));
        state.context.keeps_access_times = condition == Condition::Good && !self.store.is_failed();
    }

    /// Takes a request for the next turn, or answers it at once where it can't wait.
    pub(crate) fn take(&self, request: Request) {
        let Request { header, body, connection, responder, .. } = request;
        let mut state = self.state.borrow_mut();
        let is_full = state.queue.len() + state.waiting.len() >= QUEUE_REQUESTS_MAX
            || state.queue_bytes + body.len() > QUEUE_BYTES_MAX;
        // What the others may be waiting for, and what keeps a session: small, and bounded by its connection.
        if is_full && !matches!(header.op, Op::Ping | Op::Recalls) {
            drop(state);
            self.metrics.answered(header.op, Status::Busy, Duration::ZERO);
            responder.fail(Status::Busy);
            return;
        }
        state.queue_bytes += body.len();
        state.queue.push(Queued { header, body, connection, responder, arrived: ring::now() });
        if state.queue.len() == 1 {
            self.work.notify_one();
        }
    }

    pub(crate) fn forget(&self, connection: ConnectionId) {
        let state = &mut *self.state.borrow_mut();
        let session = state.connections.forget(connection);
        if let Some(session) = session {
            state.waiting.disconnected(&mut state.shard, session, connection);
        }
        state.queue_bytes -= state.waiting.drop_abandoned();
        if state.parking.len() > 0 {
            state.inbox.lost.push((connection, session));
            self.work.notify_one();
        }
    }

    /// Time has passed: sessions may have expired.
    pub(crate) fn tick(&self) {
        self.state.borrow_mut().inbox.tick = true;
        self.work.notify_one();
    }

    /// Goes on with directories that are being split. False where there are none.
    pub(crate) fn go_on_splitting(&self) -> bool {
        let mut state = self.state.borrow_mut();
        // What moves needs space on both sides for a while.
        let may = state.condition == Condition::Good
            && !state.stopping
            && !self.store.is_failed()
            && self.serving.get().is_some();
        state.inbox.go_on_splitting = may && state.shard.is_splitting();
        if state.inbox.go_on_splitting {
            self.work.notify_one();
        }
        state.inbox.go_on_splitting
    }

    /// The object is gone from its storage group.
    pub(crate) fn removed(&self, deletion: Deletion) {
        self.state.borrow_mut().inbox.removed.push(deletion);
        self.work.notify_one();
    }

    /// What another shard answered, or that it did not.
    pub(crate) fn replied(&self, from: ShardId, message: Message, reply: Reply) {
        self.state.borrow_mut().inbox.replies.push((from, message, reply));
        self.work.notify_one();
    }

    pub(crate) fn take_outgoing(&self) -> Vec<Outgoing> {
        mem::take(&mut self.state.borrow_mut().outgoing)
    }

    pub(crate) fn take_growing(&self) -> Vec<InodeId> {
        mem::take(&mut self.state.borrow_mut().growing)
    }

    /// `None` also while the store is closed.
    pub(crate) fn growth(&self, inode: InodeId) -> namespace::error::Result<Option<Growth>> {
        let mut state = self.state.borrow_mut();
        let found = state.shard.growth(inode);
        synced::none_while(state.reopening, found)
    }

    pub(crate) fn take_fencing(&self) -> Vec<SessionId> {
        mem::take(&mut self.state.borrow_mut().fencing)
    }

    /// Nothing that the session has asked of objects can happen any more.
    pub(crate) fn fenced(&self, session: SessionId) {
        self.state.borrow_mut().inbox.fenced.push(session);
        self.work.notify_one();
    }

    /// What became of the move of a file's contents to its objects.
    pub(crate) fn grown(&self, inode: InodeId, grown: Grown) {
        self.state.borrow_mut().inbox.grown.push((inode, grown));
        self.work.notify_one();
    }

    pub(crate) fn deletions(
        &self,
        after: Option<(InodeId, u32)>,
        count: usize,
    ) -> namespace::error::Result<DeletionPage> {
        self.state.borrow_mut().shard.deletions(after, count)
    }

    /// From here on requests are answered with `Busy`. True when nothing is left to answer.
    pub(crate) fn drain(&self) -> bool {
        let mut state = self.state.borrow_mut();
        if !state.stopping {
            state.stopping = true;
            state.waiting.dismiss();
        }
        state.unpark_all();
        let is_idle = state.queue.is_empty() && state.parking.len() == 0;
        if !is_idle {
            self.work.notify_one();
        }
        is_idle && state.syncing.is_empty()
    }

    /// Executes what waits, or half of it where that is much, commits it, answers. True where something is left.
    pub(crate) fn turn(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mono_ms = u64::try_from(ring::now().duration_since(self.begun).as_millis()).unwrap_or(u64::MAX);
        state.shard.set_takes_changes(!self.store.is_failed());
        state.shard.begin_turn(telemetry::clock::now(), mono_ms);
        self.fail_points.replied(&state.inbox.replies);
        state.by_itself();
        state.unpark_if_due();
        self.metrics.queue.set(level(state.queue.len()));
        let share = state.queue.len().min(SHARE_MIN.max(state.queue.len() / 2));
        if share > 0 {
            self.metrics.batch.record(share as u64);
        }
        let mut queue = mem::take(&mut state.queue);
        let mut answered = mem::take(&mut state.answered);
        if share >= FORESIGHT_MIN {
            for queued in &queue[..share] {
                dispatch::foresee(&mut state.shard, queued.header.op, &queued.body);
            }
            state.shard.approach();
        }
        for queued in queue.drain(..share) {
            self.fail_points.arrives(queued.header.op, &queued.body);
            let answer = state.answer(self.serving.get(), &queued);
            let Some(queued) = state.keep_waiting(&answer, queued) else { continue };
            state.queue_bytes -= queued.body.len();
            let Queued { header: Header { op, .. }, ref body, connection, responder, arrived } = queued;
            let sequence = dispatch::sequence(op, body);
            let one = Answered { op, sequence, connection, answer, responder, arrived };
            match one.answer {
                Answer::Recalls(_) => state.listen(one),
                Answer::Later(ticket) => answered.extend(state.waiting.wait_for_lock(ticket, one)),
                _ => answered.push(one),
            }
        }
        self.metrics.recalls.inc_by(state.waiting.alert(&mut state.shard));
        self.metrics.parked.set(level(state.waiting.len()));
        self.metrics.waiting_for_transactions.set(level(state.parking.len()));
        state.queue = queue;
        let committed = self.commit(state);
        if let Err(error) = &committed {
            state.not_committed(&mut answered, error);
        }
        // After the commit: with a session that it ended, what others waited for has become free.
        answered.extend(state.waiting.decided_locks(&mut state.shard));
        self.metrics.recalls.inc_by(state.waiting.alert(&mut state.shard));
        self.metrics.waiting_for_locks.set(level(state.waiting.locks()));
        let haste = self.hand_out(state);
        self.release(state, &mut answered, committed == Ok(true), haste);
        state.answered = answered;
        if committed == Ok(true) {
            for inode in state.shard.take_buried() {
                self.deletions_floor.lower_to(inode);
                state.buried.push(state.commits, inode);
            }
        }
        state.unpark_if_due();
        // What is left: else the last turn's requests would seem to wait until the next one.
        self.metrics.queue.set(level(state.queue.len()));
        !state.queue.is_empty()
    }

    /// True where there was something to commit.
    fn commit(&self, state: &mut State) -> Result<bool, KvError> {
        if state.shard.is_clean() {
            return Ok(false);
        }
        let steps = state.shard.steps();
        self.fail_points.commits(steps);
        let begun = Instant::now();
        let result = state.shard.commit();
        self.metrics.commit.observe(begun.elapsed());
        match result {
            Ok(()) => {
                self.fail_points.committed(steps);
                state.commits += 1;
                Ok(true)
            }
            Err(error) => {
                state.failure = Some(store_errno(&error));
                if state.complained.is_none_or(|at| begun.duration_since(at) >= COMPLAIN_EVERY) {
                    state.complained = Some(begun);
                    tracing::error!(%error, "a batch could not be written: its requests are answered with the error");
                }
                Err(error)
            }
        }
    }

    /// Takes up what the turn brought: messages for other shards, files whose contents are to be moved, and requests that can
    /// go on. How soon the disk is to know what some of that waits for.
    fn hand_out(&self, state: &mut State) -> Haste {
        let mut haste = Haste::WithNextSync;
        for outgoing in state.shard.take_outgoing() {
            if outgoing.after_sync && state.commits > state.synced {
                haste = haste.max(outgoing.haste);
                state.held.push(state.commits, outgoing);
            } else {
                self.fail_points.leaves(&outgoing.message);
                state.outgoing.push(outgoing);
            }
        }
        if !state.outgoing.is_empty() {
            self.to_send.notify_one();
        }
        // A power cut that took the mark back would leave bytes in the objects that nobody knows of.
        for inode in state.shard.take_growing() {
            haste = Haste::Now;
            state.marked.push(state.commits, inode);
        }
        if !state.fencing.is_empty() {
            self.to_fence.notify_one();
        }
        let ended = state.shard.take_ended();
        if !ended.is_empty() {
            state.queue.splice(0..0, state.parking.leave(&ended));
        }
        haste
    }

    /// Sends the answers, except to those who wait for the disk, as other things do with this haste.
    fn release(&self, state: &mut State, answered: &mut Vec<Answered>, changed: bool, mut haste: Haste) {
        let now = Instant::now();
        for mut one in answered.drain(..) {
            if let Some(wanted) = one.answer.needs_sync()
                && state.commits > state.synced
            {
                match state.sync_failed {
                    Some(errno) => one.answer = one.answer.unsynced(errno),
                    None if state.syncing.len() >= WAITING_MAX => one.answer = Answer::Failed(Status::Busy),
                    None => {
                        haste = haste.max(wanted);
                        state.syncing.push_back((state.commits, one));
                        continue;
                    }
                }
            }
            self.send(one, now);
        }
        if changed || haste > Haste::WithNextSync {
            self.syncer.committed(state.commits, haste);
        }
        self.metrics.waiting_for_sync.set(level(state.syncing.len()));
    }

    fn send(&self, answered: Answered, now: Instant) {
        let Answered { op, answer, responder, arrived, .. } = answered;
        self.fail_points.answers(&answer);
        self.metrics.answered(op, answer.status(), now.saturating_duration_since(arrived));
        answer.send(responder);
    }
}

impl State {
    fn answer(&mut self, serving: Option<(GroupId, Generation)>, queued: &Queued) -> Answer {
        let Header { op, group, generation, .. } = queued.header;
        if op == Op::Ping {
            // A client that is idle keeps its session by it.
            return match self.connections.session(queued.connection) {
                Some(session) if !self.shard.touch(session) => Answer::Failed(Status::NoSession),
                Some(_) | None => Answer::Done,
            };
        }
        if serving != Some((group, generation)) {
            return Answer::Failed(Status::StaleMap);
        }
        if self.reopening || (self.stopping && !self.is_begun(queued)) {
            return Answer::Failed(Status::Busy);
        }
        let refused = self.refuses(op);
        if op == Op::SessionOpen {
            return self.open_session(queued, refused);
        }
        let session = match self.connections.session(queued.connection) {
            Some(session) if self.shard.touch(session) => session,
            None if op.is_open_to_all() => SessionId(0),
            Some(_) | None => return Answer::Failed(Status::NoSession),
        };
        if let Some(errno) = refused
            && !self.has_begun(session, dispatch::sequence(op, &queued.body))
        {
            return Answer::errno(errno);
        }
        if op == Op::Recalls {
            return self.acknowledge(session, &queued.body);
        }
        dispatch::execute(&mut self.shard, &self.context, session, op, &queued.body)
    }

    fn open_session(&mut self, queued: &Queued, refused: Option<Errno>) -> Answer {
        let open = decode_body::<SessionOpen>(&queued.body).ok();
        if open.as_ref().is_some_and(|open| self.connections.is_outdated(open)) {
            return Answer::Failed(Status::NoSession);
        }
        let is_new = open.as_ref().is_some_and(|open| !self.shard.knows(open.session));
        // A new connection of one that is known changes nothing, and may want to read alone.
        let changes = is_new || open.as_ref().is_none_or(|open| open.tells);
        if let Some(errno) = refused.filter(|_| changes) {
            return Answer::errno(errno);
        }
        let answer = dispatch::execute(&mut self.shard, &self.context, SessionId(0), Op::SessionOpen, &queued.body);
        let is_sent_away = is_new && answer.status() == Status::Busy;
        if is_sent_away && open.as_ref().is_some_and(|open| !self.shard.knows(open.session)) {
            self.newcomers.was_sent_away(self.shard.session_count(), ring::now());
        }
        let (Answer::Opened(_), Some(open)) = (&answer, open) else { return answer };
        if let Some(earlier) = self.connections.opened(queued.connection, &open) {
            self.waiting.disconnected(&mut self.shard, open.session, earlier);
            self.abandon(earlier, Some(open.session));
        }
        if is_new {
            self.waiting.begin_anew(open.session);
            self.newcomers.came(open.session, self.commits + 1);
        }
        match answer {
            Answer::Opened(reply) if self.newcomers.has(open.session, self.synced) => Answer::OpenedAnew(reply),
            answer => answer,
        }
    }
}

impl State {
    /// Takes what the session has given back; its request then waits for more.
    fn acknowledge(&mut self, session: SessionId, body: &[u8]) -> Answer {
        match decode_body::<Recalls>(body) {
            Ok(Recalls { done }) => {
                self.shard.acknowledge_recalls(session, &done);
                Answer::Recalls(RecallsReply { recalls: Vec::new(), ends: Vec::new() })
            }
            Err(error) => {
                tracing::warn!(op = Op::Recalls.name(), %error, "a message that cannot be understood");
                Answer::errno(Errno::EPROTO)
            }
        }
    }

    fn listen(&mut self, request: Answered) {
        let connection = request.connection;
        if let Some(session) = self.connections.session(connection) {
            self.waiting.listen(&mut self.shard, session, connection, request);
        }
    }
}
