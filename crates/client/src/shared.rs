//! What the threads of one mount share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cluster::map::ClusterMap;
use rustc_hash::FxHashMap;
use telemetry::metrics::level;
use telemetry::seldom::Seldom;
use tracing::warn;
use types::attr::Attr;
use types::error::Errno;
use types::id::{Epoch, InodeId, SessionId, ShardId};
use types::time::Timestamp;
use wire::v1::lock::HeldLock;
use wire::v1::meta::{InodeReply, TimeChange};
use wire::v1::session::HeldOpen;

use crate::acl::ToldLists;
use crate::ahead::Tidied;
use crate::bare::Bare;
use crate::config::Config;
use crate::contents::{Asked, Contents, Told};
use crate::doubts::Doubts;
use crate::endings::{Endings, Since};
use crate::file::{File, Intent, bucket_of};
use crate::graves::Graves;
use crate::kept::Kept;
use crate::lease::{Board, Gate, Lease};
use crate::linger::Lingering;
use crate::list_ahead::ListAhead;
use crate::listings::Listings;
use crate::locks::assurance::Assurances;
use crate::locks::table::LockTable;
use crate::metrics::ClientMetrics;
use crate::mutex::lock;
use crate::publish::Drafts;
use crate::recall::{self, Keeper};
use crate::shards::{NumberedChange, Shards};
use crate::sightings::Sightings;
use crate::splits::Splits;
use crate::statfs::Answers;
use crate::telling::Tellers;
use crate::unsettled::Unsettled;
use crate::unsynced::Closed;
use crate::unwritten::crowd::Crowd;
use crate::unwritten::landing::Landings;

/// Buckets of the table of open files, each behind a lock of its own.
const BUCKETS: usize = 16;

/// Before something is asked that a shard notes.
pub(crate) type Before = Since<BUCKETS>;

/// Pause between two log lines about what is kept back and cannot be told yet: it may be many files, each again and again.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// State of a mount that outlives connections and threads. Every lock is held for a few memory accesses, never across
/// a wait.
pub struct Shared {
    pub(crate) config: Config,
    pub(crate) session: SessionId,
    pub(crate) identity: net::Identity,
    map: ArcSwap<ClusterMap>,
    /// Of `map`, to notice a change without touching it.
    epoch: AtomicU64,
    pub(crate) shards: Shards,
    files: [Mutex<FxHashMap<InodeId, File>>; BUCKETS],
    /// Taken within those.
    closed: Mutex<Closed>,
    pub(crate) endings: Endings<BUCKETS>,
    pub(crate) locks: LockTable,
    pub(crate) assurances: Assurances,
    pub(crate) tellers: Tellers,
    /// Threads with a client.
    clients: AtomicUsize,
    /// Threads that ever had one.
    threads: AtomicU32,
    /// Open files that ever were.
    opened: AtomicU64,
    /// A thread tells the shards that this client lives.
    beating: AtomicBool,
    pub(crate) board: Board,
    /// Who keeps what is answered, where recalls are obeyed.
    pub(crate) keeper: OnceLock<Arc<dyn Keeper>>,
    pub(crate) kept: Kept,
    pub(crate) listings: Listings,
    pub(crate) list_ahead: ListAhead,
    pub(crate) doubts: Doubts,
    pub(crate) graves: Graves,
    pub(crate) sightings: Sightings,
    pub(crate) splits: Splits,
    pub(crate) bare: Bare,
    pub(crate) told_lists: ToldLists,
    pub(crate) unsettled: Unsettled,
    pub(crate) contents: Contents,
    pub(crate) lingering: Lingering,
    pub(crate) tidied: Tidied,
    crowd: Mutex<Crowd>,
    pub(crate) drafts: Drafts,
    pub(crate) space: Answers,
    pub(crate) landings: Landings,
    pub(crate) metrics: ClientMetrics,
    /// That something kept back cannot be written or told yet, of all files: it is tried again and again.
    complaints: Seldom,
}

impl Shared {
    #[must_use]
    pub fn new(config: Config, session: SessionId, identity: net::Identity, map: Arc<ClusterMap>) -> Arc<Self> {
        let (metrics, board) = (ClientMetrics::new(config.metrics.as_ref()), Board::new());
        // Before anything is told.
        board.has_slept(ring::asleep());
        metrics.epoch.set(level(map.epoch.0));
        Arc::new(Self {
            complaints: Seldom::every(COMPLAIN_EVERY),
            contents: Contents::new(config.data_cache, &metrics.contents),
            config,
            session,
            identity,
            epoch: AtomicU64::new(map.epoch.0),
            map: ArcSwap::new(map),
            landings: Landings::default(),
            shards: Shards::default(),
            files: Default::default(),
            closed: Mutex::default(),
            endings: Endings::default(),
            locks: LockTable::default(),
            assurances: Assurances::default(),
            tellers: Tellers::default(),
            clients: AtomicUsize::new(0),
            threads: AtomicU32::new(0),
            opened: AtomicU64::new(0),
            beating: AtomicBool::new(false),
            board,
            keeper: OnceLock::new(),
            kept: Kept::default(),
            listings: Listings::default(),
            list_ahead: ListAhead::default(),
            doubts: Doubts::default(),
            graves: Graves::default(),
            sightings: Sightings::default(),
            splits: Splits::default(),
            bare: Bare::default(),
            told_lists: ToldLists::default(),
            unsettled: Unsettled::default(),
            lingering: Lingering::default(),
            tidied: Tidied::default(),
            crowd: Mutex::default(),
            drafts: Drafts::default(),
            space: Answers::default(),
            metrics,
        })
    }

    /// For one thread that passes answers on to somebody who keeps them.
    #[must_use]
    pub fn gate(self: &Arc<Self>) -> Gate {
        Gate::new(self)
    }

    /// With each request of who keeps answers, and before each answer. On a ring.
    pub fn look_for_sleep(&self) {
        let asleep = ring::asleep();
        if self.board.has_slept(asleep) {
            tracing::info!(in_all = ?asleep, "the machine has slept: what was told before is asked for anew");
            self.forget_all();
        }
    }

    /// No lease that was given before now is worth anything, and nobody recalls it.
    pub(crate) fn forget_all(&self) {
        self.kept.forget_all(&self.board);
        self.board.note_all();
        if let Some(keeper) = self.keeper.get() {
            recall::forget_all(keeper);
        }
    }

    #[must_use]
    pub fn map(&self) -> Arc<ClusterMap> {
        self.map.load_full()
    }

    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.epoch.load(Ordering::Acquire))
    }

    /// Takes a newer cluster map; an older one is ignored.
    pub fn update_map(&self, map: Arc<ClusterMap>) {
        // Several threads may bring one.
        self.map.rcu(|known| Arc::clone(if map.epoch > known.epoch { &map } else { known }));
        let epoch = self.map().epoch.0;
        self.epoch.fetch_max(epoch, Ordering::Release);
        self.metrics.epoch.set(level(epoch));
    }

    /// What is kept back of a file cannot be told or written for now.
    pub(crate) fn complain(&self, inode: InodeId, error: Errno) {
        if let Some(left_out) = self.complaints.is_due(Instant::now()) {
            warn!(%inode, left_out, "what is kept back of a file cannot be written: {error}; fsync and close will tell");
        }
    }

    /// The client's wall clock, for the times of writes.
    pub(crate) fn wall_clock() -> Timestamp {
        telemetry::clock::now()
    }

    /// One thread more; its number.
    pub(crate) fn join(&self) -> u32 {
        self.clients.fetch_add(1, Ordering::AcqRel);
        self.threads.fetch_add(1, Ordering::AcqRel)
    }

    /// The number of a file that was just opened; they rise.
    pub(crate) fn number_open_file(&self) -> u64 {
        self.opened.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Something of the file may be lost: all who have it open are to be told.
    pub(crate) fn lost(&self, file: &mut File) {
        file.losses.happened(self.opened.load(Ordering::Acquire));
    }

    /// A long piece is being written to `inode`. True where so are they to more other files than there are threads.
    pub(crate) fn crowds(&self, inode: InodeId, now: Instant) -> bool {
        lock(&self.crowd).is_full(inode, now, self.clients.load(Ordering::Acquire))
    }

    /// True for the last one.
    pub(crate) fn leave(&self) -> bool {
        self.clients.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// No thread is left that wants the session.
    pub(crate) fn has_ended(&self) -> bool {
        self.clients.load(Ordering::Acquire) == 0
    }

    /// True for the first who asks.
    pub(crate) fn may_beat(&self) -> bool {
        !self.beating.swap(true, Ordering::AcqRel)
    }

    /// Numbers a change for exactly-once execution.
    pub(crate) fn begin_change(self: &Arc<Self>, shard: ShardId) -> NumberedChange {
        NumberedChange::begin(self, shard)
    }

    /// The shard has lost what no fsync had covered of what it answered before it had the incarnation `kept_since`: notes that,
    /// where this client was answered so, and says it.
    pub(crate) fn shard_lost(&self, shard: ShardId, kept_since: u64) -> bool {
        let lost = self.shards.lost(shard, kept_since);
        if lost {
            // Before and after: files are opened and closed meanwhile.
            lock(&self.closed).shard_lost(shard);
            self.change_files(shard, |file| file.unsynced.shard_lost());
            lock(&self.closed).shard_lost(shard);
        }
        lost
    }

    /// The shard has answered a change of what it has of this inode.
    pub(crate) fn record_changed(&self, inode: InodeId) {
        // Under the lock of its bucket: it may be being opened.
        let mut bucket = self.bucket(inode);
        match bucket.get_mut(&inode) {
            Some(file) => file.unsynced.record_changed(),
            None => lock(&self.closed).record_changed(inode),
        }
    }

    /// The shard has lost the session: what is open has to be told again although it did not restart.
    /// Nor does it take back anything that it has told this one.
    pub(crate) fn forget_incarnation(&self, shard: ShardId) {
        if self.shards.forget_incarnation(shard) {
            self.forget_all();
        }
    }

    fn bucket(&self, inode: InodeId) -> MutexGuard<'_, FxHashMap<InodeId, File>> {
        lock(&self.files[bucket_of(inode, BUCKETS)])
    }

    /// Looks at an open file; `None` where this client has it not open.
    pub(crate) fn with_file<R>(&self, inode: InodeId, look: impl FnOnce(&mut File) -> R) -> Option<R> {
        self.bucket(inode).get_mut(&inode).map(look)
    }

    /// Whether a file is open here (see [`Self::with_file`]) and is as asked for.
    pub(crate) fn file_is(&self, inode: InodeId, look: impl FnOnce(&mut File) -> bool) -> bool {
        self.with_file(inode, look) == Some(true)
    }

    /// What is found at an open file; `None` also where it is not open here.
    pub(crate) fn in_file<R>(&self, inode: InodeId, look: impl FnOnce(&mut File) -> Option<R>) -> Option<R> {
        self.with_file(inode, look).flatten()
    }

    /// The shard granted (or confirmed) the write intent of an open file, which ends what was known of it as of one that
    /// nobody writes. False where that may be gone again: it has to be asked once more.
    pub(crate) fn granted(&self, inode: InodeId, reply: &InodeReply, before: &Before) -> bool {
        let unsettled = self.unsettled.has(inode);
        let granted = self.with_file(inode, |file| {
            if self.may_be_gone(inode, before) {
                return false;
            }
            file.granted(reply);
            if unsettled {
                file.lose_exclusivity();
            }
            true
        });
        self.contents.forget(inode);
        granted != Some(false)
    }

    /// The shard may not hold any more for this client what it noted of this file in an answer to what was asked at `before`.
    /// To be asked while looking at the file.
    pub(crate) fn may_be_gone(&self, inode: InodeId, before: &Before) -> bool {
        self.endings.may_have_ended(bucket_of(inode, BUCKETS), inode, before)
    }

    /// The shard was told of a read.
    pub(crate) fn has_told_of_read(&self, inode: InodeId, read: Option<&TimeChange>) {
        let note = |file: &mut File| {
            file.told_of_read(read);
            if read.is_some() {
                self.endings.told_of_read(bucket_of(inode, BUCKETS), inode, Instant::now());
            }
        };
        self.with_file(inode, note);
    }

    /// What the shard says of the access time, which it was asked for `at` this moment, may not know of a read here. While
    /// looking at the file, or when there is none.
    pub(crate) fn may_lack_read(&self, inode: InodeId, at: Instant) -> bool {
        self.endings.may_be_before_read(bucket_of(inode, BUCKETS), inode, at)
    }

    /// While looking at the file: what the shard holds of it for this client is going to end, or has.
    pub(crate) fn gives_up(&self, inode: InodeId) {
        self.endings.ended(bucket_of(inode, BUCKETS), inode);
    }

    /// Holding a lease on a file's attributes is all that it takes to know its data.
    pub(crate) fn may_keep(&self, inode: InodeId) -> bool {
        self.file_is(inode, |file| file.is_only_read())
    }

    /// An open file has these attributes under `lease`, and these bytes, where they are given.
    pub(crate) fn learn(&self, asked: Asked, lease: Lease, attr: Attr, bytes: Option<Arc<[u8]>>) {
        let told = Told { asked, lease, attr, bytes };
        self.contents.learn(&self.board, told, Instant::now(), || self.may_keep(attr.inode));
    }

    /// Looks at an open file, made by `make` where it is not there.
    pub(crate) fn with_new_file<R>(
        &self,
        inode: InodeId,
        make: impl FnOnce() -> File,
        look: impl FnOnce(&mut File) -> R,
    ) -> R {
        let new = || {
            let mut file = make();
            file.unsynced = lock(&self.closed).opened(inode);
            file
        };
        look(self.bucket(inode).entry(inode).or_insert_with(new))
    }

    /// The shard knows that the file was closed: forgets it, unless it got a handle meanwhile. False where a shard was told
    /// what is held here since it had been told so often, and so perhaps of this file: the shard may have it open again.
    #[must_use]
    pub(crate) fn forget_closed(&self, inode: InodeId, tellings: u64) -> bool {
        let mut bucket = self.bucket(inode);
        if self.endings.tellings() != tellings {
            return false;
        }
        self.gives_up(inode);
        match bucket.get_mut(&inode) {
            Some(file) if file.handles > 0 => {
                file.closing = false;
                file.done.wake();
                file.end_draft(&self.metrics.unwritten, inode);
            }
            _ => {
                if let Some(mut file) = bucket.remove(&inode) {
                    file.end_draft(&self.metrics.unwritten, inode);
                    file.unwritten.end(&self.metrics.unwritten, inode);
                    lock(&self.closed).closed(inode, file.unsynced);
                }
            }
        }
        true
    }

    /// The shard may not know that the file was closed: it is as good as open there. The number of the close, unless the file
    /// got a handle meanwhile.
    pub(crate) fn closed_in_doubt(&self, inode: InodeId) -> Option<u64> {
        let mut bucket = self.bucket(inode);
        self.gives_up(inode);
        let file = bucket.get_mut(&inode)?;
        file.closing = false;
        file.done.wake();
        file.end_draft(&self.metrics.unwritten, inode);
        if file.handles > 0 {
            return None;
        }
        std::mem::take(&mut file.unwritten).end(&self.metrics.unwritten, inode);
        file.lingers = true;
        Some(file.closes)
    }

    /// Forgets what was read ahead and nobody comes for. False where nobody reads on any more.
    pub(crate) fn tidy_streams(&self, now: Instant) -> bool {
        let some = |file: &mut File| file.streams.tidy(now);
        let count =
            |bucket: &Mutex<FxHashMap<InodeId, File>>| lock(bucket).values_mut().map(some).filter(|&is| is).count();
        self.files.iter().map(count).sum::<usize>() > 0
    }

    /// Files of which something is kept back.
    pub(crate) fn unwritten_files(&self) -> Vec<InodeId> {
        let dirty = |bucket: &Mutex<FxHashMap<InodeId, File>>| {
            let bucket = lock(bucket);
            bucket.iter().filter(|(_, file)| file.keeps_back()).map(|(&inode, _)| inode).collect::<Vec<_>>()
        };
        self.files.iter().flat_map(dirty).collect()
    }

    /// All that this client holds open in `shard`, for a shard that has restarted.
    pub(crate) fn held_opens(&self, shard: ShardId) -> Vec<HeldOpen> {
        let mut opens = Vec::new();
        for bucket in &self.files {
            let bucket = lock(bucket);
            opens.extend(bucket.iter().filter(|(inode, _)| inode.home() == shard).map(|(&inode, file)| {
                let (write_intent, draft) = (file.intent != Intent::None, file.draft.is_some());
                HeldOpen { inode, write_intent, draft }
            }));
        }
        opens
    }

    /// The ends of files that this client holds in `shard`.
    pub(crate) fn held_ends(&self, shard: ShardId) -> Vec<HeldLock> {
        let mut ends = Vec::new();
        for bucket in &self.files {
            let bucket = lock(bucket);
            let held = bucket.iter().filter(|(inode, file)| inode.home() == shard && file.end.is_held());
            ends.extend(held.map(|(&inode, _)| crate::end::held(inode)));
        }
        ends
    }

    /// All files that are open here and at home there.
    pub(crate) fn change_files(&self, shard: ShardId, change: impl Fn(&mut File)) {
        for bucket in &self.files {
            lock(bucket).iter_mut().filter(|(inode, _)| inode.home() == shard).for_each(|(_, file)| change(file));
        }
    }

    /// The session had ended at that shard, and with it the write intents. Another thread, which has heard so before, may have
    /// got some anew since: the shard keeps these, and does not know what was written under them.
    pub(crate) fn lose_intents(&self, shard: ShardId) {
        for bucket in &self.files {
            for (&inode, file) in lock(bucket).iter_mut().filter(|(inode, _)| inode.home() == shard) {
                if file.intent != Intent::None {
                    self.unsettled.failed(inode);
                }
                file.lose_intent();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use types::time::AccessTimes;

    use super::*;
    use crate::test_client;

    #[test]
    fn an_intent_that_was_lost_together_with_older_ones_is_not_taken_for_a_new_one() {
        let file = InodeId(77);
        test_client::run(async |client| {
            let shared = &client.shared;
            let granted = InodeReply { unsettled: true, exclusive: true, ..test_client::reply(file) };
            shared.with_new_file(file, || test_client::file(file), |open| open.add_handle(true));
            shared.granted(file, &granted, &shared.endings.now());
            let knows = |open: &mut File| (open.is_exclusive(), open.size);
            assert_eq!(shared.with_file(file, knows), Some((true, 0)));
            shared.with_file(file, |open| open.wrote(0, 8192, Timestamp(9)));
            shared.lose_intents(file.home());
            shared.granted(file, &granted, &shared.endings.now());
            assert_eq!(shared.with_file(file, knows), Some((false, 0)), "the objects tell");
            shared.unsettled.ended(file);
            shared.with_file(file, File::lose_intent);
            shared.lose_intents(file.home());
            shared.granted(file, &granted, &shared.endings.now());
            assert_eq!(shared.with_file(file, knows), Some((true, 0)), "there was none");
        });
    }

    #[test]
    fn a_file_is_not_forgotten_that_a_shard_was_told_of_meanwhile() {
        let file = InodeId(77);
        test_client::run(async |client| {
            let shared = &client.shared;
            shared.with_new_file(file, || test_client::file(file), |open| open.closing = true);
            let before = shared.endings.tellings();
            shared.endings.tells();
            assert!(!shared.forget_closed(file, before) && shared.file_is(file, |open| open.closing));
            assert!(shared.forget_closed(file, shared.endings.tellings()) && shared.with_file(file, |_| ()).is_none());
        });
    }

    /// The close, on another thread, is answered while an answer from before is on its way.
    #[test]
    fn a_read_is_not_forgotten_with_the_file_for_answers_from_before() {
        let file = InodeId(77);
        test_client::run(async |client| {
            let (shared, before) = (&client.shared, Instant::now());
            shared.with_new_file(file, || test_client::file(file), |open| open.add_handle(false));
            shared.with_file(file, |open| open.accessed(Timestamp(i64::MAX), AccessTimes::Strictatime));
            assert!(!shared.may_lack_read(file, before), "it is not told");
            let read = shared.in_file(file, |open| open.read_time());
            shared.has_told_of_read(file, read.as_ref());
            assert!(shared.forget_closed(file, shared.endings.tellings()));
            assert!(shared.may_lack_read(file, before) && !shared.may_lack_read(file, Instant::now()));
        });
    }

    #[test]
    fn what_was_written_and_not_synced_is_known_when_the_file_is_opened_again() {
        test_client::run(async |client| {
            let shared = &client.shared;
            let since = |inode| shared.with_new_file(inode, || test_client::file(inode), |file| file.unsynced.since(3));
            assert_eq!(since(InodeId(1)), 0);
            shared.with_file(InodeId(1), |file| file.unsynced.changed(3, 77));
            assert!(shared.forget_closed(InodeId(1), shared.endings.tellings()));
            assert_eq!(since(InodeId(2)), 0, "another file");
            assert_eq!(since(InodeId(1)), 77, "a sync of it has to ask whether that was lost");
            shared.with_file(InodeId(1), |file| file.unsynced.settled(3, &file.unsynced.clone()));
            assert!(shared.forget_closed(InodeId(1), shared.endings.tellings()));
            assert_eq!(since(InodeId(1)), 0);
        });
    }
}
