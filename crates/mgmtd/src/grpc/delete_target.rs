//! A target goes for good, or what would go with it.

use cluster::event::{Admin, Answer, Event};
use control::proto::{DeleteReply, DeleteTargetRequest};
use tonic::Status;
use types::id::TargetId;

use super::{ManagementService, deletion_from, unexpected};

pub(super) async fn handle(service: &ManagementService, request: DeleteTargetRequest) -> Result<DeleteReply, Status> {
    let (target, really) = (TargetId(request.target), request.really);
    let deletion = deletion_from(request.deletion);
    let (answer, _) = service.apply(Event::Admin(Admin::DeleteTarget { target, really, deletion })).await?;
    let Answer::Deleted(deleted) = answer else { return Err(unexpected(&answer)) };
    if really {
        tracing::info!(target_id = target.0, ?deleted, "target deleted");
    }
    Ok(DeleteReply { deleted, heartbeat_ms: service.rules.heartbeat_ms() })
}
