//! What a client's lost connection had asked for, and what the next one waits for.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use metad::local::{LocalConfig, LocalShard};
use namespace::schema::transaction::ser_parts;
use namespace::transaction::part::Part;
use net::handshake::{Established, Initiator, drive_blocking};
use net::{Connection, Identity, Limits, To};
use types::attr::SetAttr;
use types::cred::Conditions;
use types::id::{InodeId, SessionId, ShardId, TransactionId};
use types::name::Name;
use wire::codec::Bytes;
use wire::frame::{Header, Status, crc32c};
use wire::op::Call;
use wire::v1::meta::{Exactly, GetAttr, Set};
use wire::v1::session::{Fence, Recalls, SessionOpen};
use wire::v1::transaction::Prepare;

use crate::common::{key, on_ring};

fn identity() -> Identity {
    Identity::new(key(), "test")
}

/// A connection that can be broken at any time.
struct Raw {
    stream: TcpStream,
    established: Established,
    sent: u64,
}

impl Raw {
    fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).expect("the shard listens");
        let established = drive_blocking(&mut Initiator::new(&identity()), &mut stream).expect("a handshake");
        Self { stream, established, sent: 0 }
    }

    fn send<C: Call>(&mut self, to: To, message: &C) {
        self.sent += 1;
        let mut body = Vec::new();
        message.encode(&mut body);
        let header = Header {
            version: self.established.version,
            op: C::OP,
            flags: 0,
            status: Status::Ok,
            group: to.group,
            request: self.sent,
            generation: to.generation,
            epoch: to.epoch,
            body_len: body.len() as u32,
            payload_len: 0,
            body_crc: crc32c(&body),
            payload_crc: 0,
        };
        let frame = [&header.encode(self.established.seed)[..], &body].concat();
        self.stream.write_all(&frame).expect("sent");
    }
}

/// Has a lease on the root directory's attributes, hears that it is wanted back, and does not give it back.
async fn hold_the_root(address: SocketAddr, to: To) -> Rc<Connection> {
    let silent = Rc::new(connect(address).await);
    silent.call(to, &SessionOpen::asking(SessionId(1), Vec::new(), 0, 1)).await.expect("a session");
    let listens = Rc::clone(&silent);
    ring::spawn(async move { drop(listens.call_patiently(to, &Recalls { done: Vec::new() }).await) });
    ring::sleep(Duration::from_millis(100)).await;
    let leased = silent.call(to, &GetAttr { inode: InodeId::ROOT }).await.expect("there").lease_ms;
    assert!(leased > 5000, "a lease of {leased} ms");
    silent
}

async fn connect(address: SocketAddr) -> Connection {
    Connection::connect(address, &identity(), &Limits::default()).await.expect("connected")
}

/// The next connection asks for the end of what `ask` sent on one that is lost by now, while it waits for the root's lease.
fn fence_behind(ask: impl FnOnce(&mut Raw, To) + Send + 'static) {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    let (address, to) = (shard.address(), shard.to());
    on_ring(|| async {
        let _silent = hold_the_root(address, to).await;
        let id = std::thread::spawn(move || {
            let mut raw = Raw::connect(address);
            ask(&mut raw, to);
            // Long enough to be taken up.
            std::thread::sleep(Duration::from_millis(300));
            raw.established.id
        });
        let id = id.join().expect("sent");
        let fence = Fence { connection: Bytes(id.to_vec()) };
        let next = connect(address).await;
        let fenced = ring::timeout(Duration::from_secs(3), next.call_patiently(To::default(), &fence)).await;
        fenced.expect("nobody waits for that any more").expect("fenced");
    });
    shard.stop().expect("stops in order");
}

#[test]
fn a_fence_does_not_wait_for_a_change_that_waits_for_a_lease() {
    fence_behind(|raw, to| {
        raw.send(to, &SessionOpen::asking(SessionId(2), Vec::new(), 0, 1));
        let exactly = Exactly { sequence: 1, answered_below: 1 };
        let change = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        raw.send(to, &Set { exactly, inode: InodeId::ROOT, change, inline: false, given: Conditions::default() });
    });
}

#[test]
fn a_fence_does_not_wait_for_another_shards_transaction_that_waits_for_a_lease() {
    fence_behind(|raw, to| {
        let name = Name::new(b"moved").expect("a name");
        let moved = Part::Entry { parent: InodeId::ROOT, name, becomes: None };
        let (parts, transaction) = (Bytes(ser_parts(&[moved])), TransactionId(InodeId::new(ShardId(1), 1).0));
        raw.send(to, &Prepare { session: SessionId(3), transaction, round: 0, parts });
    });
}
