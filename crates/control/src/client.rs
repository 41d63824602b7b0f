//! The typed way to ask mgmtd.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::event::{Registration, Report, Seen};
use cluster::map::TargetState;
use hyper_util::rt::TokioIo;
use net::handshake::{HandshakeError, Initiator};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Response, Status, Streaming};
use types::id::{GroupId, NodeId, PoolId, SessionId, TargetId};

use crate::error::ControlError;
use crate::node::{Deletion, Registered};
use crate::proto::management_client::ManagementClient;
use crate::transport::shake;
use crate::view::{BadUpdate, View};
use crate::{MESSAGE_MAX, convert, proto};

/// Longest wait for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A silent connection is probed so often, and given up after so long.
const PROBE_EVERY: Duration = Duration::from_secs(2);
const PROBE_MAX: Duration = Duration::from_secs(4);

/// One connection to mgmtd. When it is lost every call fails with [`ControlError::Lost`]: connect anew.
#[derive(Clone, Debug)]
pub struct Client {
    address: Arc<str>,
    cluster: Arc<str>,
    service: ManagementClient<Channel>,
}

impl Client {
    /// Connects to mgmtd at `address` (`host:port`), proves the cluster key and has it proved, all within `patience`.
    ///
    /// # Errors
    /// Where nobody answers, or the two sides have different keys, clusters or versions.
    pub async fn connect(address: &str, identity: &net::Identity, patience: Duration) -> Result<Self, ControlError> {
        let unreachable = |reason: String| ControlError::Unreachable { address: address.to_owned(), reason };
        let connecting = async {
            let mut stream = TcpStream::connect(address).await.map_err(|error| unreachable(error.to_string()))?;
            stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
            let established = shake(&mut Initiator::new(identity), &mut stream)
                .await
                .map_err(|error| ControlError::Handshake { address: address.to_owned(), error })?;
            let channel = channel(stream).await.map_err(|error| unreachable(error.to_string()))?;
            Ok((channel, established.peer.cluster))
        };
        let limit = || unreachable(format!("it did not answer within {} ms", patience.as_millis()));
        let (channel, cluster) = timeout(patience, connecting).await.map_err(|_| limit())??;
        let service = ManagementClient::new(channel)
            .max_decoding_message_size(MESSAGE_MAX)
            .max_encoding_message_size(MESSAGE_MAX);
        Ok(Self { address: address.into(), cluster: cluster.into(), service })
    }

    /// As [`Client::connect`], trying again until `patience` is over where that may help.
    ///
    /// # Errors
    /// The last failure.
    pub async fn connect_retrying(
        address: &str,
        identity: &net::Identity,
        patience: Duration,
    ) -> Result<Self, ControlError> {
        let deadline = tokio::time::Instant::now() + patience;
        let mut backoff = Backoff::new();
        loop {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match Self::connect(address, identity, left.max(Duration::from_millis(1))).await {
                Err(error) if !error.is_permanent() && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(backoff.next().min(left)).await;
                }
                result => return result,
            }
        }
    }

    /// UUID of the cluster, as mgmtd told it in the handshake.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Registers a service, with one report per target, at the cluster of the handshake; also answers the view with it
    /// inside, of which only that comes over the wire which is not `known`. Where that does not fit, which the view that is
    /// watched will show as well, it is an empty one.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked or refuses.
    pub async fn register_node(
        &self,
        registration: &Registration,
        reports: &[Report],
        known: &View,
    ) -> Result<(Registered, View), ControlError> {
        let request = convert::registration(&self.cluster, registration, reports);
        let request = proto::RegisterNodeRequest { known: convert::known(known), ..request };
        let mut service = self.service.clone();
        let reply = self.call(service.register_node(request)).await?;
        let update = reply.view.as_ref();
        let mut view = update.filter(|update| update.map.is_empty()).map_or_else(View::default, |_| known.clone());
        match update.map_or(Ok(false), |update| self.take(&mut view, update)) {
            Ok(_) => {}
            Err(ControlError::Misfit { .. }) => view = View::default(),
            Err(error) => return Err(error),
        }
        Ok((convert::registered_from(&reply), view))
    }

    /// # Errors
    /// Where mgmtd cannot be asked or refuses; [`ControlError::NotHeard`] asks to register again.
    pub async fn heartbeat(
        &self,
        node: NodeId,
        incarnation: u64,
        reports: &[(TargetId, Report)],
    ) -> Result<(), ControlError> {
        let mut service = self.service.clone();
        self.call(service.heartbeat(convert::heartbeat(node, incarnation, reports))).await.map(|_| ())
    }

    /// A session id that nobody else has or had. `description` is for people: host name and mount point.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked.
    pub async fn register_client(&self, description: &str) -> Result<SessionId, ControlError> {
        let request = proto::RegisterClientRequest { description: description.to_owned() };
        let mut service = self.service.clone();
        let reply = self.call(service.register_client(request)).await?;
        Ok(SessionId(reply.session))
    }

    /// The cluster as it is now.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked.
    pub async fn view(&self) -> Result<View, ControlError> {
        let mut service = self.service.clone();
        let update = self.call(service.get_view(proto::GetViewRequest::default())).await?;
        let mut view = View::default();
        self.take(&mut view, &update)?;
        Ok(view)
    }

    /// The cluster as it is now and after each change, under epochs above the one that was `seen`.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked.
    pub async fn watch(&self, seen: &Seen, wanted: Wanted) -> Result<Watch, ControlError> {
        let known = wanted.known.filter(|_| wanted.changes);
        let request = proto::GetViewRequest {
            seen: Some(convert::seen(seen)),
            takes_changes: wanted.changes,
            known: known.as_ref().and_then(convert::known),
            without_space: !wanted.space,
        };
        let mut service = self.service.clone();
        let updates = self.call(service.watch_view(request)).await?;
        Ok(Watch { client: self.clone(), updates, view: View::default(), known })
    }

    /// # Errors
    /// Where mgmtd cannot be asked, there is no such node, or the alias is taken.
    pub async fn set_alias(&self, node: NodeId, alias: &str) -> Result<(), ControlError> {
        let request = proto::SetAliasRequest { node: node.0, alias: alias.to_owned() };
        let mut service = self.service.clone();
        self.call(service.set_alias(request)).await.map(|_| ())
    }

    /// # Errors
    /// Where mgmtd cannot be asked, or the name is bad or taken.
    pub async fn create_pool(&self, name: &str) -> Result<PoolId, ControlError> {
        let mut service = self.service.clone();
        let reply = self.call(service.create_pool(proto::CreatePoolRequest { name: name.to_owned() })).await?;
        Ok(PoolId(reply.pool))
    }

    /// # Errors
    /// Where mgmtd cannot be asked, or the pool is the default one or not empty.
    pub async fn remove_pool(&self, pool: PoolId) -> Result<(), ControlError> {
        let mut service = self.service.clone();
        self.call(service.remove_pool(proto::RemovePoolRequest { pool: pool.0 })).await.map(|_| ())
    }

    /// Moves a storage group into a pool.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked, or there is no such storage group or pool.
    pub async fn assign_pool(&self, group: GroupId, pool: PoolId) -> Result<(), ControlError> {
        let mut service = self.service.clone();
        let request = proto::AssignPoolRequest { group: group.0, pool: pool.0 };
        self.call(service.assign_pool(request)).await.map(|_| ())
    }

    /// Answers whether the node's own reports decided on the state until now.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked or there is no such target.
    pub async fn set_target_state(&self, target: TargetId, state: TargetState) -> Result<bool, ControlError> {
        self.tell_target_state(target, Some(state), None).await
    }

    /// Sets it bad for its deletion, which this session names: a number of its own. Answers as [`Client::set_target_state`].
    ///
    /// # Errors
    /// As [`Client::set_target_state`].
    pub async fn take_out(&self, target: TargetId, deletion: SessionId) -> Result<bool, ControlError> {
        self.tell_target_state(target, Some(TargetState::Bad), Some(deletion)).await
    }

    /// After a deletion that came to nothing: sets the state to what it was, good or in need of a resync; with `None`, lets
    /// the node's own reports decide, and it stays bad until they change it. That only for a mgmtd that has answered that
    /// they did so before: an older one would set the target bad.
    ///
    /// # Errors
    /// As [`Client::set_target_state`], and where somebody else has set the state since.
    pub async fn put_back(
        &self,
        target: TargetId,
        state: Option<TargetState>,
        deletion: SessionId,
    ) -> Result<(), ControlError> {
        self.tell_target_state(target, state, Some(deletion)).await.map(|_| ())
    }

    async fn tell_target_state(
        &self,
        target: TargetId,
        state: Option<TargetState>,
        deletion: Option<SessionId>,
    ) -> Result<bool, ControlError> {
        let mut service = self.service.clone();
        let request = proto::SetTargetStateRequest {
            target: target.0,
            state: convert::state_to_proto(state.unwrap_or(TargetState::Bad)).into(),
            release: state.is_none(),
            deletion: deletion.map_or(0, |deletion| deletion.0),
        };
        Ok(self.call(service.set_target_state(request)).await?.was_reported)
    }

    /// Without a `deletion`, only tells what would be deleted: one line per thing. Whoever means it has taken the target out
    /// for it, and asked all shards since whether a file names its group: mgmtd cannot know.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked or refuses: the target is in use, or somebody else has set its state since.
    /// [`ControlError::NotHeard`] asks to try again.
    pub async fn delete_target(&self, target: TargetId, deletion: Option<SessionId>) -> Result<Deletion, ControlError> {
        let mut service = self.service.clone();
        let (really, deletion) = (deletion.is_some(), deletion.map_or(0, |deletion| deletion.0));
        let request = proto::DeleteTargetRequest { target: target.0, really, deletion };
        self.call(service.delete_target(request)).await.map(convert::deletion_from)
    }

    /// As [`Client::delete_target`], for a node and all its targets.
    ///
    /// # Errors
    /// Where mgmtd cannot be asked or refuses: the node runs or one of its targets is in use.
    pub async fn delete_node(&self, node: NodeId, deletion: Option<SessionId>) -> Result<Deletion, ControlError> {
        let mut service = self.service.clone();
        let (really, deletion) = (deletion.is_some(), deletion.map_or(0, |deletion| deletion.0));
        let request = proto::DeleteNodeRequest { node: node.0, really, deletion };
        self.call(service.delete_node(request)).await.map(convert::deletion_from)
    }

    async fn call<T>(&self, answer: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, ControlError> {
        let lost = |_| ControlError::Lost { address: self.address.to_string(), reason: "no answer in time".to_owned() };
        let answer = timeout(ANSWER_MAX, answer).await.map_err(lost)?;
        answer.map(Response::into_inner).map_err(|status| ControlError::from_status(&self.address, &status))
    }

    fn take(&self, view: &mut View, update: &proto::ViewUpdate) -> Result<bool, ControlError> {
        let address = self.address.to_string();
        view.update(update).map_err(|bad| match bad {
            BadUpdate::Incomprehensible(reason) => ControlError::Incomprehensible { address, reason },
            BadUpdate::Misfit => ControlError::Misfit { address },
        })
    }
}

/// What a subscriber is told.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// What is free on the targets, too.
    pub space: bool,
    /// Of maps only what differs from the one before, where mgmtd can tell that.
    pub changes: bool,
    /// The view that is known already: what does not differ from it is not told.
    pub known: Option<View>,
}

/// A subscription to the view.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    updates: Streaming<proto::ViewUpdate>,
    view: View,
    /// What the first update builds on, unless it tells the whole map.
    known: Option<View>,
}

impl Watch {
    /// The next view that differs from the last one, and from the one that was known. May be dropped and asked again.
    ///
    /// # Errors
    /// Where the connection is lost; subscribe anew on a new one. [`ControlError::Misfit`]: on this one, for whole maps.
    pub async fn next(&mut self) -> Result<View, ControlError> {
        loop {
            let address = &self.client.address;
            let update = self.updates.message().await.map_err(|status| ControlError::from_status(address, &status))?;
            let ended = || ControlError::Lost { address: address.to_string(), reason: "it is stopping".to_owned() };
            let update = update.ok_or_else(ended)?;
            if let Some(known) = self.known.take().filter(|_| update.map.is_empty()) {
                self.view = known;
            }
            if self.client.take(&mut self.view, &update)? {
                return Ok(self.view.clone());
            }
        }
    }
}

/// gRPC over one stream that is there already. The channel cannot make another one: who connects must see the errors.
async fn channel(stream: TcpStream) -> Result<Channel, tonic::transport::Error> {
    let slot = Arc::new(Mutex::new(Some(stream)));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        std::future::ready(stream.map(TokioIo::new).ok_or(HandshakeError::Ended))
    });
    Endpoint::from_static("http://mgmtd")
        .http2_keep_alive_interval(PROBE_EVERY)
        .keep_alive_timeout(PROBE_MAX)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
}

/// Pauses between attempts: short at first, since services of one cluster start together; and not the same for all, since all
/// lose mgmtd in one moment.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
}

impl Backoff {
    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Self {
        Self { pause: Self::FIRST }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 3 / 2).min(Self::LONGEST);
        // Each state is seeded anew.
        let dice = RandomState::new().hash_one(()) as u32;
        pause / 2 + (pause / 2).mul_f64(f64::from(dice) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_lose_mgmtd_together_do_not_come_back_together() {
        let pauses: Vec<Duration> = (0..16).map(|_| Backoff { pause: Backoff::LONGEST }.next()).collect();
        let bounds = Backoff::LONGEST / 2..=Backoff::LONGEST;
        assert!(pauses.iter().all(|pause| bounds.contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
