//! Locks of a shard that is driven over the loopback interface: waits, retries, ghosts, restarts.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use metad::local::{LocalConfig, LocalShard};
use net::{CallError, Connection, Identity, Limits, To};
use ring::sync::Receiver;
use types::error::Errno;
use types::id::{InodeId, SessionId};
use types::lock::{Held, LockKind, LockMode, LockRange};
use wire::frame::Status;
use wire::op::Call;
use wire::v1::lock::{CancelLock, GetLock, HeldLock, Lock, Unlock};
use wire::v1::session::{Empty, HeldOpen, SessionOpen, SessionOpened};

use crate::common::{key, on_ring};

const FILE: InodeId = InodeId::ROOT;

struct Client {
    connection: Connection,
    to: To,
    session: SessionId,
    opened: Cell<u64>,
}

impl Client {
    /// On a new connection of the same thread.
    async fn connect(shard: &LocalShard, session: u64, number: u64) -> Rc<Self> {
        let name = format!("test client {session}");
        let identity = Identity::new(key(), name);
        let connection = Connection::connect(shard.address(), &identity, &Limits::default()).await.expect("connected");
        let client = Self { connection, to: shard.to(), session: SessionId(session), opened: Cell::new(number) };
        client.call(&client.asking()).await.expect("a session");
        Rc::new(client)
    }

    fn asking(&self) -> SessionOpen {
        self.opened.set(self.opened.get() + 1);
        SessionOpen::asking(self.session, Vec::new(), 0, self.opened.get())
    }

    async fn tell(&self, locks: &[HeldLock]) -> SessionOpened {
        let opens = vec![HeldOpen { inode: FILE, write_intent: false, draft: false }];
        let open = SessionOpen { tells: true, opens, locks: locks.to_vec(), ..self.asking() };
        self.call(&open).await.expect("told")
    }

    async fn call<C: Call>(&self, request: &C) -> Result<C::Reply, CallError> {
        self.connection.call(self.to, request).await
    }

    /// Asks, and does not wait.
    fn start(self: &Rc<Self>, request: Lock) -> Receiver<Result<Empty, CallError>> {
        let (sender, receiver) = ring::sync::oneshot();
        let client = Rc::clone(self);
        ring::spawn(async move { sender.send(client.connection.call_patiently(client.to, &request).await) });
        receiver
    }
}

fn wanted(start: u64, end: u64) -> Held {
    Held { range: LockRange::new(start, end).expect("a range"), mode: LockMode::Exclusive, pid: 7 }
}

fn lock(number: u64, owner: u64, wait: bool) -> Lock {
    Lock { number, inode: FILE, kind: LockKind::Posix, owner, wanted: wanted(0, 9), wait, detect: wait }
}

fn unlock(owner: u64) -> Unlock {
    Unlock { inode: FILE, kind: LockKind::Posix, owner, range: LockRange::ALL }
}

fn held(owner: u64) -> HeldLock {
    HeldLock { inode: FILE, kind: LockKind::Posix, owner, held: wanted(0, 9) }
}

fn errno(errno: Errno) -> CallError {
    CallError::Status(Status::Errno(errno))
}

async fn a_moment() {
    ring::sleep(Duration::from_millis(100)).await;
}

#[test]
fn waits_hold_up_nobody_and_end_in_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = LocalShard::start(&LocalConfig::new(dir.path(), key())).expect("starts");
    on_ring(|| async {
        let (one, two) = (Client::connect(&shard, 1, 0).await, Client::connect(&shard, 2, 0).await);
        assert_eq!(one.call(&lock(1, 1, false)).await, Ok(Empty {}));
        assert_eq!(two.call(&lock(1, 1, false)).await.unwrap_err(), errno(Errno::EAGAIN));
        let (kind, range, mode) = (LockKind::Posix, LockRange::ALL, LockMode::Shared);
        let get = GetLock { number: 2, inode: FILE, kind, owner: 1, range, mode };
        let holder = two.call(&get).await.expect("answered").holder.expect("somebody");
        assert_eq!((holder.session, holder.held), (SessionId(1), wanted(0, 9)));
        // More waits than a connection may have requests in flight, and it still serves.
        let mut waits: Vec<_> = (100..3000).map(|owner| two.start(lock(owner, owner, true))).collect();
        waits.reverse();
        a_moment().await;
        assert!(two.call(&get).await.is_ok());
        assert_eq!(two.call(&CancelLock { number: 100 }).await, Ok(Empty {}));
        assert_eq!(waits.pop().expect("the first").await, Some(Err(errno(Errno::EINTR))));
        assert_eq!(one.call(&unlock(1)).await, Ok(Empty {}));
        assert_eq!(waits.pop().expect("the second").await, Some(Ok(Empty {})));
        // Asked again on another connection, as when the first is lost: it keeps its place.
        let again = Client::connect(&shard, 2, 10).await;
        let third = again.start(lock(102, 102, true));
        a_moment().await;
        assert_eq!(again.call(&unlock(101)).await, Ok(Empty {}));
        assert_eq!(third.await, Some(Ok(Empty {})));
        // What its first connection still brings is a ghost.
        assert_eq!(two.call(&unlock(102)).await.unwrap_err(), CallError::Status(Status::NoSession));
        assert_eq!(one.call(&lock(5, 1, false)).await.unwrap_err(), errno(Errno::EAGAIN), "it is not unlocked");
        assert_eq!(
            two.call(&SessionOpen::asking(SessionId(2), Vec::new(), 0, 5)).await.unwrap_err(),
            CallError::Status(Status::NoSession)
        );
    });
    shard.stop().expect("stops");
}

#[test]
fn a_restarted_shard_gives_nothing_away_until_all_have_told_what_they_hold() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    let shard = LocalShard::start(&config).expect("starts");
    on_ring(|| async {
        let (one, two) = (Client::connect(&shard, 1, 0).await, Client::connect(&shard, 2, 0).await);
        assert_eq!(one.call(&lock(1, 1, false)).await, Ok(Empty {}));
        // A stop ends no wait: it goes on elsewhere.
        drop(two.start(lock(1, 1, true)));
        a_moment().await;
    });
    shard.kill().expect("ends");
    config.incarnation += 1;
    let shard = LocalShard::start(&config).expect("starts again");
    on_ring(|| async {
        let two = Client::connect(&shard, 2, 0).await;
        assert_eq!(two.tell(&[]).await.lost, []);
        let polite = two.start(lock(2, 2, false));
        let patient = two.start(lock(3, 3, true));
        let mut early = Box::pin(polite);
        assert!(ring::timeout(Duration::from_millis(900), &mut early).await.is_err(), "answered too early");
        let one = Client::connect(&shard, 1, 0).await;
        assert_eq!(one.tell(&[held(1)]).await.lost, []);
        // An older telling of the same session, which another thread of it had made up before.
        assert_eq!(one.tell(&[held(9)]).await.lost, [held(9)]);
        assert_eq!(early.await, Some(Err(errno(Errno::EAGAIN))));
        assert_eq!(one.call(&unlock(1)).await, Ok(Empty {}));
        assert_eq!(patient.await, Some(Ok(Empty {})));
    });
    shard.stop().expect("stops");
}

#[test]
fn a_session_that_was_not_heard_of_loses_its_locks_to_those_who_wait() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut config = LocalConfig::new(dir.path(), key());
    config.session_expiry = Duration::from_secs(5);
    let shard = LocalShard::start(&config).expect("starts");
    on_ring(|| async {
        let (one, two) = (Client::connect(&shard, 1, 0).await, Client::connect(&shard, 2, 0).await);
        assert_eq!(one.call(&lock(1, 1, false)).await, Ok(Empty {}));
        let (mut waiting, begun) = (Box::pin(two.start(lock(1, 1, true))), Instant::now());
        let answer = loop {
            match ring::timeout(Duration::from_millis(100), &mut waiting).await {
                Ok(answer) => break answer,
                Err(_) => two.call(&CancelLock { number: 999 }).await.expect("a sign of life"),
            };
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not given the lock");
        };
        assert_eq!(answer, Some(Ok(Empty {})));
        assert_eq!(one.call(&unlock(1)).await.unwrap_err(), CallError::Status(Status::NoSession));
        assert!(one.call(&one.asking()).await.is_ok());
        assert_eq!(one.tell(&[held(1)]).await.lost, [held(1)]);
    });
    shard.stop().expect("stops");
}
