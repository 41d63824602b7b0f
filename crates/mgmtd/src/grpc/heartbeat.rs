//! A registered service is alive.

use cluster::event::Event;
use control::convert;
use control::proto::{HeartbeatReply, HeartbeatRequest};
use tonic::{Request, Status};

use super::ManagementService;

pub(super) async fn handle(
    service: &ManagementService,
    request: Request<HeartbeatRequest>,
) -> Result<HeartbeatReply, Status> {
    service.metrics.heartbeats.inc();
    let heartbeat = convert::heartbeat_from(request.get_ref());
    let (_, view) = service.apply(Event::Heartbeat(heartbeat)).await?;
    Ok(HeartbeatReply { epoch: view.map.epoch.0 })
}
