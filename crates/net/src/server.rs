//! The answering side: accepts connections, checks who they are, and hands out their requests.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ring::buf::{Buf, Slice};
use ring::op;
use slab::Slab;
use telemetry::seldom::Seldom;
use tracing::{debug, info, warn};
use types::error::Errno;
use types::id::Epoch;
use wire::codec::decode_body;
use wire::frame::{Header, Status, flags};
use wire::op::Op;
use wire::sums::Sums;
use wire::v1::session::{Empty, Fence, FenceSession};

use crate::fences::Fences;
use crate::flow::Flow;
use crate::handshake;
use crate::identity::Identity;
use crate::inbound::{Inbound, Incoming};
use crate::limits::Limits;
use crate::local;
use crate::metrics;
use crate::places::Place;
use crate::receive::{FrameError, Receiver, Role, check_payload};
use crate::refusal;
use crate::responder::{Accepted, ConnectionId, PeerInfo, Responder};
use crate::shake::shake;

/// Pause after an accept that failed, so that a lack of descriptors is no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two tries to take a name that is still held by a process that just ended.
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// How long the name of a local socket may be taken before that is worth a line in the log.
const LOCAL_PATIENCE: Duration = Duration::from_secs(5);

/// Each listener of each thread tries again all the time, and callers do: the log is to keep other lines, too.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);
static CANNOT_ACCEPT: LazyLock<Seldom> = LazyLock::new(|| Seldom::every(COMPLAIN_EVERY));
static TOO_MANY: LazyLock<Seldom> = LazyLock::new(|| Seldom::every(COMPLAIN_EVERY));

/// One request with the right to answer it, at once or later.
pub struct Request {
    pub header: Header,
    /// The message, still encoded: `wire::codec::decode_body`.
    pub body: Slice,
    pub payload: Slice,
    /// Of the payload, if it is a write's and its sender gave a checksum, which they are in accord with.
    pub sums: Option<Sums>,
    /// Where the reply's payload had best be put: memory that the caller sees. A reply that is one part and begins where
    /// this does is not sent again.
    pub room: Option<Buf>,
    pub connection: ConnectionId,
    pub responder: Responder,
}

/// What answers requests. Calls come from the connections' tasks, one at a time, and must not block; what takes time
/// is spawned, and its number bounded by [`Limits`].
pub trait Service: 'static {
    fn on_connect(self: &Rc<Self>, _peer: &PeerInfo) {}
    fn on_request(self: &Rc<Self>, request: Request);
    /// Once for each `on_connect`. Requests of this connection may still be unanswered.
    fn on_disconnect(self: &Rc<Self>, _connection: ConnectionId) {}
}

/// Serves all connections that come to `listener`, for ever. Dropping the future closes the listener and all of its
/// connections. `epoch` goes into every reply.
pub async fn serve<S: Service>(
    listener: OwnedFd,
    identity: Rc<Identity>,
    limits: Limits,
    epoch: Rc<Cell<Epoch>>,
    service: Rc<S>,
) {
    let server = Rc::new(Server {
        identity,
        limits,
        epoch,
        service,
        connections: RefCell::default(),
        fences: RefCell::default(),
    });
    let _closer = Closer(Rc::clone(&server));
    ring::join_all([ListenerKind::Tcp, ListenerKind::Local].map(|kind| server.accept_all(&listener, kind))).await;
}

/// How connections come in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListenerKind {
    Tcp,
    /// From this host.
    Local,
}

thread_local! {
    /// Across all listeners of the thread.
    static NEXT_CONNECTION: Cell<u64> = const { Cell::new(1) };
}

fn next_connection() -> ConnectionId {
    ConnectionId(NEXT_CONNECTION.replace(NEXT_CONNECTION.get() + 1))
}

struct Server<S> {
    identity: Rc<Identity>,
    limits: Limits,
    epoch: Rc<Cell<Epoch>>,
    service: Rc<S>,
    /// Dangling while in the handshake.
    connections: RefCell<Slab<Weak<Accepted>>>,
    fences: RefCell<Fences>,
}

/// Ends all connections of a server that is given up.
struct Closer<S>(Rc<Server<S>>);

impl<S> Drop for Closer<S> {
    fn drop(&mut self) {
        let connections = std::mem::take(&mut *self.0.connections.borrow_mut());
        for (_, connection) in connections {
            if let Some(connection) = connection.upgrade() {
                connection.close("the service stops");
            }
        }
    }
}

impl<S: Service> Server<S> {
    async fn accept_all(self: &Rc<Self>, tcp: &OwnedFd, kind: ListenerKind) {
        let local = if kind == ListenerKind::Local { Some(listen_beside(tcp).await) } else { None };
        let listener = local.as_ref().map_or(tcp, |(socket, _)| socket);
        loop {
            match op::accept(listener.as_raw_fd()).await {
                // Who comes from this host has no address but the one that it came to.
                Ok(socket) => match local.as_ref() {
                    Some((_, here)) => self.welcome(socket, *here),
                    None => match peer_address(socket) {
                        Ok((socket, address)) => self.welcome(socket, address),
                        Err(error) => debug!(%error, "a connection was gone before it was looked at"),
                    },
                },
                Err(error) => {
                    if let Some(left_out) = CANNOT_ACCEPT.is_due(ring::now()) {
                        warn!(%error, left_out, "cannot accept a connection");
                    }
                    ring::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn welcome(self: &Rc<Self>, socket: OwnedFd, address: SocketAddr) {
        let (count, most) = (self.connections.borrow().len(), self.limits.connections);
        if count >= most {
            return refuse(address, count, most, "too many at this address");
        }
        let Some(place) = self.limits.places.take() else {
            let (count, most) = self.limits.places.counts();
            return refuse(address, count, most, "too many for the process's descriptors");
        };
        let key = self.connections.borrow_mut().insert(Weak::new());
        let slot = ConnectionSlot { key, server: Rc::clone(self) };
        ring::spawn(slot.attend((socket, place), address));
    }
}

/// Of so many there are `count`.
fn refuse(peer: SocketAddr, count: usize, most: usize, reason: &str) {
    metrics::refused("full");
    if let Some(left_out) = TOO_MANY.is_due(ring::now()) {
        warn!(%peer, count, most, left_out, "refused a connection: {reason}");
    }
}

/// The local socket beside a TCP listener, and where it is. Its name may be taken for some moments, by a process that
/// was killed.
async fn listen_beside(tcp: &OwnedFd) -> (OwnedFd, SocketAddr) {
    let complain_at = ring::now() + LOCAL_PATIENCE;
    let mut complained = false;
    loop {
        match local::listen(tcp) {
            Ok(listening) => return listening,
            Err(error) if ring::now() >= complain_at && !complained => {
                warn!(%error, "no local socket yet: callers on this host use TCP");
                complained = true;
            }
            Err(_) => {}
        }
        ring::sleep(if complained { LOCAL_PATIENCE } else { BIND_PAUSE }).await;
    }
}

/// The socket again, and who is at its other end. A copy of it would need a descriptor more, and there may be none.
fn peer_address(socket: OwnedFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let stream = TcpStream::from(socket);
    let address = stream.peer_addr()?;
    Ok((stream.into(), address))
}

/// A connection's place in the server's list, for as long as it lives.
struct ConnectionSlot<S> {
    server: Rc<Server<S>>,
    key: usize,
}

impl<S> Drop for ConnectionSlot<S> {
    fn drop(&mut self) {
        self.server.connections.borrow_mut().try_remove(self.key);
    }
}

impl<S: Service> ConnectionSlot<S> {
    /// The whole life of a connection.
    async fn attend(self, (socket, place): (OwnedFd, Place), address: SocketAddr) {
        let server = &self.server;
        let order = server.fences.borrow_mut().accept();
        let machine = handshake::Responder::new(&server.identity);
        let established = match shake(socket.as_raw_fd(), machine, server.limits.handshake).await {
            Ok(established) => established,
            Err(reason) => return refusal::note(address, &reason),
        };
        let peer = PeerInfo { connection: next_connection(), address, name: established.peer.name.clone() };
        let (limits, epoch) = (server.limits.clone(), Rc::clone(&server.epoch));
        let connection = Rc::new(Accepted::new(peer, established, limits, (socket, place), epoch));
        match server.connections.borrow_mut().get_mut(self.key) {
            Some(place) => *place = Rc::downgrade(&connection),
            None => return, // The service stopped meanwhile.
        }
        if !server.fences.borrow_mut().begin(&connection, order) {
            return debug!(peer = %address, "a connection that its caller has given up before it began");
        }
        metrics::connected();
        debug!(peer = %address, name = connection.peer.name, "connected");
        ring::spawn(send(Rc::clone(&connection)));
        ring::spawn(watch(Rc::downgrade(&connection)));
        server.service.on_connect(&connection.peer);
        let end = receive(&connection, server).await;
        log_end(&connection, &end);
        server.service.on_disconnect(connection.peer.connection);
        metrics::disconnected();
    }
}

/// How a connection came to its end.
enum End {
    Closed,
    Io(io::Error),
    Frame(FrameError),
}

/// One line, and none where somebody else closed it and said why.
fn log_end(connection: &Accepted, end: &End) {
    let (peer, name) = (connection.peer.address, connection.peer.name.as_str());
    match end {
        End::Closed => {
            if connection.close("the other side has closed") {
                debug!(%peer, name, "disconnected");
            }
        }
        End::Io(reason) => {
            if connection.close(&reason.to_string()) {
                info!(%peer, name, %reason, "connection lost");
            }
        }
        End::Frame(reason) => {
            if connection.close(&reason.to_string()) {
                metrics::frame_refused(reason);
                warn!(%peer, name, %reason, "closed a connection that broke the protocol");
            }
        }
    }
}

async fn receive<S: Service>(connection: &Rc<Accepted>, server: &Rc<Server<S>>) -> End {
    let established = &connection.established;
    let receiver = Receiver::new(established.version, established.seed, Role::Requests);
    let mut inbound = Inbound::new(connection.socket(), receiver, connection.meter.clone());
    loop {
        match inbound.fill(&connection.pulse).await {
            Ok(true) => {}
            Ok(false) => return End::Closed,
            Err(error) => return End::Io(error),
        }
        loop {
            let incoming = match inbound.next() {
                Ok(Some(incoming)) => incoming,
                Ok(None) => break,
                Err(error) => return End::Frame(error),
            };
            if let Err(end) = take_request(connection, server, &inbound, incoming).await {
                return end;
            }
            connection.room().await;
            if connection.is_closed() {
                return End::Closed;
            }
        }
    }
}

async fn take_request<S: Service>(
    connection: &Rc<Accepted>,
    server: &Rc<Server<S>>,
    inbound: &Inbound,
    incoming: Incoming,
) -> Result<(), End> {
    let header = incoming.header;
    let payload = if incoming.missing == 0 {
        incoming.payload
    } else {
        let destination = Buf::with_capacity(header.payload_len as usize);
        inbound.finish(&incoming, destination, &connection.pulse).await.map_err(End::Io)?.freeze()
    };
    let sums = verify(&header, &payload).map_err(End::Frame)?;
    // From where a fence has ended it, nothing begins any more.
    if connection.is_closed() {
        return Err(End::Closed);
    }
    if matches!(header.op, Op::Fence | Op::FenceSession) {
        fence(server, header.op, connection.admit(&header), &incoming.body);
        return Ok(());
    }
    if header.op == Op::Share {
        connection.admit(&header).answer(connection.borrowing.take(&incoming.body).map(|()| Empty {}));
        return Ok(());
    }
    let (payload, room) = match header.flags & (flags::PLACED | flags::ROOM) {
        0 => (payload, None),
        flags::PLACED => (connection.borrowing.find(&payload).map_err(End::Frame)?.freeze(), None),
        flags::ROOM => (Slice::empty(), Some(connection.borrowing.find(&payload).map_err(End::Frame)?)),
        _ => return Err(End::Frame(FrameError::NoSuchPlace)),
    };
    if header.flags & flags::PLACED != 0 {
        metrics::placed(payload.len());
    }
    let mut responder = connection.admit(&header);
    responder.room = room.as_ref().and_then(Buf::place);
    let connection = connection.peer.connection;
    server.service.on_request(Request { header, body: incoming.body, payload, sums, room, connection, responder });
    Ok(())
}

/// Compares the payload with its checksum. What is written has one on the disk for each piece: these are had on the way.
fn verify(header: &Header, payload: &[u8]) -> Result<Option<Sums>, FrameError> {
    let sums_belong =
        header.op == Op::Write && header.flags & (flags::CHECKED | flags::PLACED | flags::ROOM) == flags::CHECKED;
    if !sums_belong {
        return check_payload(header, payload).map(|()| None);
    }
    let sums = Sums::of(payload);
    if sums.whole() == header.payload_crc { Ok(Some(sums)) } else { Err(FrameError::PayloadChecksum) }
}

/// Ends the named connection, or all of the named client, and answers when they are at rest.
fn fence<S: Service>(server: &Rc<Server<S>>, op: Op, mut responder: Responder, body: &Slice) {
    let ended = match op {
        Op::FenceSession => {
            // Callers without a session have none to end.
            let session = decode_body(body).ok().filter(|FenceSession { session }| session.0 != 0);
            session.map(|FenceSession { session }| {
                let ended = server.fences.borrow_mut().end_client(session.0);
                info!(%session, connections = ended.len(), "a client's session is over: its connections have ended");
                ended
            })
        }
        _ => {
            let id = decode_body(body).ok().and_then(|Fence { connection }| connection.0.try_into().ok());
            id.map(|id| server.fences.borrow_mut().end(id).into_iter().collect())
        }
    };
    let Some(ended) = ended else { return responder.fail(Status::Errno(Errno::EINVAL)) };
    // Two that end each other do not wait for each other.
    responder.park();
    ring::spawn(async move {
        for ended in ended {
            ended.at_rest().await;
        }
        responder.reply(&Empty {});
    });
}

async fn send(connection: Rc<Accepted>) {
    let result = connection.outbox.run(connection.socket(), &connection.meter, |sent| connection.sent(&sent)).await;
    if let Err(reason) = result
        && connection.close(&reason.to_string())
    {
        let (peer, name) = (connection.peer.address, connection.peer.name.as_str());
        info!(%peer, name, %reason, "connection lost while sending");
    }
}

/// Ends a connection that is silent, stuck in the middle of a frame, or does not take what it has asked for.
async fn watch(weak: Weak<Accepted>) {
    let Some(limits) = weak.upgrade().map(|connection| connection.limits.clone()) else { return };
    let (period, mut flow) = (limits.stall.min(limits.idle) / 4, Flow::new());
    loop {
        let before = ring::now();
        ring::sleep(period).await;
        let Some(connection) = weak.upgrade() else { return };
        if connection.is_closed() {
            return;
        }
        let now = ring::now();
        let still = flow.still(now, connection.tcp_signs().as_ref());
        if now.saturating_duration_since(before) >= 2 * period {
            // This thread stood still: what came meanwhile is still in the socket.
            continue;
        }
        let Some(reason) = why_given_up(&connection, now, still) else { continue };
        if connection.close(reason) {
            let (peer, name) = (connection.peer.address, connection.peer.name.as_str());
            warn!(%peer, name, reason, "connection given up");
        }
        return;
    }
}

/// `still`: for how long no bytes have moved.
fn why_given_up(connection: &Accepted, now: Instant, still: Duration) -> Option<&'static str> {
    let Limits { stall, idle, .. } = connection.limits;
    let silent = now.saturating_duration_since(connection.pulse.heard.get()).min(still);
    let sending = connection.outbox.sending_since().map(|since| now.saturating_duration_since(since).min(still));
    if connection.pulse.mid_frame.get() && silent >= stall {
        Some("stuck in the middle of a frame")
    } else if sending.is_some_and(|sending| sending >= stall) {
        Some("does not take the answers to what it asked")
    } else if silent >= idle && !connection.is_full() {
        // Of one that is full nothing is read. Others ask whether we live, also while they wait for an answer.
        Some("silent for too long")
    } else {
        None
    }
}
