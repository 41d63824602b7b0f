//! The cluster as it is now.

use control::proto::ViewUpdate;
use tonic::Status;

use super::ManagementService;

#[expect(clippy::unused_async, reason = "all handlers are called alike")]
pub(super) async fn handle(service: &ManagementService) -> Result<ViewUpdate, Status> {
    let view = service.views.borrow().clone();
    Ok(view.to_update())
}
