//! The calling side of one connection: any number of requests in flight, answered in any order.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use ring::buf::{Buf, Slice};
use ring::op;
use ring::sync::Semaphore;
use tracing::{debug, warn};
use types::id::{Epoch, Generation, GroupId};
use wire::codec::{Wire, decode_body};
use wire::frame::{HEADER_LEN, Header, Status, flags};
use wire::op::{Call, Op};

use crate::handshake::{Established, HandshakeError, ID_LEN, Initiator};
use crate::hearing::Hearing;
use crate::identity::Identity;
use crate::inbound::{Inbound, Incoming, Pulse};
use crate::limits::Limits;
use crate::local;
use crate::metrics::{self, Meter, RailState, WITHIN_HOST};
use crate::outbox::Outbox;
use crate::pending::{Held, Pending, Reply, Waiter};
use crate::rails::Lived;
use crate::receive::{FrameError, Receiver, Role, check_payload};
use crate::shake::shake;
use crate::sharing::{self, Lending, Outgoing};
use crate::way::{Load, Way, Whom};

mod errors;
mod vigil;

pub use errors::{CallError, ConnectError};

/// Whom a request is for, as its header says it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct To {
    pub group: GroupId,
    pub generation: Generation,
    pub epoch: Epoch,
}

/// A reply with a payload.
#[derive(Debug)]
pub struct Answer<T> {
    pub message: T,
    /// The front part of the caller's `into` (or a buffer of its own), exactly as long as what came.
    pub payload: Buf,
    /// The rest of `into`, which joins `payload` again (`payload.unsplit(rest)`) where the caller wants the whole.
    pub into_rest: Option<Buf>,
    /// The cluster map's epoch as the answering side knows it.
    pub epoch: Epoch,
}

/// One connection; clones share it. It closes when the last clone is gone.
#[derive(Clone)]
pub struct Connection {
    inner: Rc<Inner>,
    /// Closes the connection with its last clone.
    handle: Rc<Handle>,
}

/// To a connection that ends when nobody else has it.
pub struct WeakConnection(Weak<Handle>);

impl WeakConnection {
    /// `None` where it is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<Connection> {
        let handle = self.0.upgrade()?;
        Some(Connection { inner: Rc::clone(&handle.0), handle })
    }
}

struct Handle(Rc<Inner>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close("not needed any more");
    }
}

/// Where the other side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Locality {
    SameHost,
    Elsewhere,
}

struct Inner {
    socket: OwnedFd,
    locality: Locality,
    /// Of the interfaces at both ends.
    load: Option<Load>,
    /// Other rails lead there: this one is given up as soon as it is seen to be cut.
    several: Cell<bool>,
    meter: Meter,
    rail: RailState,
    /// When it ended, requests had no answer: the other side may yet do them.
    left: Cell<bool>,
    /// It ended through a fault of its rail.
    lived: Cell<Option<Lived>>,
    /// It ended because nobody used it.
    unused: Cell<bool>,
    /// That is no reason to end it.
    kept: Cell<bool>,
    /// Lets go of it then, so that its descriptor is free.
    on_unused: RefCell<Option<Box<dyn FnOnce()>>>,
    /// Requests that nobody made: whether the other side lives.
    pings: Cell<u64>,
    /// The last of them.
    ping: Cell<u64>,
    hearing: Cell<Hearing>,
    /// The ping that its peer has asked for last, and when.
    question: Cell<Option<(u64, Instant)>>,
    address: SocketAddr,
    established: Established,
    /// The other side has taken it by then.
    begun: Instant,
    limits: Limits,
    outbox: Outbox,
    pending: RefCell<Pending>,
    lending: Lending,
    requests: Rc<Semaphore>,
    bytes: Rc<Semaphore>,
    pulse: Pulse,
    epoch: Cell<Epoch>,
    closed: RefCell<Option<String>>,
}

impl Connection {
    /// Connects, and proves the key both ways.
    ///
    /// # Errors
    /// Where nobody answers there within `limits.handshake`, or the two sides do not come to terms.
    pub async fn connect(
        address: SocketAddr,
        identity: &Identity,
        limits: &Limits,
    ) -> Result<Connection, ConnectError> {
        Self::connect_by(&Way::default(), Whom { address, node: "" }, identity, limits).await
    }

    pub(crate) async fn connect_by(
        way: &Way,
        whom: Whom<'_>,
        identity: &Identity,
        limits: &Limits,
    ) -> Result<Connection, ConnectError> {
        let address = whom.address;
        if let Some(connection) = Self::connect_locally(whom, identity, limits).await? {
            return Ok(connection);
        }
        let connecting = op::connect_from(way.from, way.device.as_deref(), address);
        let socket = match ring::timeout(limits.handshake, connecting).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return Err(ConnectError::io(address, &error)),
            Err(_) => return Err(ConnectError::io(address, &io::ErrorKind::TimedOut.into())),
        };
        let established = shake(socket.as_raw_fd(), Initiator::new(identity), limits.handshake)
            .await
            .map_err(|error| ConnectError::Handshake { address, error })?;
        whom.check(&established)?;
        // A service that is starting listens at its port before it has its local socket: one that has answered has it.
        if let Ok(Some(connection)) = Self::connect_locally(whom, identity, limits).await {
            return Ok(connection);
        }
        let locality = match sharing::is_local(&socket) {
            true => Locality::SameHost,
            false => Locality::Elsewhere,
        };
        let connection = Self::over(socket, locality, address, established, limits);
        connection.set_several(way.several);
        Ok(connection)
    }

    /// `None` where nobody that is to be trusted, or another node, has the local socket of this address.
    async fn connect_locally(
        whom: Whom<'_>,
        identity: &Identity,
        limits: &Limits,
    ) -> Result<Option<Connection>, ConnectError> {
        let address = whom.address;
        if !limits.local_sockets {
            return Ok(None);
        }
        let Ok(Some(socket)) = ring::timeout(limits.handshake, local::connect(address)).await else {
            return Ok(None);
        };
        match shake(socket.as_raw_fd(), Initiator::new(identity), limits.handshake).await {
            Ok(established) => match whom.check(&established) {
                Ok(()) => Ok(Some(Self::over(socket, Locality::SameHost, address, established, limits))),
                // What goes to the address itself may leave the host all the same.
                Err(error) => {
                    debug!(%error, "no connection through a local socket");
                    Ok(None)
                }
            },
            // Somebody else has the name.
            Err(error @ (HandshakeError::Ended | HandshakeError::Forged)) => {
                debug!(peer = %address, %error, "no connection through a local socket");
                Ok(None)
            }
            Err(error) => Err(ConnectError::Handshake { address, error }),
        }
    }

    fn over(
        socket: OwnedFd,
        locality: Locality,
        address: SocketAddr,
        established: Established,
        limits: &Limits,
    ) -> Connection {
        assert!((1..=Limits::REQUESTS_MAX / 2).contains(&limits.requests), "requests in flight out of range");
        let (ours, peer) = (metrics::local_address(&socket), address.ip().to_string());
        let load = match (locality, ours) {
            (Locality::Elsewhere, Some(ours)) => Some(Load::between(ours, address.ip())),
            _ => None,
        };
        let rail = RailState::of(&ours.map_or_else(|| WITHIN_HOST.to_owned(), |ours| ours.to_string()), &peer);
        rail.began();
        let inner = Rc::new(Inner {
            lending: Lending::new(locality == Locality::SameHost),
            locality,
            load,
            meter: Meter::made(&socket, &peer),
            rail,
            several: Cell::new(false),
            left: Cell::new(false),
            lived: Cell::default(),
            unused: Cell::new(false),
            kept: Cell::new(false),
            on_unused: RefCell::default(),
            pings: Cell::default(),
            ping: Cell::default(),
            question: Cell::default(),
            hearing: Cell::default(),
            socket,
            address,
            established,
            begun: Instant::now(),
            limits: limits.clone(),
            outbox: Outbox::default(),
            pending: RefCell::default(),
            requests: Rc::new(Semaphore::new(limits.requests)),
            bytes: Rc::new(Semaphore::new(limits.bytes)),
            pulse: Pulse::new(),
            epoch: Cell::default(),
            closed: RefCell::default(),
        });
        ring::spawn(send(Rc::clone(&inner)));
        ring::spawn(receive(Rc::clone(&inner)));
        ring::spawn(vigil::watch(Rc::downgrade(&inner)));
        if locality == Locality::Elsewhere {
            ring::spawn(vigil::keep(Rc::downgrade(&inner)));
        }
        let handle = Rc::new(Handle(Rc::clone(&inner)));
        Connection { inner, handle }
    }

    /// One request without payloads. Dropping the future gives up the wait, not the request.
    ///
    /// # Errors
    /// As [`CallError`] says.
    pub async fn call<C: Call>(&self, to: To, request: &C) -> Result<C::Reply, CallError> {
        let reply = self.exchange(to, request, Vec::new(), None, 0).await?;
        self.decode(&reply)
    }

    /// As [`Self::call`], for a request whose answer may take long: it does not count against the connection's bounds.
    /// The caller keeps the number of these small.
    ///
    /// # Errors
    /// As [`CallError`] says.
    pub async fn call_patiently<C: Call>(&self, to: To, request: &C) -> Result<C::Reply, CallError> {
        self.inner.check_open()?;
        let reply = self.inner.post_and_wait(to, request, Payload::default(), Held::default()).await?;
        self.decode(&reply)
    }

    /// One request; its payload is sent from where it is, and the reply's is received into `into` (or, without one,
    /// into a buffer of its own). A reply with more than `into` can hold is a protocol error.
    ///
    /// # Errors
    /// As [`CallError`] says.
    pub async fn call_payload<C: Call>(
        &self,
        to: To,
        request: &C,
        payload: Vec<Slice>,
        into: Option<Buf>,
    ) -> Result<Answer<C::Reply>, CallError> {
        let cost = payload.iter().map(|part| part.len()).sum::<usize>() + into.as_ref().map_or(0, |into| into.len());
        if let Some(memory) = self.inner.lending.to_offer(&payload, into.as_ref()) {
            // This one goes over the socket, as do the others until that is answered.
            ring::spawn(vigil::offer(Rc::clone(&self.inner), memory));
        }
        let reply = self.exchange(to, request, payload, into, cost).await?;
        let message = self.decode(&reply)?;
        let mut into_rest = reply.rest;
        let payload = match (reply.payload, &mut into_rest) {
            (Some(payload), _) => payload,
            (None, Some(whole)) => whole.split_to(0),
            (None, None) => Buf::with_capacity(0),
        };
        Ok(Answer { message, payload, into_rest, epoch: reply.header.epoch })
    }

    /// The other side has taken the connection by then: what it is told later to do with connections concerns this one too.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.inner.begun
    }

    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.borrow().is_some()
    }

    /// It is closed because nobody had asked anything over it for long: nothing is wrong with the other side.
    pub(crate) fn was_unused(&self) -> bool {
        self.inner.unused.get()
    }

    /// It is not closed for that: the other side remembers something of this connection that must not be forgotten.
    pub fn keep(&self) {
        self.inner.kept.set(true);
    }

    /// `let_go` is to drop what the caller has of it when it is closed for that.
    pub(crate) fn when_unused(&self, let_go: impl FnOnce() + 'static) {
        *self.inner.on_unused.borrow_mut() = Some(Box::new(let_go));
    }

    #[must_use]
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection(Rc::downgrade(&self.handle))
    }

    /// The incarnation of the other side, which changes at each of its starts.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.inner.established.peer.incarnation
    }

    /// UUID of the other side's cluster; empty where it does not know it yet.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.inner.established.peer.cluster
    }

    /// The other side is on this host: it has no rails.
    #[must_use]
    pub fn is_within_host(&self) -> bool {
        self.inner.locality == Locality::SameHost
    }

    /// Other rails lead there as well, or do no more.
    pub(crate) fn set_several(&self, several: bool) {
        self.inner.several.set(several);
    }

    /// Bytes under way at its two ends, over all connections there.
    pub(crate) fn load(&self) -> usize {
        self.inner.load.as_ref().map_or(0, Load::bytes)
    }

    /// Ends it for all who have it.
    pub(crate) fn end(&self, reason: &str) {
        self.inner.close(reason);
    }

    /// Its name, as both sides know it.
    pub(crate) fn id(&self) -> [u8; ID_LEN] {
        self.inner.established.id
    }

    /// Somebody else has it, too.
    pub(crate) fn is_shared(&self) -> bool {
        Rc::strong_count(&self.handle) > 1
    }

    /// It ended while requests had no answer.
    pub(crate) fn left_requests(&self) -> bool {
        self.inner.left.get()
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// The newest epoch of the cluster map that a reply has told, also a failed one.
    #[must_use]
    pub fn epoch_seen(&self) -> Epoch {
        self.inner.epoch.get()
    }

    /// Requests sent and not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.inner.pending.borrow().len()
    }

    async fn exchange<C: Call>(
        &self,
        to: To,
        request: &C,
        payload: Vec<Slice>,
        into: Option<Buf>,
        cost: usize,
    ) -> Result<Reply, CallError> {
        let inner = &self.inner;
        let permits = (inner.requests.acquire(1).await, inner.bytes.acquire(cost + HEADER_LEN).await);
        inner.check_open()?;
        let Outgoing { payload: parts, mut flags, lent } = inner.lending.place(payload, into.as_ref());
        if flags == 0 && inner.limits.payload_sums && !parts.is_empty() {
            flags = flags::CHECKED;
        }
        let held = Held { into, lent, permits: Some(permits) };
        let _share = inner.load.as_ref().map(|load| load.take(cost + HEADER_LEN));
        inner.post_and_wait(to, request, Payload { parts, flags }, held).await
    }

    fn decode<T: Wire>(&self, reply: &Reply) -> Result<T, CallError> {
        decode_body(&reply.body).map_err(|error| {
            let error = FrameError::Body(error);
            self.inner.close_loudly(&error);
            CallError::Protocol(error.to_string())
        })
    }
}

/// The bytes that go along with a request, and the flags of the frame that say how.
#[derive(Default)]
struct Payload {
    parts: Vec<Slice>,
    flags: u16,
}

/// The wait for one reply.
struct Waiting<'a> {
    inner: &'a Inner,
    id: Option<u64>,
}

impl Future for Waiting<'_> {
    type Output = Result<Reply, CallError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id.expect("polled after it was ready");
        let outcome = self.inner.pending.borrow_mut().poll(id, cx);
        if outcome.is_ready() {
            self.id = None;
        }
        outcome
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let op = self.inner.pending.borrow_mut().abandon(id);
        // Later changes may overtake it on another rail, or another thread's connection: they are fenced from this one.
        if op.is_some_and(Op::changes_objects) {
            self.inner.close("a change was given up by who asked for it");
        }
    }
}

impl Inner {
    fn socket(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn check_open(&self) -> Result<(), CallError> {
        match &*self.closed.borrow() {
            Some(reason) => Err(CallError::Closed(reason.clone())),
            None => Ok(()),
        }
    }

    /// Encodes a request into the outbox; its id.
    fn post<C: Call>(
        &self,
        to: To,
        request: &C,
        Payload { parts, flags }: Payload,
        held: Held,
        waiter: Waiter,
    ) -> Result<u64, CallError> {
        if self.pending.borrow().is_full() {
            // Nobody bounds those whose callers have gone away: what comes of them is asked on another connection.
            self.close("more requests have no answer than it has room for");
            self.check_open()?;
        }
        let id = self.pending.borrow_mut().insert(C::OP, held, waiter);
        let header = Header {
            version: self.established.version,
            op: C::OP,
            flags,
            status: Status::Ok,
            group: to.group,
            request: id,
            generation: to.generation,
            epoch: to.epoch,
            body_len: 0,
            payload_len: 0,
            body_crc: 0,
            payload_crc: 0,
        };
        let queued = self.outbox.push(header, self.established.seed, 0, |out| request.encode(out), parts, None);
        queued.map(|()| id).map_err(|_| {
            self.pending.borrow_mut().forget(id);
            CallError::Protocol(format!("the request ({:?}) is longer than the protocol allows", C::OP))
        })
    }

    async fn post_and_wait<C: Call>(
        &self,
        to: To,
        request: &C,
        payload: Payload,
        held: Held,
    ) -> Result<Reply, CallError> {
        let id = self.post(to, request, payload, held, Waiter::Caller)?;
        let reply = Waiting { inner: self, id: Some(id) }.await?;
        match reply.header.status {
            Status::Ok => Ok(reply),
            failed => Err(CallError::Status(failed)),
        }
    }

    /// Ends the connection; only the first reason counts.
    fn close(&self, reason: &str) -> bool {
        if self.closed.borrow().is_some() {
            return false;
        }
        *self.closed.borrow_mut() = Some(reason.to_owned());
        // Wakes the tasks that wait in the kernel.
        op::shutdown(&self.socket);
        self.outbox.close();
        if self.pending.borrow().has_lent() {
            // Before anything of it is let go of.
            self.lending.abandon();
        }
        self.rail.ended();
        let left = self.pending.borrow_mut().fail_all(&CallError::Closed(reason.to_owned()));
        self.left.set(left);
        true
    }

    fn close_loudly(&self, error: &FrameError) {
        // Whoever breaks the protocol may touch what it has replied to.
        self.lending.abandon();
        if self.close_for_its_rail(&error.to_string(), false).is_some() {
            metrics::frame_refused(error);
            warn!(peer = %self.address, reason = %error, "closed a connection that broke the protocol");
        }
    }

    fn close_for(&self, error: &io::Error) {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let was_left = matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
        let reason = error.to_string();
        let ended = match was_left && !self.pending.borrow().is_waited_for() {
            true => self.close_as_left(&reason),
            false => self.close_for_its_rail(&reason, false).map(drop),
        };
        if ended.is_some() {
            debug!(peer = %self.address, reason = %error, "connection lost");
        }
    }
}

async fn send(inner: Rc<Inner>) {
    if let Err(error) = inner.outbox.run(inner.socket(), &inner.meter, |_| ()).await {
        inner.close_for(&error);
    }
}

async fn receive(inner: Rc<Inner>) {
    let receiver = Receiver::new(inner.established.version, inner.established.seed, Role::Replies);
    let mut inbound = Inbound::new(inner.socket(), receiver, inner.meter.clone());
    loop {
        match inbound.fill(&inner.pulse).await {
            Ok(true) => {}
            Ok(false) => {
                let error = io::Error::new(io::ErrorKind::UnexpectedEof, "the other side has closed");
                return inner.close_for(&error);
            }
            Err(error) => return inner.close_for(&error),
        }
        loop {
            match inbound.next() {
                Ok(Some(incoming)) => match take_reply(&inner, &inbound, incoming).await {
                    Ok(()) => {}
                    Err(Broken::Frame(error)) => return inner.close_loudly(&error),
                    Err(Broken::Io(error)) => return inner.close_for(&error),
                },
                Ok(None) => break,
                Err(error) => return inner.close_loudly(&error),
            }
        }
        if inner.closed.borrow().is_some() {
            return;
        }
    }
}

enum Broken {
    Frame(FrameError),
    Io(io::Error),
}

async fn take_reply(inner: &Inner, inbound: &Inbound, incoming: Incoming) -> Result<(), Broken> {
    let header = incoming.header;
    let (mut into, lent) = inner.pending.borrow_mut().expect(&header).map_err(Broken::Frame)?;
    if header.epoch > inner.epoch.get() {
        inner.epoch.set(header.epoch);
    }
    if incoming.missing == 0 {
        check_payload(&header, &incoming.payload).map_err(Broken::Frame)?;
    }
    let len = header.payload_len as usize;
    let mut payload = None;
    if header.flags & flags::PLACED != 0 {
        let (placed, rest) = sharing::reply_in_place(&incoming.payload, &lent, into).map_err(Broken::Frame)?;
        payload = Some(placed);
        into = Some(rest);
    } else if len > 0 {
        let (destination, rest) = match into.take() {
            Some(buf) if len > buf.len() => {
                return Err(Broken::Frame(FrameError::PayloadOverflow { got: len, room: buf.len() }));
            }
            Some(mut buf) => {
                let rest = buf.split_off(len);
                (buf, Some(rest))
            }
            None => (Buf::with_capacity(len), None),
        };
        let destination = inbound.finish(&incoming, destination, &inner.pulse).await.map_err(Broken::Io)?;
        if incoming.missing > 0 {
            check_payload(&header, &destination).map_err(Broken::Frame)?;
        }
        payload = Some(destination);
        into = rest;
    }
    inner.pending.borrow_mut().complete(Reply { header, body: incoming.body, payload, rest: into });
    Ok(())
}
