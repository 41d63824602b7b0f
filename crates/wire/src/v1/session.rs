//! Messages that every service answers, and a client's presence at a shard.

use types::id::{InodeId, SessionId};
use types::name::Name;

use crate::codec::messages;
use crate::v1::lock::HeldLock;

/// Most inodes whose leases are renewed with one request: a fraction of a millisecond of the shard's time.
pub const RENEWED_MAX: usize = 512;

/// Most changes that one `Answered` names.
pub const UNDER_WAY_MAX: usize = 4096;

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

    /// Ends another connection of the caller to the same thread, which the caller has given up. Answered when nothing that
    /// was asked on it can have an effect any more: from then on the caller may ask again on this one.
    Fence {
        /// The connection: the first 16 bytes of its handshake's hash, which both sides know.
        connection: crate::codec::Bytes,
    }

    /// Ends all connections of a client to the same thread, and refuses those that it had begun to make. Answered when
    /// nothing that was asked on them can have an effect any more. New ones it may make.
    FenceSession { session: SessionId }

    /// Registers a session at a shard, or resumes it on a new connection or after the shard's restart. Requests on
    /// this connection run under it from here on. Session ids come from mgmtd and are never reused.
    SessionOpen {
        session: SessionId,
        /// For people: host name and mount point.
        description: crate::codec::Bytes,
        /// `opens` and `locks` are what the session holds. Without, they are empty, and the answer's incarnation is what is
        /// asked for.
        tells: bool,
        /// They are not all of it: the rest follows in further ones. Only with the last has the session told what it holds.
        more: bool,
        /// Which incarnation it tells: another one has heard nothing of what was told before, and answers `NoSession`. 0: any.
        incarnation: u64,
        /// What this session holds open: after a shard's restart it is how open-but-unlinked files and
        /// write intents are kept. Empty on the first call.
        opens: Vec<HeldOpen>,
        /// The locks that it holds. Of both, only the first telling counts, since a second may be older.
        locks: Vec<HeldLock>,
        /// Which of the client's threads this is: each has one connection to a shard at a time.
        thread: u32,
        /// Rises with each `SessionOpen` of the thread. Requests on an earlier connection, which may still be on their way
        /// when the client has long retried them on this one, are refused from here on.
        connection: u64,
    }
    HeldOpen {
        inode: InodeId,
        write_intent: bool,
        /// It is the session's draft. Taken back where others were told of the file; the next `Settle::drafted` says so.
        draft: bool,
    }
    SessionOpened {
        /// Raised at each start of the shard: a change tells the client to send `opens` again.
        incarnation: u64,
        /// Changes that an incarnation below this one has answered, and no fsync has covered, may be lost: its host has lost
        /// its memory.
        kept_since: u64,
        /// The shard forgets a session that it has not heard of for so long. Any request counts.
        expiry_ms: u64,
        /// Of `locks`: those that somebody else holds by now, since the session had expired.
        lost: Vec<HeldLock>,
        /// The write intents that it told of are its own still. Else the session had ended, and others may have been told
        /// that nobody writes, or others have written since what a power cut had brought back: it has to ask for each anew
        /// before it changes any more of the file.
        keeps_intents: bool,
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
        /// Files whose ends the session holds and others wait for: to be unlocked soon. Each is said once on a
        /// connection.
        ends: Vec<InodeId>,
    }
    Recall {
        /// For `done`.
        id: u64,
        inode: InodeId,
        /// What this name in the directory `inode` stands for; `None`: attributes and data of the inode.
        name: Option<Name>,
    }
    /// Leases on these inodes are to go on for another term: at most `RENEWED_MAX` of them.
    Renew { inodes: Vec<InodeId> }
    RenewReply {
        /// The term in milliseconds, for each of `inodes`. 0 where the session's lease is over, is being taken back, or finds
        /// no room: what is left of it is not changed by that, and after it the session has to ask what is so.
        lease_ms: Vec<u32>,
    }
    /// The session will ask for no change below `below` again, but for those that are `under_way`, of which there are at most
    /// `UNDER_WAY_MAX`: so one of these that is not answered for long lets the shard forget the answers to later ones.
    Answered {
        below: u64,
        under_way: Vec<u64>,
    }
    /// Ends the session: what it held open is released.
    SessionClose { session: SessionId }
}

impl SessionOpen {
    /// Asks for the session without telling what it holds.
    #[must_use]
    pub fn asking(session: SessionId, description: Vec<u8>, thread: u32, connection: u64) -> Self {
        let description = crate::codec::Bytes(description);
        let (opens, locks) = (Vec::new(), Vec::new());
        Self { session, description, tells: false, more: false, incarnation: 0, opens, locks, thread, connection }
    }
}
