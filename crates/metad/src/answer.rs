//! What a request came to, held back until the turn's batch is committed.

use kv::KvError;
use namespace::error::store_errno;
use namespace::locks::Ticket;
use namespace::transaction::{Haste, Outcome};
use namespace::view::Awaited;
use net::Responder;
use types::error::Errno;
use types::id::TransactionId;
use wire::frame::Status;
use wire::v1::lock::{GetLockReply, LockWaitsReply};
use wire::v1::meta::{
    ChangeReply, EntryInfoReply, InodeReply, LookupReply, PartsReply, ReadDirReply, ReadInlineReply, ReadlinkReply,
    ScanReply, SettleReply, StatFsReply, WalkReply, WriteInlineReply, XattrNames, XattrReply,
};
use wire::v1::session::{Empty, RecallsReply, RenewReply, SessionOpened};
use wire::v1::transaction::{self, Climbed, OutcomeState, Prepared, Transacted};

/// One reply of the protocol, not yet encoded.
pub(crate) enum Answer {
    Done,
    Inode(Box<InodeReply>),
    Changed(ChangeReply),
    Wrote(WriteInlineReply),
    Contents(ReadInlineReply),
    Opened(SessionOpened),
    /// A session that may not be on disk yet. Goes out when the log is: what it is given from now on counts only where
    /// it is known.
    OpenedAnew(SessionOpened),
    Target(ReadlinkReply),
    Page(ReadDirReply),
    Settled(SettleReply),
    Xattr(XattrReply),
    Names(XattrNames),
    StatFs(StatFsReply),
    Entry(Box<EntryInfoReply>),
    Scan(ScanReply),
    Parts(PartsReply),
    /// Parts of a directory for who did not know of them yet. Goes out when the log is on disk, for it is going to rely
    /// on them for good.
    NewParts(PartsReply),
    Looked(LookupReply),
    Walked(WalkReply),
    Recalls(RecallsReply),
    Renewed(RenewReply),
    /// Not answered now: others have to give back leases first, or contents have to be moved.
    Parked(Awaited),
    /// Done, and goes out when the log is on disk, as soon as the disk can.
    Synced,
    /// Promises of a transaction's parts. `Some`: goes out when the log is on disk, and how soon that is to be. `None`:
    /// at once, for all of it is done already.
    Prepared(Prepared, Option<Haste>),
    /// What became of a transaction. That it is committed goes out when the log is on disk; all else at once.
    Outcome(Outcome),
    /// Promises and ends of several transactions. `Some`: goes out when the log is on disk, as soon as the most urgent
    /// of them needs it.
    Transacted(Transacted, Option<Haste>),
    Climbed(Climbed),
    /// None yet: the request waits for this transaction.
    Blocked(TransactionId),
    LockHolder(GetLockReply),
    LockWaits(LockWaitsReply),
    /// Goes out when the lock is there, or the wait for it over.
    Later(Ticket),
    Failed(Status),
}

/// It is moved a few times with each request: what is longer belongs on the heap.
const _: () = assert!(size_of::<Answer>() <= 64);

impl Answer {
    pub(crate) fn errno(errno: Errno) -> Self {
        Self::Failed(Status::Errno(errno))
    }

    /// Where the batch was refused that it had changed something in.
    pub(crate) fn not_committed(error: &KvError) -> Self {
        Self::errno(store_errno(error))
    }

    /// How soon the log is to be on disk, before which the answer may not go out. `None`: it goes out unsynced, at
    /// once.
    pub(crate) fn needs_sync(&self) -> Option<Haste> {
        match self {
            Self::Synced | Self::NewParts(_) | Self::OpenedAnew(_) => Some(Haste::Now),
            // What is undecided, or unknown, promises nothing.
            Self::Outcome(outcome) => (*outcome == Outcome::Commit).then_some(Haste::Now),
            Self::Prepared(_, waits) | Self::Transacted(_, waits) => *waits,
            _ => None,
        }
    }

    /// Where the disk has refused, or does not end, the sync that it waits for.
    pub(crate) fn unsynced(self, errno: Errno) -> Self {
        match self {
            // Who opens a session may want to read alone.
            Self::OpenedAnew(reply) => Self::Opened(reply),
            _ => Self::errno(errno),
        }
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Failed(status) => *status,
            Self::Parked(_) | Self::Blocked(_) => Status::Busy,
            _ => Status::Ok,
        }
    }

    pub(crate) fn send(self, responder: Responder) {
        match self {
            Self::Done | Self::Synced => responder.reply(&Empty {}),
            Self::Inode(reply) => responder.reply(&reply),
            Self::Changed(reply) => responder.reply(&reply),
            Self::Wrote(reply) => responder.reply(&reply),
            Self::Contents(reply) => responder.reply(&reply),
            Self::Opened(reply) | Self::OpenedAnew(reply) => responder.reply(&reply),
            Self::Target(reply) => responder.reply(&reply),
            Self::Page(reply) => responder.reply(&reply),
            Self::Settled(reply) => responder.reply(&reply),
            Self::Xattr(reply) => responder.reply(&reply),
            Self::Names(reply) => responder.reply(&reply),
            Self::StatFs(reply) => responder.reply(&reply),
            Self::Entry(reply) => responder.reply(&*reply),
            Self::Scan(reply) => responder.reply(&reply),
            Self::Parts(reply) | Self::NewParts(reply) => responder.reply(&reply),
            Self::Looked(reply) => responder.reply(&reply),
            Self::Walked(reply) => responder.reply(&reply),
            Self::Recalls(reply) => responder.reply(&reply),
            Self::Renewed(reply) => responder.reply(&reply),
            Self::Prepared(reply, _) => responder.reply(&reply),
            Self::Outcome(outcome) => {
                let state = match outcome {
                    Outcome::Pending => OutcomeState::NotDecided,
                    Outcome::Commit => OutcomeState::ToBeDone,
                    Outcome::Abort => OutcomeState::ToBeForgotten,
                };
                responder.reply(&transaction::Outcome { state });
            }
            Self::Climbed(reply) => responder.reply(&reply),
            Self::Transacted(reply, _) => responder.reply(&reply),
            // The turn keeps these back.
            Self::Parked(_) | Self::Blocked(_) => responder.fail(Status::Busy),
            Self::LockHolder(reply) => responder.reply(&reply),
            Self::LockWaits(reply) => responder.reply(&reply),
            // The wait ends without an answer: ask again, elsewhere or later.
            Self::Later(_) => responder.fail(Status::Busy),
            Self::Failed(status) => responder.fail(status),
        }
    }
}
