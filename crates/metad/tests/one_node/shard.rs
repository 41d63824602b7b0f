//! A shard on a real RocksDB, driven over the loopback interface.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use metad::local::{GROUP, LocalConfig, LocalShard, TestTarget};
use net::{CallError, Connection, Identity, Limits, Request, To};
use types::attr::FileType;
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, InodeId, ObjectId, SessionId, TargetId};
use types::name::Name;
use types::time::AccessTimes;
use types::walk::{WalkEnd, WalkNames};
use wire::codec::{Bytes, DecodeError, Reader, Wire, decode_body};
use wire::frame::Status;
use wire::op::{Call, Op, Ping};
use wire::v1::meta::{
    Close, Create, Exactly, Fsync, GetAttr, InodeReply, Lookup, Mkdir, Open, ReadDir, Scan, SetXattr, StatFs, Unlink,
    Walk, WalkReply, WriteIntent,
};
use wire::v1::session::{Empty, HeldOpen, Recalls, SessionClose, SessionOpen, SessionOpened};
use wire::v1::storage::Remove;

use crate::common::{key, on_ring};

/// One client: a connection with a session on it.
struct Client {
    connection: Connection,
    to: To,
    session: SessionId,
    sequence: Cell<u64>,
}

impl Client {
    async fn connect(shard: &LocalShard, session: u64) -> Self {
        Self::connect_holding(shard, session, &[]).await.0
    }

    async fn connect_holding(shard: &LocalShard, session: u64, opens: &[HeldOpen]) -> (Self, SessionOpened) {
        let identity = Identity::new(key(), format!("test client {session}"));
        let connection =
            Connection::connect(shard.address(), &identity, &Limits::default()).await.expect("the shard listens");
        let client = Self { connection, to: shard.to(), session: SessionId(session), sequence: Cell::new(0) };
        // Each its own thread: what one does not answer any more, another is not meant to replace.
        static THREADS: AtomicU32 = AtomicU32::new(0);
        let thread = THREADS.fetch_add(1, Ordering::Relaxed);
        let asking = SessionOpen::asking(client.session, b"test".to_vec(), thread, 1);
        let open = SessionOpen { tells: !opens.is_empty(), opens: opens.to_vec(), ..asking };
        let opened = client.connection.call(client.to, &open).await.expect("a session");
        (client, opened)
    }

    fn exactly(&self) -> Exactly {
        self.sequence.set(self.sequence.get() + 1);
        Exactly { sequence: self.sequence.get(), answered_below: self.sequence.get() }
    }

    async fn call<C: wire::op::Call>(&self, request: &C) -> Result<C::Reply, CallError> {
        self.connection.call(self.to, request).await
    }

    async fn create(&self, text: &str) -> Result<Box<InodeReply>, CallError> {
        self.call(&create(self.exactly(), text)).await
    }

    async fn lookup(&self, text: &str) -> Result<Box<InodeReply>, CallError> {
        let looked = self.call(&Lookup { parent: InodeId::ROOT, name: name(text) }).await?;
        looked.found.ok_or(errno(Errno::ENOENT))
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn create(exactly: Exactly, text: &str) -> Create {
    Create {
        exactly,
        parent: InodeId::ROOT,
        name: name(text),
        kind: FileType::Regular,
        mode: 0o644,
        rdev: 0,
        cred: Credentials { uid: 1, gid: 2, umask: 0 },
        open: false,
        write_intent: false,
        exclusive: true,
        draft: false,
    }
}

fn errno(errno: Errno) -> CallError {
    CallError::Status(Status::Errno(errno))
}

#[test]
fn serves_the_namespace_and_keeps_it_across_a_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    let shard = LocalShard::start(&config).expect("starts");
    let made = on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        let made = client.create("file").await.expect("created");
        assert_eq!((made.attr.kind, made.attr.mode, made.attr.uid), (FileType::Regular, 0o644, 1));
        assert_eq!(made.layout.expect("of a new file").groups.len(), 1);
        assert_eq!(client.create("file").await.unwrap_err(), errno(Errno::EEXIST));
        let cred = Credentials::default();
        let mkdir = Mkdir { exactly: client.exactly(), parent: InodeId::ROOT, name: name("dir"), mode: 0o755, cred };
        let inside = client.call(&mkdir).await.expect("made").attr.inode;
        assert_eq!(client.call(&GetAttr { inode: inside }).await.expect("there").attr.kind, FileType::Directory);
        let list =
            ReadDir { inode: InodeId::ROOT, cookie: 0, count: 100, attributes: true, accesses: AccessTimes::Relatime };
        let page = client.call(&list).await.expect("listed");
        assert_eq!(page.entries.len(), 2);
        assert!(page.end && page.entries.iter().all(|entry| entry.attributes.is_some()));
        assert_eq!(client.call(&StatFs {}).await.expect("counted").inodes, 3);
        made.attr
    });
    shard.stop().expect("stops in order");
    config.incarnation += 1;
    let shard = LocalShard::start(&config).expect("starts again");
    on_ring(|| async {
        let client = Client::connect(&shard, 2).await;
        assert_eq!(client.lookup("file").await.expect("still there").attr, made);
    });
    shard.stop().expect("stops in order");
}

/// Any bytes as a request to walk.
struct Unreadable(Vec<u8>);

impl Wire for Unreadable {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(&self.0);
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::Truncated)
    }
}

impl Call for Unreadable {
    const OP: Op = Op::Walk;
    type Reply = WalkReply;
}

#[test]
fn walks_a_path_in_one_request_and_refuses_what_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        let mut at = InodeId::ROOT;
        let mut made = Vec::new();
        for text in ["a", "b", "c"] {
            let (exactly, cred) = (client.exactly(), Credentials::default());
            let mkdir = Mkdir { exactly, parent: at, name: name(text), mode: 0o755, cred };
            at = client.call(&mkdir).await.expect("made").attr.inode;
            made.push(at);
        }
        let walk = |texts: &[&str]| {
            let names = WalkNames::new(texts.iter().map(|text| name(text)).collect()).expect("a few");
            Walk { start: InodeId::ROOT, names, leases: false }
        };
        let walked = client.call(&walk(&["a", "b", "c"])).await.expect("walks");
        let found: Vec<InodeId> = walked.steps.iter().map(|step| step.attr.inode).collect();
        assert_eq!((found, walked.end), (made, WalkEnd::Found));
        let walked = client.call(&walk(&["a", "x", "c"])).await.expect("walks");
        assert_eq!((walked.steps.len(), walked.end), (1, WalkEnd::Absent));
        // Too many names, as a client that does not know the bound might send them.
        let mut many = Vec::new();
        InodeId::ROOT.encode(&mut many);
        vec![name("a"); 65].encode(&mut many);
        false.encode(&mut many);
        for bad in [many, Vec::new()] {
            let refused = client.call(&Unreadable(bad)).await;
            assert_eq!(refused.map(drop).unwrap_err(), errno(Errno::EPROTO));
        }
        client.call(&walk(&["a"])).await.expect("the connection is as good as before");
    });
    shard.stop().expect("stops in order");
}

#[test]
fn a_retry_after_a_kill_gets_the_first_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig::new(dir.path(), key());
    let shard = LocalShard::start(&config).expect("starts");
    let first = Exactly { sequence: 1, answered_below: 1 };
    let made = on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        let made = client.call(&create(first.clone(), "once")).await.expect("created");
        // The same change again, on the same connection.
        assert_eq!(client.call(&create(first.clone(), "once")).await.expect("the first answer").attr, made.attr);
        made
    });
    shard.kill().expect("ends");
    let shard = LocalShard::start(&LocalConfig { incarnation: 2, ..config.clone() }).expect("starts again");
    on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        assert_eq!(client.call(&create(first.clone(), "once")).await.expect("the first answer").attr, made.attr);
        let second = Exactly { sequence: 2, answered_below: 2 };
        assert_eq!(client.call(&create(second, "once")).await.unwrap_err(), errno(Errno::EEXIST));
        let unlink = Unlink {
            exactly: Exactly { sequence: 3, answered_below: 3 },
            parent: InodeId::ROOT,
            name: name("once"),
            given: Conditions::default(),
        };
        assert_eq!(client.call(&unlink).await.map(drop), Ok(()));
        assert_eq!(client.call(&unlink).await.map(drop), Ok(()), "not ENOENT");
    });
    shard.stop().expect("stops");
}

#[test]
fn requests_of_one_turn_share_a_batch_and_keep_their_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    on_ring(|| async {
        let client = Rc::new(Client::connect(&shard, 1).await);
        let calls = (0..200).map(|n| {
            let client = Rc::clone(&client);
            async move { client.create(&format!("file{n}")).await }
        });
        // All are sent before the first answer; each says that those before it are not answered yet.
        client.sequence.set(0);
        let made = ring::join_all(calls.map(|call| async { call.await.expect("created").attr.inode })).await;
        assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), 200);
        assert!(made.is_sorted(), "inodes in the order of the requests");
    });
    let text = shard.metrics().text();
    let count = |metric: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(metric)).expect("is shown");
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    };
    assert!(
        count("weft_commit_seconds_count") < 150.0,
        "200 creates in {} batches",
        count("weft_commit_seconds_count")
    );
    shard.stop().expect("stops");
}

#[test]
fn fsync_is_answered_when_the_log_is_on_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    // Only an fsync makes anything durable in this test.
    config.sync_interval = Duration::from_secs(3600);
    let shard = LocalShard::start(&config).expect("starts");
    on_ring(|| async {
        let client = Rc::new(Client::connect(&shard, 1).await);
        let inode = client.create("file").await.expect("created").attr.inode;
        let before = syncs(&shard);
        assert_eq!(client.call(&Fsync { inode, inline: false }).await, Ok(Empty {}));
        assert_eq!(syncs(&shard), before + 1);
        assert_eq!(client.call(&Fsync { inode, inline: false }).await, Ok(Empty {}));
        assert_eq!(syncs(&shard), before + 1, "nothing has changed since");
        client.create("more").await.expect("created");
        let both = (0..50).map(|_| async { client.call(&Fsync { inode, inline: false }).await });
        assert!(ring::join_all(both).await.iter().all(Result::is_ok));
        let served = syncs(&shard) - before;
        assert!((2..=3).contains(&served), "one sync serves all who wait, not {served}");
    });
    shard.stop().expect("stops");
}

fn syncs(shard: &LocalShard) -> u64 {
    let text = shard.metrics().text();
    let line = text.lines().find(|line| line.starts_with("weft_sync_seconds_count")).expect("is shown");
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

#[test]
fn wrong_addressees_and_unknown_sessions_are_told_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    on_ring(|| async {
        let mut client = Client::connect(&shard, 1).await;
        let right = client.to;
        client.to = To { generation: Generation(99), ..right };
        assert_eq!(client.lookup("x").await.unwrap_err(), CallError::Status(Status::StaleMap));
        client.to = To { group: types::id::GroupId(1), ..right };
        assert_eq!(client.lookup("x").await.unwrap_err(), CallError::Status(Status::StaleMap));
        assert_eq!(client.call(&Ping {}).await, Ok(Empty {}), "a ping is for everybody");
        client.to = right;
        assert_eq!(client.lookup("x").await.unwrap_err(), errno(Errno::ENOENT));
        assert_eq!(client.call(&SessionClose { session: client.session }).await, Ok(Empty {}));
        assert_eq!(client.lookup("x").await.unwrap_err(), CallError::Status(Status::NoSession));
        assert_eq!(client.create("x").await.unwrap_err(), CallError::Status(Status::NoSession));
        let garbage = Remove { object: ObjectId { inode: InodeId::ROOT, stripe: 0 } };
        assert_eq!(client.call(&garbage).await.unwrap_err(), CallError::Status(Status::NoSession));
    });
    // A tool without a session may look, and change nothing.
    on_ring(|| async {
        let identity = Identity::new(key(), "tool");
        let connection = Connection::connect(shard.address(), &identity, &Limits::default()).await.expect("connects");
        let scan = Scan { after: Bytes(Vec::new()), count: 100 };
        assert!(!connection.call(shard.to(), &scan).await.expect("scanned").records.is_empty());
        let refused = connection.call(shard.to(), &create(Exactly { sequence: 1, answered_below: 1 }, "x")).await;
        assert_eq!(refused.unwrap_err(), CallError::Status(Status::NoSession));
    });
    // A newer generation fences off those who know only the old one.
    let old = shard.to();
    shard.change_map(|map| map.groups.get_mut(&GROUP).expect("there").generation = Generation(2));
    on_ring(|| async {
        let client = connect_when_ready(&shard).await;
        let stale = client.connection.call(old, &Lookup { parent: InodeId::ROOT, name: name("x") }).await;
        assert_eq!(stale.unwrap_err(), CallError::Status(Status::StaleMap));
        assert_eq!(client.connection.epoch_seen(), Epoch(2));
    });
    shard.stop().expect("stops");
}

/// The map goes to the shard's thread by a mailbox: it may take a moment.
async fn connect_when_ready(shard: &LocalShard) -> Client {
    let identity = Identity::new(key(), "test");
    let connection = Connection::connect(shard.address(), &identity, &Limits::default()).await.expect("connects");
    let open = SessionOpen::asking(SessionId(5), Vec::new(), 0, 1);
    for _ in 0..1000 {
        match connection.call(shard.to(), &open).await {
            Ok(_) => return Client { connection, to: shard.to(), session: SessionId(5), sequence: Cell::new(0) },
            Err(CallError::Status(Status::StaleMap)) => ring::sleep(Duration::from_millis(5)).await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the new map does not arrive");
}

#[test]
fn an_unlinked_open_file_lives_across_a_kill_until_its_holder_closes() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig::new(dir.path(), key());
    let shard = LocalShard::start(&config).expect("starts");
    let (inode, first) = on_ring(|| async {
        let (client, first) = Client::connect_holding(&shard, 1, &[]).await;
        let inode = client.create("file").await.expect("created").attr.inode;
        client.call(&Open { inode, contents: false }).await.expect("opened");
        let unlink = Unlink {
            exactly: client.exactly(),
            parent: InodeId::ROOT,
            name: name("file"),
            given: Conditions::default(),
        };
        client.call(&unlink).await.expect("unlinked");
        assert_eq!(client.call(&GetAttr { inode }).await.expect("still open").attr.nlink, 0);
        (inode, first)
    });
    shard.kill().expect("ends");
    let shard = LocalShard::start(&LocalConfig { incarnation: 2, ..config }).expect("starts again");
    on_ring(|| async {
        let held = [HeldOpen { inode, write_intent: false, draft: false }];
        let (client, opened) = Client::connect_holding(&shard, 1, &held).await;
        assert!(opened.incarnation > first.incarnation);
        assert_eq!(client.call(&GetAttr { inode }).await.expect("still open").attr.nlink, 0);
        assert_eq!(client.call(&Close { inode, read: None }).await, Ok(Empty {}));
        assert_eq!(client.call(&GetAttr { inode }).await.unwrap_err(), errno(Errno::ESTALE));
    });
    shard.stop().expect("stops");
}

#[test]
fn a_silent_session_expires() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    config.session_expiry = Duration::from_millis(600);
    let shard = LocalShard::start(&config).expect("starts");
    on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        client.create("file").await.expect("created");
        // A shard that had no CPU itself takes nobody for silent: each look comes after a longer silence than it allows.
        let begun = Instant::now();
        loop {
            ring::sleep(Duration::from_millis(2000)).await;
            if let Err(error) = client.lookup("file").await {
                assert_eq!(error, CallError::Status(Status::NoSession));
                break;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it is believed to be there");
        }
    });
    shard.stop().expect("stops");
}

/// A storage lane that only removes, and not at the first time.
struct Storage {
    failures: Cell<u32>,
    removed: RefCell<Vec<ObjectId>>,
}

impl net::Service for Storage {
    fn on_request(self: &Rc<Self>, request: Request) {
        assert_eq!(request.header.op, Op::Remove);
        if self.failures.get() > 0 {
            self.failures.set(self.failures.get() - 1);
            request.responder.fail(Status::Errno(Errno::EIO));
            return;
        }
        let message: Remove = decode_body(&request.body).expect("a good message");
        self.removed.borrow_mut().push(message.object);
        request.responder.reply(&Empty {});
    }
}

#[test]
fn objects_of_removed_files_go_though_storage_fails_and_the_shard_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    let (listener, address) = ring::op::listen(([127, 0, 0, 1], 0).into()).expect("a port");
    config.storage = vec![TestTarget { id: TargetId(1), port: address.port() }];
    let shard = LocalShard::start(&config).expect("starts");
    // Nobody answers at the port yet.
    on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        for n in 0..10 {
            let inode = client.create(&format!("file{n}")).await.expect("created").attr.inode;
            client
                .call(&WriteIntent { exactly: client.exactly(), inode, cuts: false, draft: false })
                .await
                .expect("intended");
            let unlink = Unlink {
                exactly: client.exactly(),
                parent: InodeId::ROOT,
                name: name(&format!("file{n}")),
                given: Conditions::default(),
            };
            client.call(&unlink).await.expect("unlinked");
        }
        assert_eq!(deletions(&client).await, 10);
        client.call(&SessionClose { session: client.session }).await.expect("closed");
    });
    shard.kill().expect("ends");
    config.incarnation = 2;
    let shard = LocalShard::start(&config).expect("starts again");
    on_ring(|| async {
        let storage = Rc::new(Storage { failures: Cell::new(3), removed: RefCell::default() });
        let identity = Identity { incarnation: 1, ..Identity::new(key(), "storage") };
        let epoch = Rc::new(Cell::new(Epoch(1)));
        ring::spawn(net::serve(listener, Rc::new(identity), Limits::default(), epoch, Rc::clone(&storage)));
        let client = Client::connect(&shard, 2).await;
        let mut left = 10;
        for _ in 0..1500 {
            left = deletions(&client).await;
            if left == 0 {
                break;
            }
            ring::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(left, 0);
        let removed: BTreeSet<ObjectId> = storage.removed.borrow().iter().copied().collect();
        assert_eq!(removed.len(), 10);
    });
    shard.stop().expect("stops");
}

/// A pass over what is to be removed does not begin with the first inode again.
#[test]
fn objects_of_older_files_go_also_after_those_of_younger_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    let (listener, address) = ring::op::listen(([127, 0, 0, 1], 0).into()).expect("a port");
    config.storage = vec![TestTarget { id: TargetId(1), port: address.port() }];
    let shard = LocalShard::start(&config).expect("starts");
    on_ring(|| async {
        let storage = Rc::new(Storage { failures: Cell::new(1), removed: RefCell::default() });
        let identity = Identity { incarnation: 1, ..Identity::new(key(), "storage") };
        let epoch = Rc::new(Cell::new(Epoch(1)));
        ring::spawn(net::serve(listener, Rc::new(identity), Limits::default(), epoch, Rc::clone(&storage)));
        let client = Client::connect(&shard, 1).await;
        for n in 0..4 {
            let inode = client.create(&format!("file{n}")).await.expect("created").attr.inode;
            let intent = WriteIntent { exactly: client.exactly(), inode, cuts: false, draft: false };
            client.call(&intent).await.expect("intended");
        }
        for n in (0..4).rev() {
            let unlink = Unlink {
                exactly: client.exactly(),
                parent: InodeId::ROOT,
                name: name(&format!("file{n}")),
                given: Conditions::default(),
            };
            client.call(&unlink).await.expect("unlinked");
            let mut left = deletions(&client).await;
            for _ in 0..1500 {
                if left == 0 {
                    break;
                }
                ring::sleep(Duration::from_millis(10)).await;
                left = deletions(&client).await;
            }
            assert_eq!((left, storage.removed.borrow().len()), (0, 4 - n));
        }
    });
    shard.stop().expect("stops");
}

#[test]
fn what_lay_on_a_group_that_was_deleted_waits_for_no_removal() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    let group = GroupId(1);
    let left_after = |shard: &LocalShard, session, wait| {
        on_ring(|| async {
            let client = Client::connect(shard, session).await;
            let mut left = deletions(&client).await;
            for _ in 0..wait {
                if left == 0 {
                    break;
                }
                ring::sleep(Duration::from_millis(10)).await;
                left = deletions(&client).await;
            }
            left
        })
    };
    // Nobody answers there.
    on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        let inode = client.create("file").await.expect("created").attr.inode;
        let intent = WriteIntent { exactly: client.exactly(), inode, cuts: false, draft: false };
        client.call(&intent).await.expect("intended");
        let unlink = Unlink {
            exactly: client.exactly(),
            parent: InodeId::ROOT,
            name: name("file"),
            given: Conditions::default(),
        };
        client.call(&unlink).await.expect("unlinked");
        client.call(&SessionClose { session: client.session }).await.expect("closed");
    });
    shard.change_map(|map| drop(map.groups.remove(&group)));
    assert_eq!(left_after(&shard, 2, 50), 1, "it may be one that is not known yet");
    shard.change_map(|map| map.deleted_groups.extend([group]));
    assert_eq!(left_after(&shard, 3, 1500), 0);
    shard.stop().expect("stops");
}

async fn deletions(client: &Client) -> usize {
    let page = client.call(&Scan { after: Bytes(Vec::new()), count: 1000 }).await.expect("scanned");
    page.records.iter().filter(|record| record.deletion.is_some()).count()
}

#[test]
fn a_client_that_is_known_reads_over_a_new_connection_when_the_directory_is_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    on_ring(|| async {
        let client = Client::connect(&shard, 1).await;
        client.create("file").await.expect("made");
        let (path, aside) = (dir.path().join(conf::identity::IDENTITY_FILE), dir.path().join("aside"));
        std::fs::rename(&path, &aside).expect("moved");
        let (begun, mut number) = (Instant::now(), 0);
        while client.create(&format!("{number}")).await.map(drop) != Err(errno(Errno::EIO)) {
            assert!(begun.elapsed() < Duration::from_secs(30), "nobody has looked");
            ring::sleep(Duration::from_millis(100)).await;
            number += 1;
        }
        let again = Client::connect(&shard, 1).await;
        again.lookup("file").await.expect("read");
        let asking = SessionOpen::asking(SessionId(2), b"new".to_vec(), 0, 1);
        assert_eq!(again.call(&asking).await.map(drop), Err(errno(Errno::EIO)), "that would be written");
        std::fs::rename(&aside, &path).expect("moved back");
    });
    shard.kill().expect("ends");
}

#[test]
fn below_the_reserve_nothing_grows_and_removing_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    let shard = LocalShard::start(&config).expect("starts");
    let made = on_ring(|| async { Client::connect(&shard, 1).await.create("file").await.expect("created") });
    shard.stop().expect("stops");
    (config.incarnation, config.reserve_bytes) = (2, u64::MAX);
    let shard = LocalShard::start(&config).expect("starts with a full disk");
    on_ring(|| async {
        let earlier = Client::connect(&shard, 1).await;
        let client = Client::connect(&shard, 2).await;
        let mut refused = Ok(());
        for n in 0..200 {
            refused = client.create(&format!("new{n}")).await.map(|_| ());
            if refused.is_err() {
                break;
            }
            ring::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(refused.unwrap_err(), errno(Errno::ENOSPC));
        assert!(client.lookup("file").await.is_ok());
        let again = earlier.create("file").await.map(|reply| reply.attr.inode);
        assert_eq!(again, Ok(made.attr.inode), "what happened is answered as it was");
        let unlink = Unlink {
            exactly: client.exactly(),
            parent: InodeId::ROOT,
            name: name("file"),
            given: Conditions::default(),
        };
        assert_eq!(client.call(&unlink).await.map(drop), Ok(()));
    });
    shard.stop().expect("stops");
}

#[test]
fn two_shards_on_one_directory_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig::new(dir.path(), key());
    let shard = LocalShard::start(&config).expect("starts");
    let second = LocalShard::start(&config).map(|_| ()).unwrap_err();
    assert!(second.to_string().contains("another service"), "{second}");
    shard.stop().expect("stops");
}

/// What a session is given counts after a power cut only where the session itself is on disk.
#[test]
fn a_session_is_on_disk_when_its_client_is_told_that_it_is_open() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig { sync_interval: Duration::from_secs(600), ..LocalConfig::new(dir.path(), key()) };
    let shard = LocalShard::start(&config).expect("starts");
    on_ring(|| async {
        let _client = Client::connect(&shard, 1).await;
        assert_eq!(syncs(&shard), 1);
        // Another of its threads, and one that comes again.
        let client = Client::connect(&shard, 1).await;
        assert_eq!(syncs(&shard), 1, "it is known to be there");
        client.create("file").await.expect("made");
        let _again = Client::connect(&shard, 1).await;
        assert_eq!(syncs(&shard), 1, "what else it does waits for nobody");
        let _other = Client::connect(&shard, 2).await;
        assert_eq!(syncs(&shard), 2);
    });
    shard.stop().expect("stops in order");
}

/// One that listens and never gives a lease back.
async fn holder(shard: &LocalShard, session: u64) -> Rc<Client> {
    let holder = Rc::new(Client::connect(shard, session).await);
    let listening = Rc::clone(&holder);
    ring::spawn(async move {
        let _ = listening.connection.call_patiently(listening.to, &Recalls { done: Vec::new() }).await;
    });
    while holder.call(&GetAttr { inode: InodeId::ROOT }).await.expect("told").lease_ms == 0 {
        ring::sleep(Duration::from_millis(5)).await;
    }
    holder
}

fn set_xattr(exactly: Exactly, inode: InodeId, len: usize) -> SetXattr {
    SetXattr {
        exactly,
        inode,
        name: Bytes(b"user.long".to_vec()),
        value: Bytes(vec![7; len]),
        flags: 0,
        given: Conditions::default(),
    }
}

#[test]
fn those_who_wait_leave_room_for_others_and_what_is_refused_does_not_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig { lease_term: Duration::from_secs(50), ..LocalConfig::new(dir.path(), key()) };
    let shard = LocalShard::start(&config).expect("starts");
    on_ring(|| async {
        let other = Client::connect(&shard, 1).await;
        let file = other.create("file").await.expect("made").attr.inode;
        let _holder = holder(&shard, 2).await;
        let too_long = set_xattr(other.exactly(), InodeId::ROOT, 1 << 20);
        assert_eq!(other.call(&too_long).await.map(drop), Err(errno(Errno::E2BIG)), "at once");

        let (refused, total) = (Rc::new(Cell::new(0)), 6 * 200);
        for session in 10..16 {
            let client = Rc::new(Client::connect(&shard, session).await);
            for sequence in 1..=200 {
                let (client, refused) = (Rc::clone(&client), Rc::clone(&refused));
                ring::spawn(async move {
                    let exactly = Exactly { sequence, answered_below: 1 };
                    let answer = client.call(&set_xattr(exactly, InodeId::ROOT, 65_000)).await;
                    assert_eq!(answer.map(drop), Err(CallError::Status(Status::Busy)));
                    refused.set(refused.get() + 1);
                });
            }
        }
        // More than all that may wait for a turn: so many are refused, and then no more.
        let waiting = || (total - refused.get()) * 65_000;
        let begun = Instant::now();
        while waiting() > 32 << 20 && begun.elapsed() < Duration::from_secs(40) {
            ring::sleep(Duration::from_millis(10)).await;
        }
        ring::sleep(Duration::from_millis(300)).await;
        let waiting = waiting();
        assert!(waiting > 16 << 20 && waiting <= 32 << 20, "{waiting} bytes wait");
        assert_eq!(other.call(&set_xattr(other.exactly(), file, 65_000)).await.map(drop), Ok(()));
    });
    shard.kill().expect("ends");
}
