//! An administrator knows better how a target is, or leaves that to its node again.

use cluster::event::{Admin, Answer, Event};
use cluster::map::TargetState;
use control::convert;
use control::proto::{SetTargetStateReply, SetTargetStateRequest};
use tonic::Status;
use types::id::TargetId;

use super::{ManagementService, deletion_from, unexpected};

pub(super) async fn handle(
    service: &ManagementService,
    request: SetTargetStateRequest,
) -> Result<SetTargetStateReply, Status> {
    let target = TargetId(request.target);
    let state = if request.release {
        None
    } else {
        let state = convert::state_from(request.state());
        Some(state.map_err(|error| Status::invalid_argument(error.to_string()))?)
    };
    let admin = match (deletion_from(request.deletion), state) {
        (Some(deletion), Some(TargetState::Bad)) => Admin::TakeOut { target, deletion },
        (Some(deletion), state) => Admin::PutBack { target, state, deletion },
        (None, Some(state)) => Admin::SetTargetState { target, state },
        (None, None) => Admin::ReleaseTargetState { target },
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
