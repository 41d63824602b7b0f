//! What shards ask of each other for an operation that concerns several of them. The coordinator is the shard that the
//! client asked; the others are participants.

use types::id::{InodeId, SessionId, TransactionId};

use crate::codec::{Bytes, messages};

messages! {
    /// Checks a part of an operation, locks what it touches, and makes it durable without doing it. Answered with
    /// `Prepared` when it is on disk; an errno or `Busy` (something else touches the same) means that nothing of this
    /// round is left here.
    Prepare {
        /// The client's, whose own leases are not in the way.
        session: SessionId,
        transaction: TransactionId,
        /// An operation may come several times, each time with further parts.
        round: u8,
        /// As in the record of the store: see docs/formats.md.
        parts: Bytes,
    }
    /// One vote for each part, in their order.
    Prepared { votes: Bytes }
    /// Does what was prepared, or forgets it. Answered when that is on disk; unknown transactions are no error.
    Finish { transaction: TransactionId, commit: bool }
    /// What became of a transaction that the asked shard coordinates.
    AskOutcome { transaction: TransactionId }
    Outcome {
        /// 0: not decided yet; 1: to be done; 2: to be forgotten.
        state: u8,
    }
    /// Goes up from a directory at home in the asked shard: to `until`, to root, or to the first directory that is at home
    /// elsewhere.
    Climb { inode: InodeId, until: InodeId }
    Climbed { inode: InodeId }
}
