//! The end of a session.

use tracing::warn;
use types::cred::Credentials;
use types::error::Errno;
use wire::v1::session::SessionClose;

use crate::caller::Caller;
use crate::router::{Client, Destination};

impl Client {
    /// This thread is done. The last thread of the session ends it, so that nothing waits for its expiry.
    pub async fn shutdown(&self) {
        self.later.finish().await;
        self.write_all_out().await;
        if !self.shared.leave() {
            return;
        }
        let caller = Caller::patient(Credentials::default());
        let ends = self.shared.shards_seen().into_iter().map(async |shard| {
            let request = SessionClose { session: self.shared.session };
            let ended: Result<_, Errno> = self.call(&caller, Destination::Shard(shard), &request).await;
            if let Err(error) = ended {
                warn!(%shard, "could not end the session: {error}; it expires by itself");
            }
        });
        ring::join_all(ends).await;
    }
}
