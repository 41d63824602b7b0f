//! A client wants a session id.

use cluster::event::{Answer, Event};
use control::proto::{RegisterClientReply, RegisterClientRequest};
use control::server::PeerInfo;
use tonic::{Request, Status};

use super::{ManagementService, unexpected};

/// Longest description that is logged, in characters.
const DESCRIPTION_MAX: usize = 200;

pub(super) async fn handle(
    service: &ManagementService,
    request: Request<RegisterClientRequest>,
) -> Result<RegisterClientReply, Status> {
    let peer = request.extensions().get::<PeerInfo>().map_or_else(String::new, |peer| peer.address.to_string());
    let description: String = request.get_ref().description.chars().take(DESCRIPTION_MAX).collect();
    let (answer, _) = service.apply(Event::RegisterClient).await?;
    let Answer::Session(session) = answer else { return Err(unexpected(&answer)) };
    tracing::info!(session = session.0, ?description, peer, "client registered");
    Ok(RegisterClientReply { session: session.0 })
}
