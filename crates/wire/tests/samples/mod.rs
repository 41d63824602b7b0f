//! One value of every message, either systematic (for golden bytes) or from a seed (for properties).
//!
//! A new message is one line in the list at the end.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use types::attr::{Attr, FileType, SetAttr, SetTime};
use types::cred::{Conditions, Credentials};
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{
    Epoch, Generation, GroupId, InodeId, NodeId, ObjectId, PoolId, SessionId, ShardId, TargetId, TransactionId,
};
use types::layout::{Layout, LayoutPolicy};
use types::lock::{Held, LockKind, LockMode, LockRange, OFFSET_MAX};
use types::name::Name;
use types::placement::Placement;
use types::time::{AccessTimes, Timestamp};
use types::walk::{WalkEnd, WalkNames};
use wire::codec::{Bytes, DecodeError, Wire, decode_body};

/// Where the values of fields come from.
pub enum Dice {
    /// 1, 2, 3...: every byte of a field tells where it belongs. Options are there, lists have two entries.
    Systematic(u64),
    /// xorshift64*.
    Seeded(u64),
}

impl Dice {
    pub fn seeded(seed: u64) -> Self {
        Self::Seeded(seed | 1)
    }

    fn next(&mut self) -> u64 {
        match self {
            // Bytes 0x01.., 0x02.. in every width.
            Self::Systematic(count) => {
                *count += 1;
                (0..8).fold(0, |value, byte| (value << 8) | ((*count + byte) & 0xff))
            }
            Self::Seeded(state) => {
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                state.wrapping_mul(0x2545_f491_4f6c_dd1d)
            }
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 8) % bound
    }
}

pub trait Sample {
    fn sample(dice: &mut Dice) -> Self;
}

macro_rules! sample_int {
    ($($int:ty),*) => {$(
        impl Sample for $int {
            fn sample(dice: &mut Dice) -> Self {
                dice.next() as $int
            }
        }
    )*};
}
sample_int!(u8, u16, u32, u64, i64);

macro_rules! sample_newtype {
    ($($name:ident),*) => {$(
        impl Sample for $name {
            fn sample(dice: &mut Dice) -> Self {
                $name(Sample::sample(dice))
            }
        }
    )*};
}
sample_newtype!(NodeId, TargetId, GroupId, ShardId, SessionId, PoolId, Epoch, Generation, InodeId, Timestamp, Errno);
sample_newtype!(TransactionId);

impl Sample for bool {
    fn sample(dice: &mut Dice) -> Self {
        match dice {
            Dice::Systematic(_) => true,
            Dice::Seeded(_) => dice.below(2) == 1,
        }
    }
}

impl<T: Sample> Sample for Option<T> {
    fn sample(dice: &mut Dice) -> Self {
        bool::sample(dice).then(|| T::sample(dice))
    }
}

impl<T: Sample> Sample for Box<T> {
    fn sample(dice: &mut Dice) -> Self {
        Box::new(T::sample(dice))
    }
}

fn length(dice: &mut Dice, max: u64) -> u64 {
    match dice {
        Dice::Systematic(_) => 2,
        Dice::Seeded(_) => dice.below(max + 1),
    }
}

impl<T: Sample> Sample for Vec<T> {
    fn sample(dice: &mut Dice) -> Self {
        (0..length(dice, 5)).map(|_| T::sample(dice)).collect()
    }
}

impl Sample for Bytes {
    fn sample(dice: &mut Dice) -> Self {
        Self((0..length(dice, 300)).map(|_| u8::sample(dice)).collect())
    }
}

impl Sample for Name {
    fn sample(dice: &mut Dice) -> Self {
        let len = length(dice, 254) + 1;
        let bytes: Vec<u8> = (0..len).map(|_| u8::sample(dice) | 0x80).collect();
        Name::new(&bytes).expect("high bytes are fine in a name")
    }
}

impl Sample for FileType {
    fn sample(dice: &mut Dice) -> Self {
        FileType::from_u8([1, 2, 4, 6, 8, 10, 12][dice.below(7) as usize]).expect("one of the seven")
    }
}

impl Sample for FileFlags {
    fn sample(dice: &mut Dice) -> Self {
        FileFlags::from_bits(dice.below(16) as u32 * 0x10).expect("four bits")
    }
}

impl Sample for Placement {
    fn sample(dice: &mut Dice) -> Self {
        match dice.below(4) {
            0 => Self::Random,
            1 => Self::RoundRobin,
            2 => Self::Inherit,
            _ => Self::Shard(ShardId::sample(dice)),
        }
    }
}

impl Sample for AccessTimes {
    fn sample(dice: &mut Dice) -> Self {
        AccessTimes::from_u8(dice.below(3) as u8).expect("one of the three")
    }
}

impl Sample for LockKind {
    fn sample(dice: &mut Dice) -> Self {
        LockKind::from_u8(dice.below(3) as u8).expect("one of the three")
    }
}

impl Sample for LockMode {
    fn sample(dice: &mut Dice) -> Self {
        LockMode::from_u8(dice.below(2) as u8).expect("one of the two")
    }
}

impl Sample for bench::BenchSync {
    fn sample(dice: &mut Dice) -> Self {
        Self::ALL[dice.below(Self::ALL.len() as u64) as usize]
    }
}

impl Sample for bench::BenchPhase {
    fn sample(dice: &mut Dice) -> Self {
        Self::ALL[dice.below(Self::ALL.len() as u64) as usize]
    }
}

impl Sample for netbench::NetLoad {
    fn sample(dice: &mut Dice) -> Self {
        Self::ALL[dice.below(Self::ALL.len() as u64) as usize]
    }
}

impl Sample for LockRange {
    fn sample(dice: &mut Dice) -> Self {
        let (one, other) = (dice.next() & OFFSET_MAX, dice.next() & OFFSET_MAX);
        LockRange::new(one.min(other), one.max(other)).expect("in order and within bounds")
    }
}

impl Sample for SetTime {
    fn sample(dice: &mut Dice) -> Self {
        if bool::sample(dice) { Self::At(Timestamp::sample(dice)) } else { Self::Now }
    }
}

impl Sample for WalkNames {
    fn sample(dice: &mut Dice) -> Self {
        let more = length(dice, 8).saturating_sub(1);
        Self::new((0..=more).map(|_| Name::sample(dice)).collect()).expect("some, and not many")
    }
}

impl Sample for WalkEnd {
    fn sample(dice: &mut Dice) -> Self {
        match dice {
            Dice::Systematic(_) => Self::GoOn(InodeId::sample(dice)),
            Dice::Seeded(_) => match dice.below(5) {
                0 => Self::Found,
                1 => Self::Absent,
                2 => Self::NotDirectory,
                3 => Self::Symlink,
                _ => Self::GoOn(InodeId::sample(dice)),
            },
        }
    }
}

impl Sample for transaction::Promise {
    fn sample(dice: &mut Dice) -> Self {
        match dice {
            Dice::Systematic(_) => Self::Given(Bytes::sample(dice)),
            Dice::Seeded(_) => match dice.below(4) {
                0 => Self::Refused(Errno::sample(dice)),
                1 => Self::Again,
                2 => Self::Waits,
                _ => Self::Given(Bytes::sample(dice)),
            },
        }
    }
}

impl Sample for transaction::OutcomeState {
    fn sample(dice: &mut Dice) -> Self {
        Self::ALL[dice.below(Self::ALL.len() as u64) as usize]
    }
}

impl Sample for transaction::Ending {
    fn sample(dice: &mut Dice) -> Self {
        match dice {
            Dice::Systematic(_) => Self::Lost,
            Dice::Seeded(_) => match dice.below(3) {
                0 => Self::Done,
                1 => Self::Lost,
                _ => Self::Later,
            },
        }
    }
}

/// What a test does with each message.
pub trait Visitor {
    fn visit<T: Wire + Sample + PartialEq + std::fmt::Debug>(&mut self, name: &'static str);
}

macro_rules! samples {
    (
        values { $($value:ident { $($value_field:ident),* $(,)? })* }
        messages { $($module:ident::$name:ident { $($field:ident),* $(,)? })* }
    ) => {
        $(impl Sample for $value {
            fn sample(dice: &mut Dice) -> Self {
                Self { $($value_field: Sample::sample(dice)),* }
            }
        })*
        $(impl Sample for $module::$name {
            fn sample(dice: &mut Dice) -> Self {
                let _ = &dice;
                Self { $($field: Sample::sample(dice)),* }
            }
        })*

        /// Shows every message of every version to `visitor`.
        pub fn visit_all(visitor: &mut impl Visitor) {
            $(visitor.visit::<$module::$name>(concat!(stringify!($module), "::", stringify!($name)));)*
        }
    };
}

pub fn encoded(message: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

pub fn decoded<T: Wire>(body: &[u8]) -> Result<T, DecodeError> {
    decode_body(body)
}

use wire::v1::{bench, lock, meta, netbench, scrub, session, storage, transaction};
use wire::{hello, op};

samples! {
    values {
        Credentials { uid, gid, umask }
        Conditions { owner, group, fixed, remover }
        ObjectId { inode, stripe }
        Attr { inode, kind, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime, btime }
        SetAttr { mode, uid, gid, size, atime, mtime, kill_suid_sgid, kill_sgid, flags }
        Layout { chunk_size, groups }
        LayoutPolicy { chunk_size, stripe_count, pool, directories, inline_limit }
        Held { range, mode, pid }
    }
    messages {
        hello::ClientHello { version_min, version_max, cluster, name, incarnation }
        hello::ServerHello { version, version_min, version_max, cluster, refusal, incarnation, node }
        op::Ping {}
        session::Empty {}
        session::Share { process, descriptor, length, mark }
        session::Fence { connection }
        session::FenceSession { session }
        session::SessionOpen { session, description, tells, more, incarnation, opens, locks, thread, connection }
        session::HeldOpen { inode, write_intent, draft }
        session::SessionOpened { incarnation, kept_since, expiry_ms, lost, keeps_intents }
        session::SessionClose { session }
        session::Recalls { done }
        session::RecallsReply { recalls, ends }
        session::Recall { id, inode, name }
        session::Renew { inodes }
        session::RenewReply { lease_ms }
        session::Answered { below, under_way }
        storage::Read { object, offset, length }
        storage::ObjectReply { version, size }
        storage::Write { object, offset, unchanged_since, at, not_before, durable }
        storage::WriteReply { version, size, durable }
        storage::Truncate { object, size, unchanged_since }
        storage::Sync { object, since }
        storage::SyncReply { lost }
        storage::Remove { object }
        storage::Stat { objects }
        storage::StatReply { objects }
        storage::ObjectStat { exists, version, size, blocks, mtime }
        storage::List { after, count }
        storage::ListReply { objects, end }
        storage::ListedObject { object, size, blocks }
        storage::TargetStat { group }
        storage::TargetStatReply { total_bytes, free_bytes, total_inodes, free_inodes }
        storage::Place { object }
        storage::PlaceReply { path, exists }
        storage::Allocate { object, offset, length, mode, unchanged_since }
        storage::Copy { object, offset, source, source_offset, length, unchanged_since }
        storage::Seek { object, offset, hole }
        storage::SeekReply { offset }
        bench::BenchStart { run, plan, targets }
        bench::BenchStarted { refused }
        bench::BenchPlan { read, random, block, size, threads, duration_ms, sync, buffered, use_reserve }
        bench::BenchStatus {}
        bench::BenchStatusReply { cleaning, files, run }
        bench::BenchRun {
            run, plan, targets, phase, message, direct, elapsed_us, blocks, latencies, interval_ms, samples, place
        }
        bench::BenchLatency { at_most_ns, count }
        bench::BenchPlace {
            path, file_system, mount_point, source, device, on_root, read_only, total_bytes, free_bytes, reserve_bytes,
            total_inodes, free_inodes
        }
        bench::BenchStop { run }
        bench::BenchCleanup {}
        netbench::NetRead { length }
        netbench::NetReadReply {}
        netbench::NetWrite {}
        netbench::NetWritten { length }
        netbench::NetStart { run, plan, nodes }
        netbench::NetStarted { refused }
        netbench::NetPlan { block, depth, threads, duration_ms }
        netbench::NetStatus {}
        netbench::NetStatusReply { run }
        netbench::NetRun { run, under_way, measures }
        netbench::NetMeasure {
            node, way, load, requests, bytes, elapsed_us, p50_ns, p99_ns, p999_ns, max_ns, failure
        }
        netbench::NetStop { run }
        scrub::ScrubStart { run, rate, targets }
        scrub::ScrubStarted { refused }
        scrub::ScrubStatus {}
        scrub::ScrubStatusReply { run }
        scrub::ScrubRun {
            run, rate, targets, running, stopped, failure, elapsed_ms, objects_total, bytes_total, objects, bytes, adopted,
            corrupt, named
        }
        scrub::ScrubCorrupt { object, offset, path, unreadable }
        scrub::ScrubStop { run }
        transaction::Prepare { session, transaction, round, parts }
        transaction::Prepared { votes }
        transaction::Finish { transaction, commit, made }
        transaction::AskOutcome { transaction }
        transaction::Outcome { state }
        transaction::Climb { inode, until }
        transaction::Climbed { inode }
        transaction::Transact { finishes, prepares }
        transaction::Transacted { endings, promises }
        meta::Exactly { sequence, answered_below }
        meta::InodeReply {
            attr, unsettled, written_after, cutting, cuts, exclusive, alone, draft, has_objects, intents, bare, layout, elsewhere, lease_ms,
            name_lease_ms, standing, parent, inline_limit, contents, flags, capability
        }
        meta::Standing { order, empty }
        meta::DirectoryReply { attr, standing, lease_ms }
        meta::ChangeReply { parent, target, others, told, removed }
        meta::Lookup { parent, name }
        meta::LookupReply { found, absent_lease_ms }
        meta::GetAttr { inode }
        meta::Set { exactly, inode, change, inline, given }
        meta::Create { exactly, parent, name, kind, mode, rdev, cred, open, write_intent, exclusive, draft }
        meta::TmpFile { exactly, parent, mode, cred, write_intent }
        meta::Mkdir { exactly, parent, name, mode, cred }
        meta::Symlink { exactly, parent, name, target, cred }
        meta::Link { exactly, inode, parent, name }
        meta::Unlink { exactly, parent, name, given }
        meta::Rmdir { exactly, parent, name, given }
        meta::Rename { exactly, source_parent, source_name, target_parent, target_name, flags, cred, given }
        meta::Readlink { inode, accesses }
        meta::ReadlinkReply { target }
        meta::ReadDir { inode, cookie, count, attributes, accesses }
        meta::ReadDirReply { entries, end, parent, directory }
        meta::DirEntry { name, inode, kind, cookie, attributes }
        meta::Open { inode, contents }
        meta::Close { inode, read }
        meta::WasRead { inode, read }
        meta::TimeChange { at, before }
        meta::WriteIntent { exactly, inode, cuts, draft }
        meta::Settle { exactly, inode, size, blocks, mtime, gathered, release, close, untouched, read, drafted }
        meta::Drafted { contents, mode, uid, gid, atime, mtime, ctime }
        meta::SettleReply { settled, intents }
        meta::WriteInline { exactly, inode, offset, append, bytes }
        meta::WriteInlineReply { inode, offset }
        meta::ReadInline { inode, offset, length }
        meta::ReadInlineReply { inode, bytes }
        meta::GetXattr { inode, name }
        meta::XattrReply { value }
        meta::SetXattr { exactly, inode, name, value, flags, given }
        meta::ListXattr { inode }
        meta::XattrNames { names }
        meta::RemoveXattr { exactly, inode, name, given }
        meta::Fsync { inode, inline }
        meta::StatFs {}
        meta::StatFsReply { inodes, total_bytes, free_bytes }
        meta::EntryInfo { inode }
        meta::EntryInfoReply { inode, parent, shard, group, policy, policy_is_own }
        meta::SetPolicy { exactly, inode, chunk_size, stripe_count, pool, directories, inline_limit }
        meta::Parts { inode, lists, accesses }
        meta::PartsReply { parts, cursor, parent }
        meta::Split { exactly, inode, count }
        meta::Scan { after, count }
        meta::ScanReply { records, next }
        meta::ScanRecord { inode, edge, deletion, contents, damage }
        meta::ScanInode { reply, orphan_holders, orphan }
        meta::ScanEdge { parent, name, child, kind }
        meta::ScanDeletion { inode, stripe, group }
        meta::ScanContents { inode, length }
        meta::ScanDamage { inode, is_inode, what }
        lock::Lock { number, inode, kind, owner, wanted, wait, detect }
        lock::Unlock { inode, kind, owner, range }
        lock::GetLock { number, inode, kind, owner, range, mode }
        lock::GetLockReply { holder }
        lock::LockHolder { session, owner, held }
        lock::CancelLock { number }
        lock::LockWaits { processes }
        lock::LockWaitsReply { waits }
        lock::Process { session, owner }
        lock::LockWait { waiter, number, holder }
        lock::HeldLock { inode, kind, owner, held }
        meta::Walk { start, names, leases }
        meta::WalkReply { steps, end }
    }
}
