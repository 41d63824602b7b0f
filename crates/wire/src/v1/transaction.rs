//! What shards ask of each other for an operation that concerns several of them. The coordinator is the shard that the
//! client asked; the others are participants.

use types::error::Errno;
use types::id::{InodeId, SessionId, TransactionId};

use crate::codec::{Bytes, DecodeError, Reader, Wire, messages, numbered};

messages! {
    /// Checks a part of an operation, locks what it touches, and makes it durable without doing it. Answered with
    /// `Prepared` when it is on disk, or, where all it asks for is done at once, before that; an errno or `Busy` (something
    /// else touches the same) means that nothing of this round is left here.
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
    /// Does what was prepared, or forgets it; unknown transactions are no error. Comes in a `Transact`.
    Finish {
        transaction: TransactionId,
        commit: bool,
        /// The directory that was made at once for it, where it is to stay.
        made: Option<InodeId>,
    }
    /// What became of a transaction that the asked shard coordinates.
    AskOutcome { transaction: TransactionId }
    Outcome { state: OutcomeState }
    /// Goes up from a directory at home in the asked shard: to `until`, to root, or to the first directory that is at home
    /// elsewhere.
    Climb { inode: InodeId, until: InodeId }
    Climbed { inode: InodeId }
    /// What came together for one shard: first all of these `Finish`, then all of these `Prepare`, in their order. Answered
    /// when the effects of all of them are on disk that any of them waits for.
    Transact { finishes: Vec<Finish>, prepares: Vec<Prepare> }
    Transacted {
        /// For each `Finish`.
        endings: Vec<Ending>,
        /// For each `Prepare`.
        promises: Vec<Promise>,
    }
}

numbered! {
    OutcomeState {
        NotDecided = 0,
        ToBeDone = 1,
        ToBeForgotten = 2,
    }
    /// What came of a `Finish`.
    Ending {
        Done = 0,
        /// Nothing is known of the transaction, and the directory that was made for it is not there.
        Lost = 1,
        /// It failed, and is to be sent again, in time.
        Later = 2,
    }
}

/// What came of a `Prepare` among others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Promise {
    /// As `votes` of `Prepared`.
    Given(Bytes),
    Refused(Errno),
    /// Something else touches the same: as `Busy`.
    Again,
    /// It has to wait, for leases or another transaction, and the others do not wait with it. Sent again alone, it is answered
    /// when that is over.
    Waits,
}

/// One byte, and what belongs to it.
impl Wire for Promise {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Given(votes) => {
                out.push(0);
                votes.encode(out);
            }
            Self::Refused(errno) => {
                out.push(1);
                errno.encode(out);
            }
            Self::Again => out.push(2),
            Self::Waits => out.push(3),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(reader)? {
            0 => Self::Given(Bytes::decode(reader)?),
            1 => Self::Refused(Errno::decode(reader)?),
            2 => Self::Again,
            3 => Self::Waits,
            _ => return Err(DecodeError::Invalid("promise")),
        })
    }
}
