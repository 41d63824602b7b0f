//! An administrator knows better how a target is, or leaves that to its node again.

use cluster::event::{Admin, Answer, Event};
use control::convert;
use control::proto::{SetTargetStateReply, SetTargetStateRequest};
use tonic::Status;
use types::id::TargetId;

use super::{ManagementService, unexpected};

pub(super) async fn handle(
    service: &ManagementService,
    request: SetTargetStateRequest,
) -> Result<SetTargetStateReply, Status> {
    let target = TargetId(request.target);
    let admin = if request.release {
        Admin::ReleaseTargetState { target }
    } else {
        let state =
            convert::state_from(request.state()).map_err(|error| Status::invalid_argument(error.to_string()))?;
        Admin::SetTargetState { target, state }
    };
    let (answer, _) = service.apply(Event::Admin(admin)).await?;
    let Answer::StateSet { was_reported } = answer else { return Err(unexpected(&answer)) };
    if request.release {
        tracing::info!(target_id = target.0, "target state left to its node");
    } else {
        tracing::info!(target_id = target.0, state = ?request.state(), "target state set");
    }
    Ok(SetTargetStateReply { was_reported })
}
