//! What a request came to, held back until the turn's batch is committed.

use kv::KvError;
use namespace::error::store_errno;
use net::Responder;
use types::error::Errno;
use wire::frame::Status;
use wire::v1::meta::{
    EntryInfoReply, InodeReply, LookupReply, ReadDirReply, ReadlinkReply, ScanReply, SettleReply, StatFsReply,
    XattrNames, XattrReply,
};
use wire::v1::session::{Empty, RecallsReply, SessionOpened};

/// One reply of the protocol, not yet encoded.
pub(crate) enum Answer {
    Done,
    Inode(InodeReply),
    Opened(SessionOpened),
    Target(ReadlinkReply),
    Page(ReadDirReply),
    Settled(SettleReply),
    Xattr(XattrReply),
    Names(XattrNames),
    StatFs(StatFsReply),
    Entry(Box<EntryInfoReply>),
    Scan(ScanReply),
    Looked(LookupReply),
    Recalls(RecallsReply),
    /// Not answered now: others have to give back leases first.
    Parked,
    /// Goes out when the log is on disk.
    Synced,
    Failed(Status),
}

impl Answer {
    pub(crate) fn errno(errno: Errno) -> Self {
        Self::Failed(Status::Errno(errno))
    }

    /// What all requests of a turn get whose batch was refused.
    pub(crate) fn not_committed(error: &KvError) -> Self {
        Self::errno(store_errno(error))
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Failed(status) => *status,
            _ => Status::Ok,
        }
    }

    pub(crate) fn send(self, responder: Responder) {
        match self {
            Self::Done | Self::Synced => responder.reply(&Empty {}),
            Self::Inode(reply) => responder.reply(&reply),
            Self::Opened(reply) => responder.reply(&reply),
            Self::Target(reply) => responder.reply(&reply),
            Self::Page(reply) => responder.reply(&reply),
            Self::Settled(reply) => responder.reply(&reply),
            Self::Xattr(reply) => responder.reply(&reply),
            Self::Names(reply) => responder.reply(&reply),
            Self::StatFs(reply) => responder.reply(&reply),
            Self::Entry(reply) => responder.reply(&*reply),
            Self::Scan(reply) => responder.reply(&reply),
            Self::Looked(reply) => responder.reply(&reply),
            Self::Recalls(reply) => responder.reply(&reply),
            // The turn keeps these back.
            Self::Parked => responder.fail(Status::Busy),
            Self::Failed(status) => responder.fail(status),
        }
    }
}
