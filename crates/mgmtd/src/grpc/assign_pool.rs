//! A storage group moves into another pool.

use cluster::event::{Admin, Event};
use control::proto::{AssignPoolRequest, Done};
use tonic::Status;
use types::id::{GroupId, PoolId};

use super::ManagementService;

pub(super) async fn handle(service: &ManagementService, request: AssignPoolRequest) -> Result<Done, Status> {
    let (group, pool) = (GroupId(request.group), PoolId(request.pool));
    service.apply(Event::Admin(Admin::AssignPool { group, pool })).await?;
    tracing::info!(group = group.0, pool = pool.0, "group assigned to pool");
    Ok(Done {})
}
