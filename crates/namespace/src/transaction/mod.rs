//! Operations that concern several shards: two-phase commit, with everything promised and decided in the store.
//!
//! The shard that a client asks is the *coordinator*; the others are *participants*. The coordinator's `plan` says what to
//! ask of whom. A participant that promises its part (`Prepare`) checks it, locks what it touches, and writes it down;
//! its promise leaves when that is **on disk** (but for directories made at once, below). When all have promised, the
//! coordinator decides: one batch has its own part, the stored reply for the client, and the record of the decision. The
//! client is answered then. The decision goes to the participants when it is **on disk**; each does its part and forgets
//! its promise in one batch, and says so when that is **on disk**; then the coordinator forgets the decision.
//!
//! So whatever crashes and whatever a power cut takes back: a promise without a decision is forgotten (a coordinator that
//! knows nothing of a transaction says so), and a decision is done by all. A power cut that takes the decision takes
//! the operation as a whole, as it may take any other that was not synced.
//!
//! **What others see.** Writers of what is locked wait. Readers at a participant wait too, for the decision may have been
//! made; readers at the coordinator see what was before, which is true until it decides. So who sees the new state
//! anywhere sees it everywhere: no name is seen twice or missed by one who asks for one place after the other.
//!
//! **Clients that are gone.** Where a request's connection ends while its transaction is undecided, the transaction is given
//! up: nobody would know that it happened, and whoever has seen what was before, such as the next mount after a killed one,
//! must not see it change by what the dead one had asked for. A client that is there asks again on its next connection.
//!
//! **Directories made at once.** Of a directory that is being made nobody knows before its name is there. So its shard makes it
//! with its promise, locks nothing, and its vote waits for no disk; a decision only takes the mark away that it is
//! *unconfirmed*, and nobody hurries with that. What a power cut may do then is mended afterwards. Where it takes the
//! decision, the shard removes the directory with what is in it: so while it is unconfirmed, only new files are made in it, and
//! none of them is called durable. Where it takes the directory and not the decision, the record of that says how to make
//! it again: whatever was in it is lost by the same power cut, as it may be (`unconfirmed`).
//!
//! **Haste.** Most decisions are awaited by nobody: the client has its answer. So they go to the participants with a sync that
//! comes within milliseconds, many together. Where a request meets a promise, its participant asks the coordinator
//! (`AskOutcome`), which tells a decision with a sync at once, also one that it has still to make.
//!
//! **No deadlocks.** A part that meets a lock of another transaction is refused at once, and the operation given up and
//! tried again from its beginning. What waits for a lock holds none; the token for moves of directories is taken first, and
//! asked for by one transaction of a shard at a time (`token`). An unconfirmed directory is waited for: what has made it waits
//! for nothing but its coordinator's disk. A split waits for locks in its directory while parts are promised that nobody knows
//! of (`dividing`).
//!
//! **Leases.** Nobody but the session that asked may believe what is about to change: before a shard locks its parts, it
//! takes back the leases on what they touch, and what is locked gives none. The request to a participant waits for that
//! (while nothing of it is locked there); the coordinator's client waits before the transaction begins, and where the
//! coordinator learns only later what it has to take back, the transaction is tried again. Who renames takes what its kernel
//! knows of the old name to the new one: each shard gives it a lease on a name that something was moved to.
//!
//! Pure as all of this crate: requests, replies and the time in; `Outgoing` messages and store operations out.

use std::collections::{BTreeMap, BTreeSet};

use types::attr::Attr;
use types::id::{InodeId, SessionId, ShardId, TransactionId};

use crate::transaction::coordinator::Running;
use crate::transaction::dividing::Dividing;
use crate::transaction::locks::Locks;
use crate::transaction::part::{Part, Vote};
use crate::view::InodeView;

mod apply;
mod coordinator;
mod crossing;
pub(crate) mod dividing;
pub(crate) mod locks;
pub mod part;
mod participant;
pub(crate) mod plan;
mod token;
mod turn;
mod unconfirmed;

pub use turn::Steps;

/// A request to another shard. The shell sends it, and brings what came of it to `Shard::replied`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    pub to: ShardId,
    pub message: Message,
    /// Only when the turn's commit is on disk; if that fails, never.
    pub after_sync: bool,
    /// How soon that is to be.
    pub haste: Haste,
}

/// How soon a change is to be on disk that something waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Haste {
    /// With the next sync that comes by itself, at the end of the log's interval.
    WithNextSync,
    /// Within a few milliseconds: those of all that come meanwhile go together.
    Soon,
    /// As soon as the disk can.
    Now,
}

impl Outgoing {
    fn at_once(to: ShardId, message: Message) -> Self {
        Self { to, message, after_sync: false, haste: Haste::Now }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// `session` is the one that asked for it all.
    Prepare {
        session: SessionId,
        transaction: TransactionId,
        round: u8,
        parts: Vec<Part>,
    },
    Finish {
        transaction: TransactionId,
        commit: bool,
        /// The directory that was made at once for it, where it is to stay.
        made: Option<InodeId>,
    },
    AskOutcome {
        transaction: TransactionId,
    },
    Climb {
        transaction: TransactionId,
        inode: InodeId,
        until: InodeId,
    },
}

/// What another shard answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    Prepared(Vec<Vote>),
    Done,
    /// Instead of `Done`: nothing is known of the transaction, and the directory that it made is not there. It was made and
    /// lost again, or it was removed since.
    Lost,
    Outcome(Outcome),
    Climbed(InodeId),
    Refused(types::error::Errno),
    /// It did not answer, or asks to come again. It may have done what it was asked.
    Failed,
}

/// What became of a decision at a participant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    Done,
    /// As [`Reply::Lost`].
    Lost,
}

/// What became of a transaction, as its coordinator knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Pending,
    Commit,
    Abort,
}

/// Who asks for what a shard does by itself: no session has this id.
pub(crate) const NOBODY: SessionId = SessionId(0);

/// One change of one session.
type Change = (SessionId, u64);

/// What a request finds that waited for its transaction.
#[derive(Clone, Debug)]
enum Ending {
    Made(Box<InodeView>),
    /// As it is without a name.
    Removed(Box<Attr>),
    Refused(types::error::Errno),
    Again,
}

/// All that a shard knows of transactions.
#[derive(Default)]
pub(crate) struct Transactions {
    /// Coordinated here, not decided.
    running: BTreeMap<TransactionId, Box<Running>>,
    by_change: BTreeMap<Change, TransactionId>,
    endings: BTreeMap<Change, Ending>,
    /// Coordinated here, decided: who has not yet done it.
    decided: BTreeMap<TransactionId, Decided>,
    /// Promised to others.
    prepared: BTreeMap<TransactionId, Prepared>,
    /// Not promised: leases have to be given back first, directories come to be confirmed, or another one gives up the token.
    recalling: BTreeMap<TransactionId, Recalling>,
    pub(crate) locks: Locks,
    pub(crate) dividing: Dividing,
    token_queue: token::TokenQueue,
    outbox: Vec<Outgoing>,
    ended: Vec<TransactionId>,
    turn: turn::Turn,
}

struct Decided {
    participants: Vec<ShardId>,
    /// The directory that a participant made at once.
    made: Option<InodeId>,
    /// When they were last told.
    told_ms: u64,
}

struct Recalling {
    since_ms: u64,
    /// Its coordinator wants no promise any more.
    given_up: bool,
}

struct Prepared {
    /// That asked for it all.
    session: SessionId,
    rounds: Vec<(u8, Vec<Part>)>,
    /// When the coordinator was last asked, or the promise given.
    asked_ms: u64,
    /// The coordinator was told that something waits for it here.
    awaited: bool,
}

impl Transactions {
    /// Nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.by_change.is_empty() && self.endings.is_empty()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.turn.is_clean()
    }

    /// The change is under way, or its end was not asked for yet.
    pub(crate) fn knows(&self, change: Change) -> bool {
        self.by_change.contains_key(&change) || self.endings.contains_key(&change)
    }

    /// The transaction of this change, if it is under way.
    pub(crate) fn of_change(&self, change: Change) -> Option<TransactionId> {
        self.by_change.get(&change).copied()
    }

    /// A directory that was made for one of them may be lost by its shard.
    pub(crate) fn may_be_lost(&self, directories: impl IntoIterator<Item = InodeId>) -> bool {
        let asked: BTreeSet<InodeId> = directories.into_iter().collect();
        self.decided.values().any(|decided| decided.made.is_some_and(|made| asked.contains(&made)))
    }

    /// Decided here, and not yet done by all.
    pub(crate) fn is_decided(&self, transaction: TransactionId) -> bool {
        self.decided.contains_key(&transaction)
    }

    /// The session has the answers to all changes below, or has given them up: it asks for none of them again.
    pub(crate) fn answered(&mut self, session: SessionId, below: u64) {
        while let Some((&change, _)) = self.endings.range((session, 0)..(session, below)).next() {
            self.endings.remove(&change);
        }
    }

    /// The session has the answers to all changes below, or has given them up, but for those that are under way.
    pub(crate) fn answered_but(&mut self, session: SessionId, below: u64, under_way: &BTreeSet<u64>) {
        let is_answered = |sequence: u64| sequence < below && !under_way.contains(&sequence);
        self.endings.retain(|&(of, sequence), _| of != session || !is_answered(sequence));
    }

    /// A session ends: nobody asks for its answers.
    pub(crate) fn forget_session(&mut self, session: SessionId) {
        self.endings.retain(|(of, _), _| *of != session);
    }
}
