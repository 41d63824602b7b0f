//! What other shards ask of one together, over the loopback interface: each message has an answer of its own.

use std::cell::{Cell, RefCell};
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use metad::local::{LocalConfig, LocalShard, TestTarget};
use namespace::schema::edge::Edge;
use namespace::schema::transaction::{ser_parts, ser_votes};
use namespace::transaction::part::{Moved, Part, Vote};
use net::{CallError, Connection, Identity, Limits, Request, Responder, To};
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::id::{Epoch, GroupId, InodeId, SessionId, ShardId, TargetId, TransactionId};
use types::name::Name;
use types::time::AccessTimes;
use wire::codec::Bytes;
use wire::frame::Status;
use wire::op::{Call, Op};
use wire::v1::meta::{Create, Exactly, GetAttr, Link, ReadDir};
use wire::v1::session::SessionOpen;
use wire::v1::transaction::{Ending, Finish, Prepare, Prepared, Promise, Transact, Transacted};

use crate::common::{key, on_ring};

const SESSION: SessionId = SessionId(1);

struct Asker {
    connection: Connection,
    to: To,
}

impl Asker {
    async fn connect(shard: &LocalShard) -> Self {
        let identity = Identity::new(key(), "another shard");
        let connected = Connection::connect(shard.address(), &identity, &Limits::default()).await;
        Self { connection: connected.expect("the shard listens"), to: shard.to() }
    }

    async fn call<C: Call>(&self, request: &C) -> Result<C::Reply, CallError> {
        self.connection.call(self.to, request).await
    }

    async fn make_file(&self) -> InodeId {
        self.call(&SessionOpen::asking(SESSION, b"test".to_vec(), 0, 1)).await.expect("a session");
        let create = Create {
            exactly: Exactly { sequence: 1, answered_below: 1 },
            parent: InodeId::ROOT,
            name: Name::new(b"file").expect("a name"),
            kind: FileType::Regular,
            mode: 0o644,
            rdev: 0,
            cred: Credentials { uid: 1, gid: 2, umask: 0 },
            open: false,
            write_intent: false,
            exclusive: true,
            draft: false,
        };
        self.call(&create).await.expect("made").attr.inode
    }

    async fn transact(&self, finishes: Vec<Finish>, prepares: Vec<Prepare>) -> Transacted {
        self.call(&Transact { finishes, prepares }).await.expect("answered")
    }
}

/// Of another shard.
fn transaction(number: u64) -> TransactionId {
    TransactionId(InodeId::new(ShardId(1), number).0)
}

fn prepare(number: u64, part: Part) -> Prepare {
    let parts = Bytes(ser_parts(&[part]));
    Prepare { session: SESSION, transaction: transaction(number), round: 0, parts }
}

fn finish(number: u64, commit: bool) -> Finish {
    Finish { transaction: transaction(number), commit, made: None }
}

fn given(vote: Vote) -> Promise {
    Promise::Given(Bytes(ser_votes(&[vote])))
}

#[test]
fn each_message_of_a_bundle_has_its_own_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    on_ring(|| async {
        let asker = Asker::connect(&shard).await;
        let file = asker.make_file().await;
        let link = Part::Link { inode: file, parent: InodeId::ROOT };
        let prepares = vec![
            prepare(1, Part::Token),
            prepare(2, Part::Token),
            prepare(3, Part::Unlink(InodeId(file.0 + 1000))),
            prepare(4, link.clone()),
            prepare(5, link.clone()),
        ];
        let answer = asker.transact(Vec::new(), prepares).await;
        let linked = given(Vote::Inode(FileType::Regular));
        let missing = Promise::Refused(Errno::EIO);
        let promises = vec![given(Vote::Token), Promise::Waits, missing, linked.clone(), Promise::Again];
        assert_eq!(answer, Transacted { endings: Vec::new(), promises });

        // What was never promised is done. What ends in this very turn is free after it.
        let finishes = vec![finish(1, false), finish(4, true), finish(9, true)];
        let answer = asker.transact(finishes, vec![prepare(5, link.clone())]).await;
        assert_eq!(answer, Transacted { endings: vec![Ending::Done; 3], promises: vec![Promise::Again] });
        let answer = asker.transact(Vec::new(), vec![prepare(5, link), prepare(6, Part::Token)]).await;
        let promises = vec![linked, given(Vote::Token)];
        assert_eq!(answer, Transacted { endings: Vec::new(), promises });
        let answer = asker.transact(vec![finish(5, false), finish(6, false)], Vec::new()).await;
        assert_eq!(answer, Transacted { endings: vec![Ending::Done; 2], promises: Vec::new() });
        let made = |made| Finish { made: Some(made), ..finish(9, true) };
        let finishes = vec![made(file), made(InodeId(file.0 + 1000))];
        let answer = asker.transact(finishes, Vec::new()).await;
        assert_eq!(answer, Transacted { endings: vec![Ending::Done, Ending::Lost], promises: Vec::new() });
        let attr = asker.call(&GetAttr { inode: file }).await.expect("there").attr;
        assert_eq!(attr.nlink, 2, "one link was decided, one given up");
    });
    shard.stop().expect("stops in order");
}

#[test]
fn what_cannot_be_read_is_refused_as_a_whole_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    on_ring(|| async {
        let asker = Asker::connect(&shard).await;
        let spoilt = Prepare { parts: Bytes(vec![99]), ..prepare(2, Part::Token) };
        let refused =
            asker.call(&Transact { finishes: Vec::new(), prepares: vec![prepare(1, Part::Token), spoilt] }).await;
        assert_eq!(refused, Err(CallError::Status(Status::Errno(Errno::EPROTO))));
        let answer = asker.transact(Vec::new(), vec![prepare(3, Part::Token)]).await;
        assert_eq!(answer.promises, [given(Vote::Token)], "nobody has it");
    });
    shard.stop().expect("stops in order");
}

#[test]
fn below_the_reserve_nothing_is_promised_that_grows() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = LocalConfig { reserve_bytes: u64::MAX, ..LocalConfig::new(dir.path(), key()) };
    let shard = LocalShard::start(&config).expect("starts with a full disk");
    on_ring(|| async {
        let asker = Asker::connect(&shard).await;
        let edge = Edge { child: InodeId::new(ShardId(1), 20), kind: FileType::Regular };
        let entry =
            || Part::Entry { parent: InodeId::ROOT, name: Name::new(b"x").expect("a name"), becomes: Some(edge) };
        let take = || Part::Take { part: InodeId(77), moved: Moved { from: 0, to: 1, entries: Vec::new() } };
        let mut number = 0;
        let promises = loop {
            let promised = asker.transact(Vec::new(), vec![prepare(number, take())]).await.promises;
            if promised == [Promise::Refused(Errno::ENOSPC)] || number > 200 {
                break promised;
            }
            asker.transact(vec![finish(number, false)], Vec::new()).await;
            number += 1;
            // The disk is looked at now and then.
            ring::sleep(Duration::from_millis(10)).await;
        };
        assert_eq!(promises, [Promise::Refused(Errno::ENOSPC)]);
        let alone = asker.call(&prepare(300, take())).await;
        assert_eq!(alone.map(drop), Err(CallError::Status(Status::Errno(Errno::ENOSPC))));
        let promises = asker.transact(Vec::new(), vec![prepare(301, entry())]).await.promises;
        assert_eq!(promises, [given(Vote::Entry(None))], "names may be moved there");
    });
    shard.stop().expect("stops in order");
}

#[test]
fn what_an_outdated_connection_had_asked_for_is_given_up() {
    let dir = tempfile::tempdir().expect("a directory");
    // Another shard, which never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let storage = vec![TestTarget { id: TargetId(1), port }];
    let config = LocalConfig { storage, ..LocalConfig::new(dir.path(), key()) };
    let mut shard = LocalShard::start(&config).expect("starts");
    shard.change_map(|map| {
        map.shards.insert(ShardId(1), GroupId(1));
    });
    on_ring(|| async {
        let (earlier, later) = (Asker::connect(&shard).await, Asker::connect(&shard).await);
        let file = earlier.make_file().await;
        let link = |sequence, inode| Link {
            exactly: Exactly { sequence, answered_below: 2 },
            inode,
            parent: InodeId::ROOT,
            name: Name::new(b"link").expect("a name"),
        };
        // Nothing is decided, and the name is locked.
        let undecided = link(2, InodeId::new(ShardId(1), 20));
        ring::spawn(async move { drop(earlier.call(&undecided).await) });
        ring::sleep(Duration::from_millis(100)).await;
        later.call(&SessionOpen::asking(SESSION, b"test".to_vec(), 0, 2)).await.expect("the same thread");
        let linked = ring::timeout(Duration::from_secs(3), later.call(&link(3, file))).await;
        linked.expect("nobody waits for the name any more").expect("linked");
    });
    shard.stop().expect("stops in order");
}

/// Keeps its promise back until it is asked for it.
#[derive(Default)]
struct Hesitant(RefCell<Option<Responder>>);

impl net::Service for Hesitant {
    fn on_request(self: &Rc<Self>, request: Request) {
        if request.header.op == Op::Prepare {
            *self.0.borrow_mut() = Some(request.responder);
        }
    }
}

#[test]
fn nothing_comes_of_what_a_shard_that_stops_says_it_has_not_done() {
    let dir = tempfile::tempdir().expect("a directory");
    let (listener, address) = ring::op::listen(([127, 0, 0, 1], 0).into()).expect("a port");
    let storage = vec![TestTarget { id: TargetId(1), port: address.port() }];
    let mut config = LocalConfig { storage, ..LocalConfig::new(dir.path(), key()) };
    let mut shard = LocalShard::start(&config).expect("starts");
    shard.change_map(|map| {
        map.shards.insert(ShardId(1), GroupId(1));
    });
    on_ring(|| async {
        let other = Rc::new(Hesitant::default());
        let identity = Identity { incarnation: 1, ..Identity::new(key(), "shard 1") };
        let epoch = Rc::new(Cell::new(Epoch(2)));
        ring::spawn(net::serve(listener, Rc::new(identity), Limits::default(), epoch, Rc::clone(&other)));
        let asker = Rc::new(Asker::connect(&shard).await);
        asker.make_file().await;
        let link = Link {
            exactly: Exactly { sequence: 2, answered_below: 2 },
            inode: InodeId::new(ShardId(1), 20),
            parent: InodeId::ROOT,
            name: Name::new(b"link").expect("a name"),
        };
        let answer = Rc::new(Cell::new(None));
        let (asking, told) = (Rc::clone(&asker), Rc::clone(&answer));
        ring::spawn(async move { told.set(Some(asking.call(&link).await.map(drop))) });
        while other.0.borrow().is_none() {
            ring::sleep(Duration::from_millis(1)).await;
        }
        let stop = std::thread::spawn(move || shard.stop());
        let answer = loop {
            ring::sleep(Duration::from_millis(1)).await;
            if let Some(answer) = answer.take() {
                break answer;
            }
        };
        assert_eq!(answer, Err(CallError::Status(Status::Busy)));
        let promised = Prepared { votes: Bytes(ser_votes(&[Vote::Inode(FileType::Regular)])) };
        other.0.take().expect("it was asked").reply(&promised);
        while !stop.is_finished() {
            ring::sleep(Duration::from_millis(1)).await;
        }
        stop.join().expect("no panic").expect("stops in order");
    });
    config.incarnation += 1;
    let shard = LocalShard::start(&config).expect("starts again");
    on_ring(|| async {
        let asker = Asker::connect(&shard).await;
        asker.call(&SessionOpen::asking(SESSION, b"test".to_vec(), 0, 1)).await.expect("a session");
        let list =
            ReadDir { inode: InodeId::ROOT, cookie: 0, count: 9, attributes: false, accesses: AccessTimes::Relatime };
        let names: Vec<_> = asker.call(&list).await.expect("listed").entries.into_iter().map(|it| it.name).collect();
        assert_eq!(names, [Name::new(b"file").expect("a name")]);
    });
    shard.stop().expect("stops in order");
}
