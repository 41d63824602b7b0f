//! A service has started.

use cluster::event::{Answer, Event};
use cluster::map::ServiceKind;
use control::convert;
use control::proto::{RegisterNodeReply, RegisterNodeRequest};
use control::server::PeerInfo;
use tonic::{Request, Status};

use super::{ManagementService, unexpected};

pub(super) async fn handle(
    service: &ManagementService,
    request: Request<RegisterNodeRequest>,
) -> Result<RegisterNodeReply, Status> {
    let peer = request.extensions().get::<PeerInfo>().map_or_else(String::new, |peer| peer.address.to_string());
    let request = request.into_inner();
    let known = service.known(request.known.as_ref());
    let registration =
        convert::registration_from(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let (kind, targets) = (registration.kind, registration.targets.len());
    let (answer, view) = service.apply(Event::RegisterNode(registration)).await?;
    let Answer::Registered(registered) = answer else { return Err(unexpected(&answer)) };
    let mut update = view.to_changes_since(&known);
    if kind != ServiceKind::Metadata {
        update.capacities.clear();
    }
    tracing::info!(node = registered.node.0, alias = registered.alias, %kind, targets, peer, "node registered");
    Ok(RegisterNodeReply {
        cluster: view.map.cluster.clone(),
        node: registered.node.0,
        alias: registered.alias,
        targets: registered.targets.iter().map(|target| target.0).collect(),
        heartbeat_ms: service.rules.heartbeat_ms(),
        offline_after_ms: service.rules.offline_after_ms,
        view: Some(update),
    })
}
