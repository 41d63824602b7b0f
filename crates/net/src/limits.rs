//! The bounds of one connection.

use std::sync::Arc;
use std::time::Duration;

use crate::pairs::Selector;
use crate::places::Places;

/// What one connection may take. Requests over a bound wait at their caller; what a server cannot take it leaves in the
/// socket.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Requests in flight: at the calling side sent and not answered, at the answering side taken and their reply not
    /// sent. At most [`Limits::REQUESTS_MAX`].
    pub requests: usize,
    /// Bytes in flight: bodies, payloads, and room for the payloads of replies.
    pub bytes: usize,
    /// Connections of one listener: each thread of each client has one to each lane and shard, over each rail of storage.
    pub connections: usize,
    /// Those that it has in common with the process's other listeners.
    pub places: Places,
    /// Reach a server on the same host through a UNIX socket where it has one.
    pub local_sockets: bool,
    /// Payloads that this side sends over a socket carry their CRC32C. What comes with one is verified in any case.
    pub payload_sums: bool,
    /// Interfaces to go out by, best first; none: all.
    pub interfaces: Arc<[Selector]>,
    /// Connecting and the handshake together.
    pub handshake: Duration,
    /// The calling side closes a connection that it heard nothing from for so long, though it asks from time to time.
    pub silence: Duration,
    /// The calling side closes a connection over which nobody has asked anything for so long, and nothing is being answered:
    /// among thousands of servers, a thread uses few at a time. Not one that its caller has asked to keep.
    pub unused: Duration,
    /// The answering side closes a connection that sent nothing for so long (callers ping well before).
    pub idle: Duration,
    /// Either side closes a connection whose other side stopped for so long in the middle of a frame.
    pub stall: Duration,
}

impl Limits {
    /// Slots of one connection.
    pub const REQUESTS_MAX: usize = 1 << 16;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 256,
            bytes: 64 << 20,
            connections: 64 << 10,
            places: Places::default(),
            local_sockets: true,
            payload_sums: true,
            interfaces: Arc::default(),
            handshake: Duration::from_secs(5),
            silence: Duration::from_secs(15),
            unused: Duration::from_secs(60),
            idle: Duration::from_secs(120),
            stall: Duration::from_secs(30),
        }
    }
}
