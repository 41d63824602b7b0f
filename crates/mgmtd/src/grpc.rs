//! The service's requests, one file each: unpack, let the owner decide, pack the answer.

mod assign_pool;
mod create_pool;
mod delete_node;
mod delete_target;
mod get_view;
mod heartbeat;
mod register_client;
mod register_node;
mod remove_pool;
mod set_alias;
mod set_target_state;
mod watch_view;

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::Instant;

use cluster::event::{Answer, Event};
use cluster::membership::Rules;
use control::View;
use control::error::refusal_status;
use control::proto::management_server::Management;
use control::proto::{self};
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status};
use types::id::{Epoch, SessionId};

use crate::history::History;
use crate::metrics::MgmtMetrics;
use crate::owner::Command;
use crate::service::Commands;

/// What the handlers share.
#[derive(Clone)]
pub(crate) struct ManagementService {
    rules: Rules,
    commands: Commands,
    views: watch::Receiver<View>,
    history: History,
    stopped: watch::Receiver<bool>,
    metrics: MgmtMetrics,
}

impl ManagementService {
    pub(crate) fn new(
        rules: Rules,
        commands: Commands,
        views: watch::Receiver<View>,
        history: History,
        stopped: watch::Receiver<bool>,
        metrics: MgmtMetrics,
    ) -> Self {
        Self { rules, commands, views, history, stopped, metrics }
    }

    /// What somebody knows, who says so; of free space nothing.
    fn known(&self, known: Option<&proto::Known>) -> View {
        let mut view = known.and_then(|known| self.history.find(Epoch(known.epoch), known.check)).unwrap_or_default();
        view.capacities = Arc::default();
        view
    }

    /// Lets the owner decide. The answer and the view after it are durable when they come.
    async fn apply(&self, event: Event) -> Result<(Answer, View), Status> {
        let (reply, outcome) = oneshot::channel();
        let gone = || Status::unavailable("the management service is stopping");
        self.metrics.queue.inc();
        self.commands.try_send(Command { event, reply }).map_err(|error| {
            self.metrics.queue.dec();
            match error {
                TrySendError::Full(_) => Status::unavailable("the management service has too much to do"),
                TrySendError::Disconnected(_) => gone(),
            }
        })?;
        let outcome = outcome.await.map_err(|_| gone())?;
        match outcome.result {
            Ok(answer) => Ok((answer, outcome.view)),
            Err(refusal) => Err(refusal_status(&refusal)),
        }
    }

    /// Runs one handler with its metrics and, where it fails, one log line.
    async fn timed<T>(
        &self,
        op: &'static str,
        handler: impl Future<Output = Result<T, Status>>,
    ) -> Result<Response<T>, Status> {
        let _in_flight = self.metrics.begin();
        let started = Instant::now();
        let result = handler.await;
        self.metrics.request(op).observe(started.elapsed());
        if let Err(status) = &result {
            self.metrics.error(op, status.code());
            tracing::info!(op, reason = status.message(), "refused");
        }
        result.map(Response::new)
    }
}

/// The session of a deletion; 0 for none.
fn deletion_from(number: u64) -> Option<SessionId> {
    (number != 0).then_some(SessionId(number))
}

/// Of an answer that the state machine never gives to this event.
fn unexpected(answer: &Answer) -> Status {
    Status::internal(format!("an unexpected answer: {answer:?}"))
}

/// The whole protocol: each line names the message, its metric and its file.
#[tonic::async_trait]
impl Management for ManagementService {
    type WatchViewStream = watch_view::Updates;

    async fn register_node(
        &self,
        request: Request<proto::RegisterNodeRequest>,
    ) -> Result<Response<proto::RegisterNodeReply>, Status> {
        self.timed("register_node", register_node::handle(self, request)).await
    }

    async fn heartbeat(
        &self,
        request: Request<proto::HeartbeatRequest>,
    ) -> Result<Response<proto::HeartbeatReply>, Status> {
        self.timed("heartbeat", heartbeat::handle(self, request)).await
    }

    async fn register_client(
        &self,
        request: Request<proto::RegisterClientRequest>,
    ) -> Result<Response<proto::RegisterClientReply>, Status> {
        self.timed("register_client", register_client::handle(self, request)).await
    }

    async fn get_view(&self, _: Request<proto::GetViewRequest>) -> Result<Response<proto::ViewUpdate>, Status> {
        self.timed("get_view", get_view::handle(self)).await
    }

    async fn watch_view(
        &self,
        request: Request<proto::GetViewRequest>,
    ) -> Result<Response<Self::WatchViewStream>, Status> {
        self.timed("watch_view", watch_view::handle(self, request)).await
    }

    async fn set_alias(&self, request: Request<proto::SetAliasRequest>) -> Result<Response<proto::Done>, Status> {
        self.timed("set_alias", set_alias::handle(self, request.into_inner())).await
    }

    async fn create_pool(
        &self,
        request: Request<proto::CreatePoolRequest>,
    ) -> Result<Response<proto::CreatePoolReply>, Status> {
        self.timed("create_pool", create_pool::handle(self, request.into_inner())).await
    }

    async fn remove_pool(&self, request: Request<proto::RemovePoolRequest>) -> Result<Response<proto::Done>, Status> {
        self.timed("remove_pool", remove_pool::handle(self, request.into_inner())).await
    }

    async fn assign_pool(&self, request: Request<proto::AssignPoolRequest>) -> Result<Response<proto::Done>, Status> {
        self.timed("assign_pool", assign_pool::handle(self, request.into_inner())).await
    }

    async fn set_target_state(
        &self,
        request: Request<proto::SetTargetStateRequest>,
    ) -> Result<Response<proto::SetTargetStateReply>, Status> {
        self.timed("set_target_state", set_target_state::handle(self, request.into_inner())).await
    }

    async fn delete_target(
        &self,
        request: Request<proto::DeleteTargetRequest>,
    ) -> Result<Response<proto::DeleteReply>, Status> {
        self.timed("delete_target", delete_target::handle(self, request.into_inner())).await
    }

    async fn delete_node(
        &self,
        request: Request<proto::DeleteNodeRequest>,
    ) -> Result<Response<proto::DeleteReply>, Status> {
        self.timed("delete_node", delete_node::handle(self, request.into_inner())).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use telemetry::metrics::Metrics;
    use tonic::Code;

    use super::*;

    #[test]
    fn those_who_are_too_many_do_not_wait() {
        let (commands, _inbox) = sync_channel(1);
        let (views, stopped) = (watch::channel(View::default()).1, watch::channel(false).1);
        let metrics = MgmtMetrics::new(&Metrics::new("test"));
        let service = ManagementService::new(Rules::default(), commands, views, History::default(), stopped, metrics);
        telemetry::runtime::current_thread().expect("a runtime").block_on(async {
            let waiting = service.apply(Event::Tick);
            let refused = async { service.apply(Event::Tick).await.expect_err("there is no room").code() };
            tokio::select! {
                biased;
                _ = waiting => panic!("nobody answers"),
                code = refused => assert_eq!(code, Code::Unavailable),
            }
        });
    }
}
