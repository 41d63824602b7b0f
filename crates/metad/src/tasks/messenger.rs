//! Carries what this shard asks of others for operations over several shards, and brings back what they answer. Decides
//! nothing: what an answer, or its absence, means is the namespace's business.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::map::{ClusterMap, Route};
use namespace::schema::transaction::{deser_votes, ser_parts};
use namespace::transaction::{Message, Outcome, Reply};
use net::pairs::Selector;
use net::{CallError, Connection, Identity, Peer, To};
use tracing::debug;
use types::id::ShardId;
use wire::codec::Bytes;
use wire::frame::Status;
use wire::v1::transaction::{AskOutcome, Climb, OutcomeState, Prepare};

use crate::tasks::messenger::bundle::{Bundle, Fate, Parcel};
use crate::turn::Core;

mod bundle;

/// Requests in flight to one shard over each of two connections; more wait here.
const IN_FLIGHT_MAX: usize = 1024;
/// Longest wait for one answer.
const CALL_MAX: Duration = Duration::from_secs(5);
/// And for a promise: most take a sync of the other shard's log, for which a disk that others write to may need many seconds.
/// Who gives up sooner than that begins anew with another sync, again and again. A shard that is gone shows by its connection.
const PROMISE_MAX: Duration = Duration::from_secs(60);

pub(crate) struct Messenger {
    core: Rc<Core>,
    identity: Rc<Identity>,
    interfaces: Arc<[Selector]>,
    map: RefCell<Arc<ClusterMap>>,
    peers: RefCell<BTreeMap<(ShardId, Waits), Rc<Peer>>>,
}

/// For whom a request may wait at the other shard. Those of each kind have a connection of their own: what ends the waits for
/// others never waits behind them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waits {
    ForDisk,
    /// Another transaction, or who has a lease.
    ForOthers,
}

impl Messenger {
    pub(crate) fn new(core: Rc<Core>, identity: Rc<Identity>, interfaces: Arc<[Selector]>) -> Rc<Self> {
        let map = RefCell::new(Arc::new(ClusterMap::empty(String::new())));
        Rc::new(Self { core, identity, interfaces, map, peers: RefCell::default() })
    }

    /// Another map: shards may be elsewhere now.
    pub(crate) fn set_map(&self, map: &Arc<ClusterMap>) {
        self.peers.borrow_mut().retain(|&(shard, _), peer| {
            let route = map.route_shard(shard);
            route.is_some_and(|route| {
                peer.set_addresses(route.addresses);
                peer.is_of_node(&route.uuid)
            })
        });
        *self.map.borrow_mut() = Arc::clone(map);
    }

    /// For ever: sends in the order in which the shard gives them.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.core.to_send.notified().await;
            let messages = self.core.take_outgoing();
            for outgoing in &messages {
                self.core.fail_points.is_sent(&outgoing.message);
            }
            for (to, parcel) in bundle::pack(messages) {
                match parcel {
                    Parcel::Alone(message) => Rc::clone(&self).send(to, message),
                    Parcel::Bundle(bundle) => ring::spawn(Rc::clone(&self).carry(to, bundle)),
                }
            }
        }
    }

    /// One message, whose answer may take long.
    fn send(self: Rc<Self>, to: ShardId, message: Message) {
        ring::spawn(async move {
            let (waits, longest) = match message {
                Message::Prepare { .. } => (Waits::ForOthers, PROMISE_MAX),
                _ => (Waits::ForDisk, CALL_MAX),
            };
            let asked =
                self.ask((to, waits), longest, async |connection, to| call(connection, to, &message).await).await;
            let reply = asked.unwrap_or_else(|reply| reply);
            self.core.replied(to, message, reply);
        });
    }

    async fn carry(self: Rc<Self>, to: ShardId, bundle: Bundle) {
        let longest = if bundle.asks_for_promises() { PROMISE_MAX } else { CALL_MAX };
        let way = (to, Waits::ForDisk);
        let asked = self.ask(way, longest, async |connection, to| connection.call(to, bundle.request()).await).await;
        let fates = match asked {
            Ok(answer) => bundle.answered(answer),
            Err(reply) => bundle.failed(&reply),
        };
        for fate in fates {
            match fate {
                Fate::Replied(message, reply) => self.core.replied(to, message, reply),
                Fate::Waits(message) => Rc::clone(&self).send(to, message),
            }
        }
    }

    /// Asks a shard something; where it refuses, or cannot be asked, that is the reply.
    async fn ask<T>(
        &self,
        (shard, waits): (ShardId, Waits),
        longest: Duration,
        call: impl AsyncFnOnce(&Connection, To) -> Result<T, CallError>,
    ) -> Result<T, Reply> {
        let asking = async {
            let route = self.map.borrow().route_shard(shard).ok_or("it is not in the cluster map")?;
            let epoch = self.map.borrow().epoch;
            let to = To { group: route.group, generation: route.generation, epoch };
            let connection = self.peer((shard, waits), route).connection().await.map_err(|error| error.to_string())?;
            match call(&connection, to).await {
                Err(CallError::Status(Status::Errno(errno))) => Ok(Err(Reply::Refused(errno))),
                Err(CallError::Status(status)) => Err(format!("it answered {status:?}")),
                Err(error) => Err(error.to_string()),
                Ok(answer) => Ok(Ok(answer)),
            }
        };
        let reason = match ring::timeout(longest, asking).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(reason)) => reason,
            Err(_) => "no answer".to_owned(),
        };
        debug!(%shard, reason, "another shard was asked in vain");
        Err(Reply::Failed)
    }

    fn peer(&self, way: (ShardId, Waits), Route { addresses, uuid, .. }: Route) -> Rc<Peer> {
        let mut peers = self.peers.borrow_mut();
        let limits = super::limits(IN_FLIGHT_MAX, &self.interfaces);
        // Requests stay in order on one connection; the shards begin at different rails.
        let start = way.0.0.into();
        let make = || Rc::new(Peer::starting_at(start, addresses, Rc::clone(&self.identity), limits).of_node(&uuid));
        Rc::clone(peers.entry(way).or_insert_with(make))
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
        // Goes in bundles.
        Message::Finish { .. } => Reply::Failed,
        Message::AskOutcome { transaction } => {
            Reply::Outcome(match connection.call(to, &AskOutcome { transaction: *transaction }).await?.state {
                OutcomeState::NotDecided => Outcome::Pending,
                OutcomeState::ToBeDone => Outcome::Commit,
                OutcomeState::ToBeForgotten => Outcome::Abort,
            })
        }
        Message::Climb { inode, until, .. } => {
            Reply::Climbed(connection.call(to, &Climb { inode: *inode, until: *until }).await?.inode)
        }
    })
}
