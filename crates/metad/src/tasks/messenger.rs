//! Carries what this shard asks of others for operations over several shards, and brings back what they answer. Decides
//! nothing: what an answer, or its absence, means is the namespace's business.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::map::ClusterMap;
use namespace::schema::transaction::{deser_votes, ser_parts};
use namespace::transaction::{Message, Outcome, Outgoing, Reply};
use net::pairs::Selector;
use net::{CallError, Connection, Identity, Limits, Peer, To};
use tracing::debug;
use types::id::ShardId;
use wire::codec::Bytes;
use wire::frame::Status;
use wire::v1::transaction::{AskOutcome, Climb, Finish, Prepare};

use crate::turn::Core;

/// Requests in flight to one shard; more wait here.
const IN_FLIGHT_MAX: usize = 1024;
/// Longest wait for one answer. Most take a sync of the other shard's log.
const CALL_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Messenger {
    core: Rc<Core>,
    identity: Rc<Identity>,
    interfaces: Arc<[Selector]>,
    map: RefCell<Arc<ClusterMap>>,
    peers: RefCell<BTreeMap<ShardId, Rc<Peer>>>,
}

impl Messenger {
    pub(crate) fn new(core: Rc<Core>, identity: Rc<Identity>, interfaces: Arc<[Selector]>) -> Rc<Self> {
        let map = RefCell::new(Arc::new(ClusterMap::empty(String::new())));
        Rc::new(Self { core, identity, interfaces, map, peers: RefCell::default() })
    }

    /// Another map: shards may be elsewhere now.
    pub(crate) fn set_map(&self, map: &Arc<ClusterMap>) {
        self.peers.borrow_mut().retain(|&shard, peer| {
            let route = map.route_shard(shard);
            route.is_some_and(|route| {
                peer.set_addresses(route.addresses);
                true
            })
        });
        *self.map.borrow_mut() = Arc::clone(map);
    }

    /// For ever: sends in the order in which the shard gives them.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.core.to_send.notified().await;
            for outgoing in self.core.take_outgoing() {
                self.core.fail_points.is_sent(&outgoing.message);
                let this = Rc::clone(&self);
                ring::spawn(async move {
                    let Outgoing { to, message, .. } = outgoing;
                    let reply = this.ask(to, &message).await;
                    this.core.replied(to, message, reply);
                });
            }
        }
    }

    async fn ask(&self, shard: ShardId, message: &Message) -> Reply {
        let reason = match ring::timeout(CALL_MAX, self.call(shard, message)).await {
            Ok(Ok(reply)) => return reply,
            Ok(Err(reason)) => reason,
            Err(_) => "no answer".to_owned(),
        };
        debug!(%shard, reason, ?message, "another shard was asked in vain");
        Reply::Failed
    }

    async fn call(&self, shard: ShardId, message: &Message) -> Result<Reply, String> {
        let route = self.map.borrow().route_shard(shard).ok_or("it is not in the cluster map")?;
        let epoch = self.map.borrow().epoch;
        let to = To { group: route.group, generation: route.generation, epoch };
        let connection = self.peer(shard, route.addresses).connection().await.map_err(|error| error.to_string())?;
        match call(&connection, to, message).await {
            Ok(reply) => Ok(reply),
            Err(CallError::Status(Status::Errno(errno))) => Ok(Reply::Refused(errno)),
            Err(CallError::Status(status)) => Err(format!("it answered {status:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn peer(&self, shard: ShardId, addresses: Vec<SocketAddr>) -> Rc<Peer> {
        let mut peers = self.peers.borrow_mut();
        let interfaces = Arc::clone(&self.interfaces);
        let limits = Limits { requests: IN_FLIGHT_MAX, interfaces, ..Limits::default() };
        // Requests stay in order on one connection; the shards begin at different rails.
        let start = shard.0.into();
        let make = || Rc::new(Peer::starting_at(start, addresses, Rc::clone(&self.identity), limits));
        Rc::clone(peers.entry(shard).or_insert_with(make))
    }
}

async fn call(connection: &Connection, to: To, message: &Message) -> Result<Reply, CallError> {
    Ok(match message {
        Message::Prepare { session, transaction, round, parts } => {
            let parts = Bytes(ser_parts(parts));
            let prepare = Prepare { session: *session, transaction: *transaction, round: *round, parts };
            let prepared = connection.call(to, &prepare).await?;
            deser_votes(&prepared.votes.0).map_or(Reply::Failed, Reply::Prepared)
        }
        Message::Finish { transaction, commit } => {
            connection.call(to, &Finish { transaction: *transaction, commit: *commit }).await?;
            Reply::Done
        }
        Message::AskOutcome { transaction } => {
            let outcome = connection.call(to, &AskOutcome { transaction: *transaction }).await?;
            match outcome.state {
                0 => Reply::Outcome(Outcome::Pending),
                1 => Reply::Outcome(Outcome::Commit),
                2 => Reply::Outcome(Outcome::Abort),
                _ => Reply::Failed,
            }
        }
        Message::Climb { inode, until, .. } => {
            Reply::Climbed(connection.call(to, &Climb { inode: *inode, until: *until }).await?.inode)
        }
    })
}
