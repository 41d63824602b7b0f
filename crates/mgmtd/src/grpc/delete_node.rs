//! A node and its targets go for good, or what would go with it.

use cluster::event::{Admin, Answer, Event};
use control::proto::{DeleteNodeRequest, DeleteReply};
use tonic::Status;
use types::id::NodeId;

use super::{ManagementService, deletion_from, unexpected};

pub(super) async fn handle(service: &ManagementService, request: DeleteNodeRequest) -> Result<DeleteReply, Status> {
    let (node, really) = (NodeId(request.node), request.really);
    let deletion = deletion_from(request.deletion);
    let (answer, _) = service.apply(Event::Admin(Admin::DeleteNode { node, really, deletion })).await?;
    let Answer::Deleted(deleted) = answer else { return Err(unexpected(&answer)) };
    if really {
        tracing::info!(node = node.0, ?deleted, "node deleted");
    }
    Ok(DeleteReply { deleted, heartbeat_ms: service.rules.heartbeat_ms() })
}
