//! What the kernel has sent before, to whichever loop of the mount.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuse::Arrivals;

/// Longest wait for closes that the kernel has told of.
const CLOSES_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for a loop to begin with a write that it is reading: no longer than another mount waits for the rest of one.
const WRITES_WAIT: Duration = Duration::from_millis(100);

/// One loop's view of it.
pub(crate) struct Sent {
    loop_index: usize,
    /// Set when the mount has begun.
    arrivals: Arc<OnceLock<Arrivals>>,
}

impl Sent {
    pub(crate) fn new(loop_index: usize, arrivals: Arc<OnceLock<Arrivals>>) -> Self {
        Self { loop_index, arrivals }
    }

    /// The client knows of all that was closed on this mount before.
    pub(crate) async fn hear_of_closes(&self) {
        if let Some(arrivals) = self.arrivals.get()
            && !arrivals.settle(CLOSES_WAIT).await
        {
            tracing::warn!(limit = ?CLOSES_WAIT, "a loop of the mount hangs: a lock may seem held that was given up");
        }
    }

    /// All writes that were sent before the loop's present one have been begun with.
    pub(crate) async fn hear_of_writes(&self) {
        if let Some(arrivals) = self.arrivals.get()
            && !arrivals.settle_writes(self.loop_index, WRITES_WAIT).await
        {
            tracing::warn!(limit = ?WRITES_WAIT, "a loop of the mount hangs: parts of a long append may change places");
        }
    }
}
