//! A new, empty pool.

use cluster::event::{Admin, Answer, Event};
use control::proto::{CreatePoolReply, CreatePoolRequest};
use tonic::Status;

use super::{ManagementService, unexpected};

pub(super) async fn handle(service: &ManagementService, request: CreatePoolRequest) -> Result<CreatePoolReply, Status> {
    let name = request.name;
    let (answer, _) = service.apply(Event::Admin(Admin::CreatePool { name: name.clone() })).await?;
    let Answer::Pool(pool) = answer else { return Err(unexpected(&answer)) };
    tracing::info!(pool = pool.0, name, "pool created");
    Ok(CreatePoolReply { pool: pool.0 })
}
