//! The answering side of one connection, and the right to answer one of its requests.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use ring::buf::Slice;
use ring::op::{self, TcpSigns};
use ring::shared::Place;
use ring::sync::{Notify, Permit};
use tracing::error;
use types::error::Errno;
use types::id::Epoch;
use wire::codec::Wire;
use wire::frame::{HEADER_LEN, Header, Status, flags};

use crate::handshake::Established;
use crate::inbound::Pulse;
use crate::limits::Limits;
use crate::metrics::{self, Meter};
use crate::outbox::{Outbox, Sent};
use crate::places;
use crate::sharing::{Borrowing, placed_reply};

/// One accepted connection, never used again within this process's thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// Who is at the other end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerInfo {
    pub connection: ConnectionId,
    pub address: SocketAddr,
    /// As it calls itself.
    pub name: String,
}

/// State that the tasks of a connection and its responders share.
pub(crate) struct Accepted {
    pub(crate) peer: PeerInfo,
    pub(crate) established: Established,
    pub(crate) limits: Limits,
    pub(crate) outbox: Outbox,
    pub(crate) pulse: Pulse,
    pub(crate) meter: Meter,
    pub(crate) borrowing: Borrowing,
    socket: OwnedFd,
    epoch: Rc<Cell<Epoch>>,
    /// Taken and their reply not sent.
    requests: Cell<usize>,
    /// Of those: their own bytes until they are answered, their reply's after.
    bytes: Cell<usize>,
    /// Handed out, neither answered nor parked: they may yet change something.
    at_work: Cell<usize>,
    rest: Notify,
    room: Notify,
    closed: RefCell<Option<String>>,
    /// After the socket, whose descriptor it stands for: requests that are not answered yet keep both.
    _place: places::Place,
}

impl Accepted {
    pub(crate) fn new(
        peer: PeerInfo,
        established: Established,
        limits: Limits,
        (socket, place): (OwnedFd, places::Place),
        epoch: Rc<Cell<Epoch>>,
    ) -> Self {
        Self {
            peer,
            established,
            limits,
            outbox: Outbox::default(),
            pulse: Pulse::new(),
            meter: Meter::accepted(&socket),
            borrowing: Borrowing::default(),
            socket,
            epoch,
            requests: Cell::new(0),
            bytes: Cell::new(0),
            at_work: Cell::new(0),
            rest: Notify::new(),
            room: Notify::new(),
            closed: RefCell::default(),
            _place: place,
        }
    }

    pub(crate) fn socket(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Ends the connection; false where it was ended before.
    pub(crate) fn close(&self, reason: &str) -> bool {
        if self.is_closed() {
            return false;
        }
        *self.closed.borrow_mut() = Some(reason.to_owned());
        // Wakes the tasks that wait in the kernel.
        op::shutdown(&self.socket);
        self.outbox.close();
        self.room.notify_all();
        true
    }

    /// A request was taken: the right to answer it.
    pub(crate) fn admit(self: &Rc<Self>, header: &Header) -> Responder {
        let cost = HEADER_LEN + header.body_len as usize + header.payload_len as usize;
        self.count(cost);
        self.at_work.set(self.at_work.get() + 1);
        Responder { connection: Rc::clone(self), request: *header, cost, room: None, parked: false, answered: false }
    }

    /// Waits until no request of this connection can change anything any more. Of those that are parked, whoever parks them
    /// sees to that.
    pub(crate) async fn at_rest(&self) {
        while self.at_work.get() > 0 {
            self.rest.notified().await;
        }
    }

    fn leave_work(&self) {
        self.at_work.set(self.at_work.get() - 1);
        if self.at_work.get() == 0 {
            self.rest.notify_all();
        }
    }

    /// Waits until another request may be taken, or the connection ends.
    pub(crate) async fn room(&self) {
        while self.is_full() && !self.is_closed() {
            self.room.notified().await;
        }
    }

    /// Nothing more is read of it before something is answered and sent.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.get() >= self.limits.requests || self.bytes.get() >= self.limits.bytes
    }

    /// What the kernel has counted, of a TCP connection.
    pub(crate) fn tcp_signs(&self) -> Option<TcpSigns> {
        op::tcp_signs(&self.socket)
    }

    pub(crate) fn sent(&self, sent: &Sent) {
        let was_full = self.is_full();
        self.requests.set(self.requests.get() - sent.frames);
        self.bytes.set(self.bytes.get() - sent.cost);
        if was_full && !self.is_full() {
            self.room.notify_one();
        }
    }

    fn count(&self, cost: usize) {
        self.requests.set(self.requests.get() + 1);
        self.bytes.set(self.bytes.get() + cost);
    }

    fn uncount(&self, cost: usize) {
        let was_full = self.is_full();
        self.requests.set(self.requests.get() - 1);
        self.bytes.set(self.bytes.get() - cost);
        if was_full && !self.is_full() {
            self.room.notify_one();
        }
    }

    /// The request's bytes are gone, the reply's wait to be sent.
    fn exchange_cost(&self, request: usize, reply: usize) {
        let was_full = self.is_full();
        self.bytes.set(self.bytes.get() - request + reply);
        if was_full && !self.is_full() {
            self.room.notify_one();
        }
    }
}

/// The right, and the duty, to answer one request. Dropped without, it answers `EIO`.
pub struct Responder {
    connection: Rc<Accepted>,
    request: Header,
    /// Bytes of the request.
    cost: usize,
    /// Where the caller would have the reply's payload.
    pub(crate) room: Option<Place>,
    /// Does not count against the connection's bounds.
    parked: bool,
    answered: bool,
}

impl Responder {
    pub fn reply<T: Wire>(self, message: &T) {
        self.reply_payload(message, Vec::new());
    }

    /// The payload is sent from where it is.
    pub fn reply_payload<T: Wire>(mut self, message: &T, payload: Vec<Slice>) {
        self.send(Status::Ok, |out| message.encode(out), payload, None);
    }

    /// As [`Self::reply_payload`], with the payload's CRC32C if it is known, and the permit for its memory, which is given
    /// back when it has left.
    pub fn reply_summed<T: Wire>(mut self, message: &T, payload: Slice, crc: Option<u32>, memory: Permit) {
        self.send(Status::Ok, |out| message.encode(out), vec![payload], crc);
        self.connection.outbox.hold(memory);
    }

    /// Answers that it did not work. `Status::Ok` becomes `EIO`: there is no success without a message.
    pub fn fail(mut self, status: Status) {
        let status = if status == Status::Ok { Status::Errno(Errno::EIO) } else { status };
        self.send(status, |_| (), Vec::new(), None);
    }

    /// The answer may take long: until then the request does not count against the connection's bounds, so that others
    /// can pass it. Whoever parks keeps the number of these small.
    pub fn park(&mut self) {
        if !std::mem::replace(&mut self.parked, true) {
            self.connection.uncount(self.cost);
            self.connection.leave_work();
        }
    }

    /// The other side is gone: nobody will see the answer.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// For what this crate answers itself.
    pub(crate) fn answer<T: Wire>(self, outcome: Result<T, Status>) {
        match outcome {
            Ok(message) => self.reply(&message),
            Err(status) => self.fail(status),
        }
    }

    fn send(&mut self, status: Status, encode: impl FnOnce(&mut Vec<u8>), mut payload: Vec<Slice>, crc: Option<u32>) {
        self.answered = true;
        if std::mem::replace(&mut self.parked, false) {
            self.connection.count(self.cost);
        } else {
            self.connection.leave_work();
        }
        let placed = placed_reply(self.room, &payload);
        let mut header = self.header(status);
        if let Some(place) = placed {
            metrics::placed(payload.iter().map(|part| part.len()).sum());
            payload = vec![place];
            header.flags |= flags::PLACED;
        } else if self.connection.limits.payload_sums && !payload.is_empty() {
            header.flags |= flags::CHECKED;
        }
        let cost = HEADER_LEN + payload.iter().map(|part| part.len()).sum::<usize>();
        self.connection.exchange_cost(self.cost, cost);
        let seed = self.connection.established.seed;
        if self.connection.outbox.push(header, seed, cost, encode, payload, crc).is_ok() {
            return;
        }
        error!(op = header.op.name(), peer = %self.connection.peer.address, "a reply longer than the protocol allows");
        self.connection.exchange_cost(cost, HEADER_LEN);
        let header = self.header(Status::Errno(Errno::EOVERFLOW));
        let pushed = self.connection.outbox.push(header, seed, HEADER_LEN, |_| (), Vec::new(), None);
        debug_assert!(pushed.is_ok(), "a header alone is never too long");
    }

    fn header(&self, status: Status) -> Header {
        Header {
            flags: flags::REPLY,
            status,
            epoch: self.connection.epoch.get(),
            body_len: 0,
            payload_len: 0,
            body_crc: 0,
            payload_crc: 0,
            ..self.request
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            metrics::unanswered();
            self.send(Status::Errno(Errno::EIO), |_| (), Vec::new(), None);
        }
    }
}
