//! Locks on files: messages to the shard that owns the file's inode.
//!
//! An owner is a number of the session's own: a process for `fcntl`, an open file description for `flock` and for
//! `F_OFD_SETLK`. A request that may be answered late has a number of the session's own, too, by which it is cancelled, and
//! by which a retry on another connection finds its place in the queue.
//!
//! The end of a file is locked as a whole and exclusively, by a session that intends to write the file, as owner 0; its
//! holder keeps it until `RecallsReply` names it.

use types::id::{InodeId, SessionId};
use types::lock::{Held, LockKind, LockMode, LockRange};

use crate::codec::messages;

messages! {
    /// Locks a range, also one that the owner holds a part of, in whatever mode. Replied with `Empty` once it is held,
    /// however long that takes: `EAGAIN` without `wait` where somebody is in the way, `EDEADLK` with `detect` where the
    /// wait would be for ever, `EINTR` where it was cancelled, `ENOLCK` at a bound of the shard, `EBADF` for the end of a
    /// file without a write intent on it.
    Lock { number: u64, inode: InodeId, kind: LockKind, owner: u64, wanted: Held, wait: bool, detect: bool }
    /// Gives up what the owner holds of a range. Replied with `Empty`, also where that was nothing.
    Unlock { inode: InodeId, kind: LockKind, owner: u64, range: LockRange }
    /// Who would be in the way of such a lock.
    GetLock { number: u64, inode: InodeId, kind: LockKind, owner: u64, range: LockRange, mode: LockMode }
    GetLockReply { holder: Option<LockHolder> }
    LockHolder { session: SessionId, owner: u64, held: Held }
    /// Ends the wait of the request with this number, which is then answered itself. Replied with `Empty`, also where
    /// nothing waits.
    CancelLock { number: u64 }

    /// What processes wait for in this shard, that asked for it with `detect`: for who looks for cycles of waits.
    LockWaits { processes: Vec<Process> }
    /// One for each process that a wait waits for. Not all where there are very many.
    LockWaitsReply { waits: Vec<LockWait> }
    /// The owner of locks by `fcntl`.
    Process { session: SessionId, owner: u64 }
    /// The request of `waiter` with this number is not granted as long as `holder` keeps what it holds.
    LockWait { waiter: Process, number: u64, holder: Process }

    /// A lock that a session holds, as it says after a restart of the shard.
    HeldLock { inode: InodeId, kind: LockKind, owner: u64, held: Held }
}
