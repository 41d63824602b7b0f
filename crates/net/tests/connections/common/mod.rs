//! A service that stores payloads in memory, and the two ends that break the rules.
#![allow(unreachable_pub, reason = "a module of a test")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use net::handshake::{Established, Initiator, Responder as Accepting, drive_blocking};
use net::{ClusterKey, ConnectionId, Identity, Limits, PeerInfo, Request, Responder, Service};
use ring::buf::{Buf, Slice};
use ring::sync::Semaphore;
use ring::{Config, Ring};
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, InodeId, ObjectId};
use wire::codec::{Wire, decode_body};
use wire::frame::{HEADER_LEN, Header, Status, crc32c, flags};
use wire::op::{Call, Op};
use wire::sums::Sums;
use wire::v1::session::Empty;
use wire::v1::storage;

pub fn run<F: Future>(main: F) -> F::Output {
    Ring::new(&Config::default())
        .unwrap()
        .run(async { ring::timeout(Duration::from_secs(60), main).await.expect("the test hangs") })
}

pub fn identity() -> Identity {
    identity_of(1, 1)
}

pub fn identity_of(key: u8, incarnation: u64) -> Identity {
    Identity {
        cluster: "cluster".to_owned(),
        incarnation,
        ..Identity::new(ClusterKey::from_bytes([key; 32]), "tester")
    }
}

pub fn object(stripe: u32) -> ObjectId {
    ObjectId { inode: InodeId(9), stripe }
}

/// Bytes.
pub const MEMORY: usize = 1 << 30;

/// Answers at once, unless `hold` is set: then requests wait in `held`, and with `park` at nobody's expense.
#[derive(Default)]
pub struct Store {
    pub objects: RefCell<BTreeMap<u32, Vec<u8>>>,
    pub hold: Cell<bool>,
    pub park: Cell<bool>,
    pub held: RefCell<Vec<Request>>,
    pub requests: Cell<usize>,
    memory: OnceCell<Rc<Semaphore>>,
    /// Reads answered in the caller's own memory.
    pub placed: Cell<usize>,
    pub connects: Cell<usize>,
    pub disconnects: RefCell<Vec<ConnectionId>>,
    pub names: RefCell<Vec<String>>,
    pub peers: RefCell<Vec<PeerInfo>>,
}

impl Store {
    /// Of what is read as one part.
    pub fn memory(&self) -> &Rc<Semaphore> {
        self.memory.get_or_init(|| Rc::new(Semaphore::new(MEMORY)))
    }

    pub fn answer(&self, request: Request) {
        let Request { header, body, payload, sums, room, responder, .. } = request;
        match header.op {
            Op::Write => {
                let write: storage::Write = decode_body(&body).unwrap();
                assert_eq!(sums, (header.flags & flags::CHECKED != 0).then(|| Sums::of(&payload)));
                self.objects.borrow_mut().insert(write.object.stripe, payload.to_vec());
                let (version, size) = (header.group.0.into(), payload.len() as u64);
                responder.reply(&storage::WriteReply { version, size, durable: false });
            }
            Op::Read => self.read(&body, room, responder),
            Op::Sync => drop(responder),
            Op::Remove => responder.fail(Status::Errno(Errno::ENOENT)),
            Op::Readlink => {
                let target = wire::codec::Bytes(vec![0; wire::frame::BODY_MAX]);
                responder.reply(&wire::v1::meta::ReadlinkReply { target });
            }
            _ => responder.reply(&Empty {}),
        }
    }

    /// In the caller's room, or in parts of different lengths, so that copied and referenced ones mix.
    fn read(&self, body: &[u8], room: Option<Buf>, responder: Responder) {
        let read: storage::Read = decode_body(body).unwrap();
        let objects = self.objects.borrow();
        let Some(data) = objects.get(&read.object.stripe) else {
            return responder.fail(Status::Errno(Errno::ENOENT));
        };
        let data = Slice::from_vec(data[..data.len().min(read.length as usize)].to_vec());
        if let Some(mut room) = room {
            room.truncate(data.len());
            room.copy_from_slice(&data);
            self.placed.set(self.placed.get() + 1);
            let size = data.len() as u64;
            return responder.reply_payload(&storage::ObjectReply { version: 0, size }, vec![room.freeze()]);
        }
        if data.len().is_multiple_of(2) {
            let (size, crc) = (data.len() as u64, crc32c(&data));
            let memory = self.memory().try_acquire(data.len()).unwrap();
            return responder.reply_summed(&storage::ObjectReply { version: 0, size }, data, Some(crc), memory);
        }
        let cut = data.len() / 7;
        let parts = vec![data.slice(0..cut), data.slice(cut..data.len())];
        responder.reply_payload(&storage::ObjectReply { version: 0, size: data.len() as u64 }, parts);
    }

    pub fn answer_held(&self) {
        let held = self.held.take();
        for request in held.into_iter().rev() {
            self.answer(request);
        }
    }
}

impl Service for Store {
    fn on_connect(self: &Rc<Self>, peer: &PeerInfo) {
        self.connects.set(self.connects.get() + 1);
        self.names.borrow_mut().push(peer.name.clone());
        self.peers.borrow_mut().push(peer.clone());
    }
    fn on_request(self: &Rc<Self>, mut request: Request) {
        self.requests.set(self.requests.get() + 1);
        if self.hold.get() {
            if self.park.get() {
                request.responder.park();
            }
            self.held.borrow_mut().push(request);
        } else {
            self.answer(request);
        }
    }
    fn on_disconnect(self: &Rc<Self>, connection: ConnectionId) {
        self.disconnects.borrow_mut().push(connection);
    }
}

/// A running server; dropping `stop` ends it with all of its connections.
pub struct Running {
    pub address: SocketAddr,
    pub store: Rc<Store>,
    pub epoch: Rc<Cell<Epoch>>,
    stop: Option<ring::sync::Sender<()>>,
}

impl Running {
    pub fn stop(&mut self) {
        self.stop = None;
    }
}

pub fn serve(limits: Limits) -> Running {
    serve_at("127.0.0.1:0".parse().unwrap(), identity(), limits)
}

pub fn serve_at(address: SocketAddr, identity: Identity, limits: Limits) -> Running {
    let (listener, address) = ring::op::listen(address).unwrap();
    serve_on(listener, address, identity, limits)
}

pub fn serve_on(listener: OwnedFd, address: SocketAddr, identity: Identity, limits: Limits) -> Running {
    let (store, epoch) = (Rc::new(Store::default()), Rc::new(Cell::new(Epoch(5))));
    let (stop, stopped) = ring::sync::oneshot();
    let serving = net::serve(listener, Rc::new(identity), limits, Rc::clone(&epoch), Rc::clone(&store));
    ring::spawn(async move {
        let (mut serving, mut stopped) = (pin!(serving), pin!(stopped));
        std::future::poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            serving.as_mut().poll(cx)
        })
        .await;
    });
    Running { address, store, epoch, stop: Some(stop) }
}

/// Polls until `condition` holds.
pub async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        ring::sleep(Duration::from_millis(2)).await;
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8).collect()
}

/// A blocking socket that did the handshake and then says what it likes.
pub struct Raw {
    pub stream: TcpStream,
    pub established: Established,
}

impl Raw {
    /// As a caller. Blocks: call it on another thread than the ring's.
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).unwrap())
    }

    pub fn over(mut stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let established = drive_blocking(&mut Initiator::new(&identity()), &mut stream).unwrap();
        Self { stream, established }
    }

    /// As one who is called.
    pub fn accept(listener: &TcpListener) -> Self {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let established = drive_blocking(&mut Accepting::new(&identity()), &mut stream).unwrap();
        Self { stream, established }
    }

    pub fn header(&self, op: Op, request: u64) -> Header {
        Header {
            version: self.established.version,
            op,
            flags: 0,
            status: Status::Ok,
            group: GroupId(1),
            request,
            generation: Generation(0),
            epoch: Epoch(0),
            body_len: 0,
            payload_len: 0,
            body_crc: crc32c(b""),
            payload_crc: 0,
        }
    }

    /// A whole frame with a message of `C` and a payload.
    pub fn frame<C: Call>(&self, request: u64, message: &C, payload: &[u8]) -> Vec<u8> {
        self.changed(request, message, payload, |_| ())
    }

    /// A whole frame with a message of `C` and a payload, after `change` to its header.
    pub fn changed<C: Call>(
        &self,
        request: u64,
        message: &C,
        payload: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Vec<u8> {
        let mut body = Vec::new();
        message.encode(&mut body);
        let mut header = self.header(C::OP, request);
        header.body_len = body.len() as u32;
        header.body_crc = crc32c(&body);
        header.payload_len = payload.len() as u32;
        change(&mut header);
        [&header.encode(self.established.seed)[..], &body, payload].concat()
    }

    /// The next frame from the other side: header, body, payload.
    pub fn read_frame(&mut self) -> std::io::Result<(Header, Vec<u8>, Vec<u8>)> {
        let mut head = [0; HEADER_LEN];
        self.stream.read_exact(&mut head)?;
        let header = Header::decode(&head, self.established.seed, self.established.version).unwrap();
        let (mut body, mut payload) = (vec![0; header.body_len as usize], vec![0; header.payload_len as usize]);
        self.stream.read_exact(&mut body)?;
        self.stream.read_exact(&mut payload)?;
        Ok((header, body, payload))
    }

    /// A reply to `request` with an encoded message and a payload.
    pub fn reply(&self, request: &Header, body: &[u8], payload: &[u8]) -> Vec<u8> {
        let header = Header {
            flags: flags::REPLY,
            body_len: body.len() as u32,
            body_crc: crc32c(body),
            payload_len: payload.len() as u32,
            ..*request
        };
        [&header.encode(self.established.seed)[..], body, payload].concat()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// True when the other side has closed: no byte more came.
    pub fn is_closed_by_peer(&mut self) -> bool {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

pub fn encode(message: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// Runs what blocks on another thread.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, mut receiver) = ring::mailbox::mailbox();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv().await.expect("the thread panicked")
}

/// Keeps the warnings that this thread logs.
pub mod log {
    use std::fmt::Write;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    #[derive(Clone, Default)]
    pub struct Warnings(Arc<Mutex<Vec<String>>>);

    impl Warnings {
        pub fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            write!(self.0, "{}={value:?} ", field.name()).unwrap();
        }
    }

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
}
