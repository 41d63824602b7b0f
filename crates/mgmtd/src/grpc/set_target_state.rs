//! An administrator knows better how a target is.

use cluster::event::{Admin, Event};
use control::convert;
use control::proto::{Done, SetTargetStateRequest};
use tonic::Status;
use types::id::TargetId;

use super::ManagementService;

pub(super) async fn handle(service: &ManagementService, request: SetTargetStateRequest) -> Result<Done, Status> {
    let state = convert::state_from(request.state()).map_err(|error| Status::invalid_argument(error.to_string()))?;
    service.apply(Event::Admin(Admin::SetTargetState { target: TargetId(request.target), state })).await?;
    tracing::info!(target_id = request.target, %state, "target state set");
    Ok(Done {})
}
