//! An empty pool goes.

use cluster::event::{Admin, Event};
use control::proto::{Done, RemovePoolRequest};
use tonic::Status;
use types::id::PoolId;

use super::ManagementService;

pub(super) async fn handle(service: &ManagementService, request: RemovePoolRequest) -> Result<Done, Status> {
    service.apply(Event::Admin(Admin::RemovePool { pool: PoolId(request.pool) })).await?;
    tracing::info!(pool = request.pool, "pool removed");
    Ok(Done {})
}
