//! Another name for a node.

use cluster::event::{Admin, Event};
use control::proto::{Done, SetAliasRequest};
use tonic::Status;
use types::id::NodeId;

use super::ManagementService;

pub(super) async fn handle(service: &ManagementService, request: SetAliasRequest) -> Result<Done, Status> {
    let (node, alias) = (NodeId(request.node), request.alias);
    service.apply(Event::Admin(Admin::SetAlias { node, alias: alias.clone() })).await?;
    tracing::info!(node = node.0, alias, "alias set");
    Ok(Done {})
}
