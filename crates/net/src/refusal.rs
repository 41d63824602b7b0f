//! What is said of callers that do not come through the handshake: all are counted, of few is told.

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use telemetry::seldom::{Seldom, SeldomBy};
use tracing::warn;

use crate::handshake::HandshakeError;
use crate::metrics;

/// Who is refused comes again, each of its threads every second, and whoever looks whether a port is open may do so for
/// days.
const TELL_EVERY: Duration = Duration::from_secs(600);
/// Thousands may go away at once, where the service stood still.
static GONE: LazyLock<Seldom> = LazyLock::new(|| Seldom::every(TELL_EVERY));
/// By host and kind of reason: the first line of each is what somebody has to see.
static REFUSED: LazyLock<SeldomBy<(IpAddr, &'static str)>> = LazyLock::new(|| SeldomBy::every(TELL_EVERY));

/// A connection from `peer` has ended in its handshake.
pub fn note(peer: SocketAddr, reason: &HandshakeError) {
    let label = metrics::refusal_label(reason);
    metrics::refused(label);
    let now = Instant::now();
    if matches!(reason, HandshakeError::Ended | HandshakeError::TimedOut) {
        if let Some(left_out) = GONE.is_due(now) {
            warn!(%peer, %reason, left_out, "a connection came to nothing");
        }
    } else if let Some(left_out) = REFUSED.is_due((peer.ip().to_canonical(), label), now) {
        warn!(%peer, %reason, left_out, "refused a connection");
    }
}
