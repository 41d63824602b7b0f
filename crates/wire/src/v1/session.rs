//! Messages that every service answers, and a client's presence at a shard.

use types::id::{InodeId, SessionId};
use types::name::Name;

use crate::codec::messages;

messages! {
    /// Nothing: the body of requests and replies that say all in their header.
    Empty {}

    /// From here on payloads on this connection may lie in memory that the caller made and the other side maps. Refused
    /// where the other side cannot: all goes over the socket then.
    Share {
        /// The caller's process id, as its host counts.
        process: u32,
        /// The caller's descriptor of the memory.
        descriptor: u32,
        /// Bytes.
        length: u64,
        /// The bytes at the beginning of the memory: the other side has found the right one.
        mark: crate::codec::Bytes,
    }

    /// Registers a session at a shard, or resumes it on a new connection or after the shard's restart. Requests on
    /// this connection run under it from here on. Session ids come from mgmtd and are never reused.
    SessionOpen {
        session: SessionId,
        /// For people: host name and mount point.
        description: crate::codec::Bytes,
        /// What this session holds open, complete: after a shard's restart it is how open-but-unlinked files and
        /// write intents are kept. Empty on the first call.
        opens: Vec<HeldOpen>,
    }
    HeldOpen { inode: InodeId, write_intent: bool }
    SessionOpened {
        /// Raised at each start of the shard: a change tells the client to send `opens` again.
        incarnation: u64,
        /// The shard forgets a session that it has not heard of for so long. Any request counts.
        expiry_ms: u64,
    }
    /// Asks for leases that the session has to give back; one such request per session is answered as soon as there are
    /// any, so it waits for as long as there are none. A session that has none waiting gets no leases.
    Recalls {
        /// Recalls that the session has obeyed: it believes nothing any more of what they named.
        done: Vec<u64>,
    }
    RecallsReply {
        /// All that are not yet obeyed. What answers say of their subjects that were asked for before this one is
        /// obeyed gives no lease, whatever they say.
        recalls: Vec<Recall>,
    }
    Recall {
        /// For `done`.
        id: u64,
        inode: InodeId,
        /// What this name in the directory `inode` stands for; `None`: attributes and data of the inode.
        name: Option<Name>,
    }
    /// Ends the session: what it held open is released.
    SessionClose { session: SessionId }
}
