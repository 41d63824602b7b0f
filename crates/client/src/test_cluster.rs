//! For tests: a cluster of one shard, whose answers the test gives, and two threads of one mount that ask it. A test may
//! add other servers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::map::{CapacityClass, ClusterMap, Group, Node, NodeState, Rail, ServiceKind, Target, TargetState};
use net::{ClusterKey, Identity, Limits, Request, Service};
use ring::sync::Notify;
use types::error::Errno;
use types::id::{Epoch, Generation, GroupId, NodeId, SessionId, ShardId, TargetId};
use wire::frame::Status;
use wire::op::Op;
use wire::v1::session::{Empty, SessionOpened};

use crate::config::Config;
use crate::{Client, Shared};

pub(crate) const SHARD: ShardId = ShardId(0);

/// So long the other side has for what it is to do, or must not.
const SOON: Duration = Duration::from_millis(30);
const LATE: Duration = Duration::from_secs(20);

/// What came to the shard and the test has not looked at.
#[derive(Default)]
pub(crate) struct Script(RefCell<VecDeque<Request>>);

impl Service for Script {
    fn on_request(self: &Rc<Self>, mut request: Request) {
        request.responder.park();
        self.0.borrow_mut().push_back(request);
    }
}

impl Script {
    async fn any(&self) -> Request {
        let come = async || {
            loop {
                if let Some(request) = self.0.borrow_mut().pop_front() {
                    return request;
                }
                ring::sleep(Duration::from_millis(1)).await;
            }
        };
        ring::timeout(LATE, come()).await.expect("something comes")
    }

    /// What comes next, which is this.
    pub(crate) async fn next(&self, op: Op) -> Request {
        let request = self.any().await;
        assert_eq!(request.header.op, op);
        request
    }

    pub(crate) async fn nothing_comes(&self) {
        ring::sleep(SOON).await;
        // Who waits for an answer looks after a while whether the other side is there.
        let came = self.0.borrow();
        let ops: Vec<Op> = came.iter().map(|request| request.header.op).filter(|&op| op != Op::Ping).collect();
        assert_eq!(ops, []);
    }

    /// Answers what comes next, which is this, with success.
    pub(crate) async fn does(&self, op: Op) {
        self.next(op).await.responder.reply(&Empty {});
    }

    /// Refuses what comes next, which is this.
    pub(crate) async fn refuses(&self, op: Op, errno: Errno) {
        self.next(op).await.responder.fail(Status::Errno(errno));
    }

    /// Answers two, over two connections, with success.
    pub(crate) async fn does_both(&self, one: Op, other: Op) {
        let both = [self.any().await, self.any().await];
        let ops = both.each_ref().map(|request| request.header.op);
        assert!(ops == [one, other] || ops == [other, one], "{ops:?}");
        both.into_iter().for_each(|request| request.responder.reply(&Empty {}));
    }

    pub(crate) async fn opens_session(&self, incarnation: u64) {
        opened(self.next(Op::SessionOpen).await, incarnation);
    }
}

/// Answers a `SessionOpen` as a shard that keeps all that incarnations before it have answered.
pub(crate) fn opened(request: Request, incarnation: u64) {
    opened_since(request, incarnation, 0);
}

/// Answers a `SessionOpen` as a shard that has lost what an incarnation before `kept_since` had answered.
pub(crate) fn opened_since(request: Request, incarnation: u64, kept_since: u64) {
    let (expiry_ms, lost, keeps_intents) = (60_000, Vec::new(), true);
    request.responder.reply(&SessionOpened { incarnation, kept_since, expiry_ms, lost, keeps_intents });
}

pub(crate) async fn join(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let both: [Pin<Box<dyn Future<Output = ()> + '_>>; 2] = [Box::pin(one), Box::pin(other)];
    ring::join_all(both).await;
}

pub(crate) fn run(main: impl AsyncFnOnce(&Script, [Rc<Client>; 2])) {
    ring::Ring::new(&ring::Config::default()).expect("a ring").run(async {
        let mut map = ClusterMap::empty(String::new());
        map.epoch = Epoch(1);
        let shard = Server::start(&mut map, ServiceKind::Metadata);
        map.shards.insert(SHARD, shard.group);
        let config = Config { share_memory: false, local_sockets: false, ..Config::default() };
        let shared = Shared::new(config, SessionId(1), identity(), Arc::new(map));
        let clients = [(); 2].map(|()| Client::new(Arc::clone(&shared)));
        ring::timeout(2 * LATE, main(&shard.script, clients)).await.expect("the test hangs");
    });
}

/// A target on a node of its own, in a group of its own, and the script that answers for it.
pub(crate) struct Server {
    pub(crate) script: Rc<Script>,
    pub(crate) group: GroupId,
    over: Rc<Notify>,
}

impl Server {
    /// The last one of `map` from then on.
    pub(crate) fn start(map: &mut ClusterMap, kind: ServiceKind) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (listener, address) = ring::op::listen(any).expect("a free port");
        let (script, over) = (Rc::new(Script::default()), Rc::new(Notify::new()));
        let epoch = Rc::new(Cell::new(Epoch(1)));
        let serving = net::serve(listener, Rc::new(identity()), Limits::default(), epoch, Rc::clone(&script));
        let until = Rc::clone(&over);
        ring::spawn(async move {
            let (mut serving, mut over) = (pin!(serving), pin!(until.notified()));
            poll_fn(|cx| match over.as_mut().poll(cx) {
                Poll::Pending => serving.as_mut().poll(cx).map(drop),
                Poll::Ready(()) => Poll::Ready(()),
            })
            .await;
        });
        Self { script, group: add(map, kind, address), over }
    }

    /// As a process that is killed: its connections end, and nothing listens.
    pub(crate) fn kill(&self) {
        self.over.notify_one();
    }
}

fn identity() -> Identity {
    Identity { incarnation: 1, ..Identity::new(ClusterKey::from_bytes([7; 32]), "test") }
}

fn add(map: &mut ClusterMap, kind: ServiceKind, address: SocketAddr) -> GroupId {
    let number = 1 + u32::try_from(map.targets.len()).expect("few");
    let (node, target, group) = (NodeId(number), TargetId(number), GroupId(number));
    let rails = vec![Rail { interface: String::new(), address: address.ip() }];
    let (uuid, alias, metrics) = (String::new(), String::new(), String::new());
    map.nodes.insert(node, Node { id: node, uuid, kind, alias, state: NodeState::Online, rails, metrics });
    let (uuid, path, ports) = (String::new(), String::new(), vec![address.port()]);
    let (state, class) = (TargetState::Good, CapacityClass::Normal);
    map.targets.insert(target, Target { id: target, uuid, node, kind, state, class, ports, path });
    map.groups.insert(group, Group { id: group, kind, generation: Generation(1), members: vec![target] });
    group
}
