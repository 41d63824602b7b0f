//! The whole protocol in one list: operation number, request, reply. `classes` says what kind each is.

mod classes;

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal: $request:path => $reply:path;)*) => {
        /// What a frame asks for. A reply carries its request's operation.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u16)]
        pub enum Op {
            $($(#[$doc])* $name = $number,)*
        }

        impl Op {
            /// Every operation, for metrics and tests.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            #[must_use]
            pub fn from_u16(number: u16) -> Option<Op> {
                match number {
                    $($number => Some(Op::$name),)*
                    _ => None,
                }
            }

            /// Decodes `body` as this operation's request, or its reply, and encodes it again: for tools and tests
            /// that take all messages alike.
            ///
            /// # Errors
            /// Where the body is no such message.
            pub fn reencode(self, reply: bool, body: &[u8]) -> Result<Vec<u8>, DecodeError> {
                match self {
                    $(Op::$name if reply => reencode::<$reply>(body),
                    Op::$name => reencode::<$request>(body),)*
                }
            }

            /// As metrics and logs call it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Op::$name => stringify!($name),)*
                }
            }
        }

        $(impl Call for $request {
            const OP: Op = Op::$name;
            type Reply = $reply;
        })*
    };
}

fn reencode<T: Wire>(body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    decode_body::<T>(body)?.encode(&mut out);
    Ok(out)
}

/// A request message, tied to its operation and the reply that belongs to it.
pub trait Call: Wire {
    const OP: Op;
    type Reply: Wire;
}

use crate::codec::{DecodeError, Wire, decode_body};
use crate::v1::{bench, lock, meta, netbench, scrub, session, storage, transaction};

ops! {
    /// Answered by every service without any effect.
    Ping = 0x0001: Ping => session::Empty;
    /// Answered by every service for the connection that it came on.
    Share = 0x0002: session::Share => session::Empty;
    /// Answered by every service.
    Fence = 0x0003: session::Fence => session::Empty;
    /// Answered by every service.
    FenceSession = 0x0004: session::FenceSession => session::Empty;
    SessionOpen = 0x0010: session::SessionOpen => session::SessionOpened;
    SessionClose = 0x0011: session::SessionClose => session::Empty;
    Recalls = 0x0012: session::Recalls => session::RecallsReply;
    Renew = 0x0013: session::Renew => session::RenewReply;
    Answered = 0x0014: session::Answered => session::Empty;

    Lookup = 0x0100: meta::Lookup => meta::LookupReply;
    GetAttr = 0x0101: meta::GetAttr => Box<meta::InodeReply>;
    Set = 0x0102: meta::Set => Box<meta::InodeReply>;
    Create = 0x0103: meta::Create => Box<meta::InodeReply>;
    Mkdir = 0x0104: meta::Mkdir => Box<meta::InodeReply>;
    Symlink = 0x0105: meta::Symlink => Box<meta::InodeReply>;
    Link = 0x0106: meta::Link => Box<meta::InodeReply>;
    Unlink = 0x0107: meta::Unlink => meta::ChangeReply;
    Rmdir = 0x0108: meta::Rmdir => meta::ChangeReply;
    Rename = 0x0109: meta::Rename => meta::ChangeReply;
    Readlink = 0x010a: meta::Readlink => meta::ReadlinkReply;
    ReadDir = 0x010b: meta::ReadDir => meta::ReadDirReply;
    Open = 0x010c: meta::Open => Box<meta::InodeReply>;
    Close = 0x010d: meta::Close => session::Empty;
    WriteIntent = 0x010e: meta::WriteIntent => Box<meta::InodeReply>;
    Settle = 0x010f: meta::Settle => meta::SettleReply;
    GetXattr = 0x0110: meta::GetXattr => meta::XattrReply;
    SetXattr = 0x0111: meta::SetXattr => session::Empty;
    ListXattr = 0x0112: meta::ListXattr => meta::XattrNames;
    RemoveXattr = 0x0113: meta::RemoveXattr => session::Empty;
    Fsync = 0x0114: meta::Fsync => session::Empty;
    StatFs = 0x0115: meta::StatFs => meta::StatFsReply;
    EntryInfo = 0x0116: meta::EntryInfo => meta::EntryInfoReply;
    SetPolicy = 0x0117: meta::SetPolicy => meta::EntryInfoReply;
    Scan = 0x0118: meta::Scan => meta::ScanReply;
    WriteInline = 0x0119: meta::WriteInline => meta::WriteInlineReply;
    ReadInline = 0x011a: meta::ReadInline => meta::ReadInlineReply;
    WasRead = 0x011b: meta::WasRead => session::Empty;
    TmpFile = 0x0130: meta::TmpFile => Box<meta::InodeReply>;
    Parts = 0x0140: meta::Parts => meta::PartsReply;
    Split = 0x0141: meta::Split => meta::PartsReply;
    Walk = 0x0150: meta::Walk => meta::WalkReply;

    Prepare = 0x0180: transaction::Prepare => transaction::Prepared;
    AskOutcome = 0x0182: transaction::AskOutcome => transaction::Outcome;
    Climb = 0x0183: transaction::Climb => transaction::Climbed;
    Transact = 0x0184: transaction::Transact => transaction::Transacted;

    Lock = 0x01a0: lock::Lock => session::Empty;
    Unlock = 0x01a1: lock::Unlock => session::Empty;
    GetLock = 0x01a2: lock::GetLock => lock::GetLockReply;
    CancelLock = 0x01a3: lock::CancelLock => session::Empty;
    LockWaits = 0x01a4: lock::LockWaits => lock::LockWaitsReply;

    Read = 0x0200: storage::Read => storage::ObjectReply;
    Write = 0x0201: storage::Write => storage::WriteReply;
    Truncate = 0x0202: storage::Truncate => storage::ObjectReply;
    Sync = 0x0203: storage::Sync => storage::SyncReply;
    Remove = 0x0204: storage::Remove => session::Empty;
    Stat = 0x0205: storage::Stat => storage::StatReply;
    List = 0x0206: storage::List => storage::ListReply;
    TargetStat = 0x0207: storage::TargetStat => storage::TargetStatReply;
    Place = 0x0208: storage::Place => storage::PlaceReply;
    Allocate = 0x0209: storage::Allocate => storage::ObjectReply;
    Seek = 0x020a: storage::Seek => storage::SeekReply;
    Copy = 0x020b: storage::Copy => storage::ObjectReply;

    BenchStart = 0x0220: bench::BenchStart => bench::BenchStarted;
    BenchStatus = 0x0221: bench::BenchStatus => bench::BenchStatusReply;
    BenchStop = 0x0222: bench::BenchStop => session::Empty;
    BenchCleanup = 0x0223: bench::BenchCleanup => session::Empty;

    ScrubStart = 0x0230: scrub::ScrubStart => scrub::ScrubStarted;
    ScrubStatus = 0x0231: scrub::ScrubStatus => scrub::ScrubStatusReply;
    ScrubStop = 0x0232: scrub::ScrubStop => session::Empty;
    NetRead = 0x0240: netbench::NetRead => netbench::NetReadReply;
    NetWrite = 0x0241: netbench::NetWrite => netbench::NetWritten;
    NetStart = 0x0242: netbench::NetStart => netbench::NetStarted;
    NetStatus = 0x0243: netbench::NetStatus => netbench::NetStatusReply;
    NetStop = 0x0244: netbench::NetStop => session::Empty;
}

crate::codec::messages! {
    Ping {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for &op in Op::ALL {
            assert_eq!(Op::from_u16(op as u16), Some(op));
        }
        assert_eq!(Op::from_u16(0xffff), None);
    }
}
