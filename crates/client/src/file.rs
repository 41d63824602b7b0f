//! What a client knows of a file that it has open. Pure bookkeeping, shared by the threads of a mount.

use std::sync::Arc;
use std::time::Instant;

use types::attr::Attr;
use types::id::InodeId;
use types::layout::{INLINE_MAX, Layout};
use types::time::{AccessTimes, Timestamp};
use wire::v1::meta::{InodeReply, TimeChange};

use crate::ahead::Fetch;
use crate::done::Done;
use crate::draft::Draft;
use crate::end::End;
use crate::flags::KnownFlags;
use crate::lease::Lease;
use crate::losses::Losses;
use crate::overlaps::Cuts;
use crate::patience::Patience;
use crate::set_ids::Permissions;
use crate::set_times::Outdated;
use crate::streams::Streams;
use crate::sync_habit::SyncHabit;
use crate::unsynced::Unsynced;
use crate::unwritten::Unwritten;

/// One open file, however many handles it has.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) layout: Layout,
    /// Handles of all kinds, and those that may write.
    pub(crate) handles: u32,
    pub(crate) writers: u32,
    pub(crate) intent: Intent,
    /// The intent came with the file's making, and nothing was written under it.
    pub(crate) untouched: bool,
    /// As of the last answer of the shard.
    pub(crate) permissions: Permissions,
    pub(crate) flags: KnownFlags,
    /// The best known size: exact under an exclusive intent, else a hint.
    pub(crate) size: u64,
    /// Allocation as of the last answer of the shard or the objects.
    pub(crate) blocks: u64,
    /// The time of the last write that no settling has told the shard, unless the times were set explicitly since.
    pub(crate) mtime: Option<Timestamp>,
    /// The modification time as the shard last told it, and after which writes count, as it told under the intent.
    pub(crate) told_mtime: Timestamp,
    pub(crate) written_after: Option<Timestamp>,
    /// When somebody else has set it, by the shard's clock, as was told here: what is written from then on is later.
    pub(crate) set_at: Option<Timestamp>,
    /// The access time as the shard last told it, and the last change of data or inode that is known here.
    pub(crate) atime: Timestamp,
    pub(crate) changed: Timestamp,
    /// The last read that changes the access time and that the shard was not told of.
    pub(crate) read_at: Option<Timestamp>,
    /// The read of which the shard is being told while the file stays open there.
    pub(crate) telling_read: Option<Timestamp>,
    pub(crate) outdated: Outdated,
    /// A settling is on its way to the shard.
    pub(crate) settling: bool,
    /// What it says is exact: the write intent was exclusive.
    pub(crate) settles_exactly: bool,
    /// How often the last handle went.
    pub(crate) closes: u64,
    /// The shard is being told that the last handle went: a new one has to wait.
    pub(crate) closing: bool,
    /// The shard may not know that it is open: who opened it last is asking.
    pub(crate) unconfirmed: bool,
    /// It is not told for a while: see [`crate::linger`].
    pub(crate) lingers: bool,
    /// The file may have holes or space beyond its end, so that its size does not tell its blocks.
    pub(crate) uneven: bool,
    /// The contents are in the metadata, as far as is known, until they would be longer than this; 0: in objects.
    pub(crate) inline_limit: u32,
    /// A lock on it went to another client: data is neither read nor written until all handles are closed.
    pub(crate) has_lost_lock: bool,
    pub(crate) end: End,
    pub(crate) cuts: Cuts,
    pub(crate) draft: Option<Box<Draft>>,
    pub(crate) unwritten: Unwritten,
    pub(crate) unsynced: Unsynced,
    pub(crate) losses: Losses,
    pub(crate) sync_habit: SyncHabit,
    pub(crate) streams: Streams<Arc<Fetch>>,
    /// With reads that no lease helps.
    pub(crate) patience: Patience,
    /// Whoever ends what others may wait for wakes these.
    pub(crate) done: Done,
}

/// Who tells the shard of the reads of a file.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum ReadTold {
    /// Another task, which also tells of those that come meanwhile.
    ByAnother,
    /// Who has asked; `None` where there is nothing to tell.
    Here(Option<TimeChange>),
}

/// The state of this session's write intent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    None,
    Held {
        exclusive: bool,
        /// The shard has it on disk that the objects have to be asked for the size.
        recorded: bool,
        /// As long as it is exclusive: of the objects that a file of this size has, only what this session has changed may not
        /// be on the disks.
        synced: u64,
        intents: u64,
    },
}

impl File {
    pub(crate) fn new(reply: &InodeReply, layout: Layout) -> Self {
        Self {
            layout,
            handles: 0,
            writers: 0,
            intent: Intent::None,
            untouched: false,
            permissions: Permissions::told(reply),
            flags: KnownFlags::new(reply.flags),
            size: reply.attr.size,
            blocks: reply.attr.blocks,
            mtime: None,
            told_mtime: reply.attr.mtime,
            written_after: reply.written_after,
            set_at: None,
            atime: reply.attr.atime,
            changed: reply.attr.mtime.max(reply.attr.ctime),
            read_at: None,
            telling_read: None,
            outdated: Outdated::default(),
            settling: false,
            settles_exactly: false,
            closes: 0,
            closing: false,
            unconfirmed: false,
            lingers: false,
            uneven: is_uneven(&reply.attr),
            inline_limit: reply.inline_limit,
            has_lost_lock: false,
            end: End::default(),
            cuts: Cuts::default(),
            draft: None,
            unwritten: Unwritten::default(),
            unsynced: Unsynced::default(),
            losses: Losses::default(),
            sync_habit: SyncHabit::default(),
            streams: Streams::default(),
            patience: Patience::default(),
            done: Done::default(),
        }
    }

    /// Begins anew with what the shard tells now of a file that has no handles.
    pub(crate) fn renew(&mut self, reply: &InodeReply, layout: Layout) {
        let unsynced = std::mem::take(&mut self.unsynced);
        *self = Self { closes: self.closes, closing: self.closing, unsynced, ..Self::new(reply, layout) };
    }

    /// Takes over what an answer to an open says.
    pub(crate) fn opened(&mut self, reply: &InodeReply) {
        self.told_size(&reply.attr);
        self.inline_limit = self.inline_limit.min(reply.inline_limit);
        self.flags.told(reply.flags);
    }

    /// An answer to an open that was asked for once more: what was told before may be from before a close of our own.
    pub(crate) fn confirmed(&mut self, reply: &InodeReply) {
        self.unconfirmed = false;
        self.meets(&mut reply.attr.clone(), reply.written_after);
        self.opened(reply);
    }

    /// It may be opened without asking the shard. A file that has only not been closed there yet may have been removed
    /// by others, unless there is a lease that they would have taken back: on what is known of it (`is_known`), or on
    /// its draft.
    pub(crate) fn may_be_opened_again(&self, is_known: bool) -> bool {
        !self.closing && !self.unconfirmed && (self.handles > 0 || is_known || self.draft.is_some())
    }

    pub(crate) fn add_handle(&mut self, writable: bool) {
        if self.handles == 0 {
            self.has_lost_lock = false;
            self.unwritten.begin();
        }
        self.handles += 1;
        self.writers += u32::from(writable);
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        matches!(self.intent, Intent::Held { exclusive: true, .. })
    }

    /// Nobody, this session included, has got or ended a write intent between the grant of the held one and an answer with so
    /// many.
    pub(crate) fn is_under(&self, intents: u64) -> bool {
        matches!(self.intent, Intent::Held { intents: held, .. } if held == intents)
    }

    /// What is known here is what an answer lacks by which the session alone holds a write intent: also where the intent
    /// is just being ended.
    pub(crate) fn completes_exclusive(&self) -> bool {
        self.is_exclusive() || self.settles_exactly
    }

    /// To make it `size` bytes long one object is made longer, and no other changes. Where it may have holes each must be.
    pub(crate) fn grows_by_one_object(&self, size: u64) -> bool {
        self.is_exclusive() && size >= self.size && !self.uneven
    }

    /// Of the objects that a file of this size has, nobody else has changed one since all of them were on their disks. The
    /// others may have been cut by somebody else, which is not on their disks.
    pub(crate) fn synced_but_for_own(&self) -> u64 {
        if let Intent::Held { exclusive: true, synced, .. } = self.intent { synced } else { 0 }
    }

    /// All objects that a file of this size has were brought to their disks, which began when nobody else could change them,
    /// and this was the intent. Under another one others may have changed them since.
    pub(crate) fn is_synced(&mut self, size: u64, then: Intent) {
        if let (Intent::Held { synced, intents, .. }, Intent::Held { intents: before, .. }) = (&mut self.intent, then)
            && *intents == before
        {
            *synced = size.max(*synced);
        }
    }

    /// What is written of the object now is going to be synced next, and there is nothing before it to be synced as well.
    pub(crate) fn expects_sync(&self, stripe: u32) -> bool {
        self.sync_habit.expects_sync() && self.unsynced.since(stripe) == 0
    }

    /// The shard has on disk what it knew when this many intents had been given.
    pub(crate) fn is_recorded(&mut self, asked: u64) {
        if let Intent::Held { recorded, intents, .. } = &mut self.intent {
            *recorded |= *intents == asked;
        }
    }

    /// The session had ended, and others may have been told that nobody writes.
    pub(crate) fn lose_intent(&mut self) {
        self.settles_exactly = false;
        self.intent = Intent::None;
        self.intent_ended();
    }

    /// The write intent has ended. A lease may go on, but without an intent others open the file and do not take it back.
    pub(crate) fn intent_ended(&mut self) {
        self.know_objects_anew(Lease::NONE);
    }

    /// Of the objects nothing is known any more but what is asked of them while `lease` is held.
    pub(crate) fn know_objects_anew(&mut self, lease: Lease) {
        self.unwritten.begin_anew(lease);
        self.streams.clear();
    }

    /// From here on, as after a restart of the shard, the objects have to be asked.
    pub(crate) fn lose_exclusivity(&mut self) {
        self.settles_exactly = false;
        if let Intent::Held { exclusive, .. } = &mut self.intent {
            *exclusive = false;
        }
        self.streams.clear();
    }

    /// The shard has forgotten what this client knew alone, but for what it is told again.
    pub(crate) fn shard_restarted(&mut self) {
        self.lose_exclusivity();
        // A power cut may have taken it back that the contents have left the metadata, unless we hold an intent on them.
        if self.intent == Intent::None {
            self.inline_limit = INLINE_MAX;
        }
        // Only what is changed is claimed.
        self.draft.take_if(|draft| !draft.is_changed());
    }

    /// Who may do what, as an answer says.
    pub(crate) fn told_rights(&mut self, reply: &InodeReply) {
        let told = Permissions::told(reply);
        if self.draft.is_none() && told != self.permissions {
            self.permissions = told;
            // Of two answers the older one may come last.
            self.flags.recalled();
        }
        self.flags.told(reply.flags);
    }

    /// The shard granted (or confirmed) the write intent.
    pub(crate) fn granted(&mut self, reply: &InodeReply) {
        self.told_rights(reply);
        let first = self.intent == Intent::None;
        // What was lost here, as after a write that failed, the shard does not know of.
        let exclusive = reply.exclusive && (first || self.is_exclusive());
        // As long as the intent is held the shard does not settle the file, so what it has on disk of that stays true.
        let recorded = matches!(self.intent, Intent::Held { recorded: true, .. });
        let synced = if let Intent::Held { synced, .. } = self.intent { synced } else { 0 };
        self.intent = Intent::Held { exclusive, recorded, synced, intents: reply.intents };
        self.inline_limit = 0;
        // Under an exclusive intent the size grows by our own writes alone, which may have begun before a second
        // thread's grant came back.
        if first {
            self.size = reply.attr.size;
            self.blocks = reply.attr.blocks;
            self.uneven = is_uneven(&reply.attr);
            (self.told_mtime, self.written_after) = (reply.attr.mtime, reply.written_after);
            // What was told before was said of others' writes, too.
            self.set_at = None;
        }
    }

    /// The shard told of a file that is not written here as far as it knows. What was written under an intent that is just
    /// being ended it may not have known.
    pub(crate) fn told_size(&mut self, attr: &Attr) {
        if self.intent == Intent::None && !self.settles_exactly {
            (self.size, self.blocks) = (attr.size, attr.blocks);
        }
    }

    pub(crate) fn wrote(&mut self, offset: u64, len: u64, now: Timestamp) {
        self.uneven |= offset > self.size;
        self.size = self.size.max(offset + len);
        self.sync_habit.wrote();
        self.streams.forget(&(offset..offset + len));
        self.modified(now);
    }

    /// Space was reserved or given back, and the file made at least `reached` bytes long.
    pub(crate) fn respaced(&mut self, reached: u64, now: Timestamp) {
        self.uneven = true;
        self.size = self.size.max(reached);
        self.streams.clear();
        self.modified(now);
    }

    fn modified(&mut self, now: Timestamp) {
        let now = self.set_at.map_or(now, |set| now.max(Timestamp(set.0 + 1)));
        self.mtime = Some(now);
        self.changed = self.changed.max(now);
    }

    /// Something was read: changes the access time where `rule` says so.
    pub(crate) fn accessed(&mut self, now: Timestamp, rule: AccessTimes) {
        let atime = self.read_at.unwrap_or(self.atime);
        if !self.flags.keep_access_time() && rule.access_is_due(atime, self.changed, now) {
            self.read_at = Some(now);
        }
    }

    /// It is read without a lease. True where the shard is to be asked for one, since nobody here may write it.
    pub(crate) fn goes_without_lease(&mut self, now: Instant) -> bool {
        self.is_only_read() && self.patience.goes_without(now)
    }

    /// Its last handle went, it was only read, and nobody is telling the shard of that.
    pub(crate) fn is_left(&self) -> bool {
        self.handles == 0 && !self.closing && self.is_only_read()
    }

    /// Nobody here writes it, so that who holds a lease on it knows its data. Who may write has to get an intent first, unless
    /// the contents are in the metadata.
    pub(crate) fn is_only_read(&self) -> bool {
        (self.writers == 0 || self.inline_limit == 0)
            && self.intent == Intent::None
            && !self.settling
            && !self.has_lost_lock
            && self.draft.is_none()
    }

    /// Something was done to the draft.
    pub(crate) fn drafted(&mut self) {
        let Some(draft) = &self.draft else { return };
        let attr = draft.attr();
        self.permissions = Permissions::of(attr);
        self.changed = self.changed.max(attr.mtime).max(attr.ctime);
        self.atime = attr.atime;
        if draft.contents().is_some() {
            (self.size, self.blocks) = (attr.size, attr.blocks);
        }
    }

    /// The shard has these times now, and was told of all writes up to that.
    pub(crate) fn told_times(&mut self, atime: Timestamp, mtime: Timestamp) {
        (self.atime, self.told_mtime) = (atime, mtime);
        self.mtime = self.mtime.filter(|&written| written != mtime);
    }

    /// The shard has taken this over.
    pub(crate) fn settled(&mut self, mtime: Option<TimeChange>) {
        if let Some(change) = mtime {
            self.told_mtime = change.at;
            self.mtime = self.mtime.filter(|&written| written != change.at);
        }
    }

    /// The shard was told of a read. There may have been others since.
    pub(crate) fn told_of_read(&mut self, read: Option<&TimeChange>) {
        if let Some(read) = read {
            // Unless it was told of a later change meanwhile.
            if self.atime == read.before {
                self.atime = read.at;
            }
            self.read_at.take_if(|at| *at == read.at);
        }
    }

    /// As [`Self::tell_of_read`], unless another task is telling the shard of reads.
    pub(crate) fn begin_telling_read(&mut self) -> ReadTold {
        if self.telling_read.is_some() { ReadTold::ByAnother } else { ReadTold::Here(self.tell_of_read()) }
    }

    /// What the shard has to be told of reads before the file may linger: the task that asks for it tells it, after what
    /// it has told before.
    pub(crate) fn tell_of_read(&mut self) -> Option<TimeChange> {
        let read = self.read_time().filter(|_| self.is_left());
        self.telling_read = read.as_ref().map(|read| read.at);
        read
    }

    pub(crate) fn truncated(&mut self, size: u64) {
        self.uneven = size != 0 && (self.uneven || size > self.size);
        self.size = size;
        self.streams.clear();
    }

    /// What the size tells of the allocation, where it tells it. Units of 512 bytes.
    pub(crate) fn estimated_blocks(&self) -> Option<u64> {
        (!self.uneven).then(|| blocks_of(self.size))
    }

    /// Puts what only this client knows over the shard's attributes.
    pub(crate) fn overlay(&self, attr: &mut Attr) {
        attr.size = self.size;
        attr.blocks = self.estimated_blocks().unwrap_or(self.blocks);
        if let Some(mtime) = self.mtime {
            attr.mtime = mtime;
            attr.ctime = attr.ctime.max(mtime);
        }
    }
}

/// The allocation of a file that was written from its beginning to its end, in units of 512 bytes.
fn blocks_of(size: u64) -> u64 {
    size.div_ceil(4096).saturating_mul(8)
}

/// What has just left the metadata is even, though it was counted in smaller units there.
fn is_uneven(attr: &Attr) -> bool {
    attr.blocks != blocks_of(attr.size) && attr.blocks != attr.size.div_ceil(512)
}

/// Which of the `buckets` of a hash table has what is known of one inode.
pub(crate) fn bucket_of(inode: InodeId, buckets: usize) -> usize {
    (inode.counter() % buckets as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_client;
    use types::id::GroupId;

    fn reply(size: u64, blocks: u64, exclusive: bool) -> InodeReply {
        let whole = test_client::reply(InodeId(99));
        let attr = Attr { size, blocks, ..whole.attr };
        InodeReply { attr, exclusive, alone: exclusive, layout: None, ..whole }
    }

    fn file(size: u64, blocks: u64) -> File {
        File::new(&reply(size, blocks, false), Layout { chunk_size: 4096, groups: vec![GroupId(1)] })
    }

    #[test]
    fn own_writes_extend_the_size_and_show_in_stat() {
        let mut file = file(0, 0);
        file.granted(&reply(100, 8, true));
        file.wrote(100, 50, Timestamp(9));
        let mut attr = reply(100, 8, true).attr;
        file.overlay(&mut attr);
        assert_eq!((attr.size, attr.blocks, attr.mtime), (150, 8, Timestamp(9)));
        // A second grant does not take the writes back.
        file.granted(&reply(100, 8, true));
        assert!(file.size == 150 && file.is_exclusive());
        file.lose_exclusivity();
        file.granted(&reply(100, 8, true));
        assert!(!file.is_exclusive(), "nor makes it what this client knows exact again");
    }

    /// Its last handle has gone, and its close has not gone out yet.
    #[test]
    fn a_file_that_is_not_closed_yet_is_not_opened_again_without_a_lease() {
        let mut file = file(0, 0);
        assert!(!file.may_be_opened_again(false) && file.may_be_opened_again(true));
        file.add_handle(false);
        assert!(file.may_be_opened_again(false));
        file.closing = true;
        assert!(!file.may_be_opened_again(true));
    }

    #[test]
    fn what_the_shard_knew_before_a_settling_is_not_believed_while_that_is_on_its_way() {
        let mut file = file(0, 0);
        file.granted(&reply(100, 8, true));
        file.wrote(100, 50, Timestamp(9));
        (file.settles_exactly, file.intent) = (file.is_exclusive(), Intent::None);
        file.told_size(&reply(100, 8, true).attr);
        let mut attr = reply(100, 8, true).attr;
        file.overlay(&mut attr);
        assert_eq!((file.size, attr.size), (150, 150));
        file.settles_exactly = false;
        file.told_size(&reply(200, 8, false).attr);
        assert_eq!(file.size, 200);
    }

    #[test]
    fn what_was_synced_counts_as_long_as_nobody_else_can_change_it() {
        let mut file = file(0, 0);
        let granted = |file: &mut File, exclusive: bool, intents: u64| {
            file.granted(&InodeReply { intents, ..reply(100, 8, exclusive) });
            file.intent
        };
        let first = granted(&mut file, true, 5);
        file.is_synced(100, first);
        file.is_synced(50, first);
        assert_eq!(file.synced_but_for_own(), 100);
        // Another thread's grant came back later.
        granted(&mut file, true, 5);
        assert_eq!(file.synced_but_for_own(), 100);
        // A sync is under way while the intent goes, somebody else writes, and it comes back.
        file.lose_intent();
        let second = granted(&mut file, true, 8);
        file.is_synced(100, first);
        assert_eq!(file.synced_but_for_own(), 0);
        file.is_synced(100, second);
        file.lose_exclusivity();
        assert_eq!(file.synced_but_for_own(), 0);
    }

    #[test]
    fn what_has_holes_grows_by_all_its_objects() {
        let mut file = file(100, 8);
        assert!(!file.grows_by_one_object(200), "others may write");
        file.granted(&reply(100, 8, true));
        assert!(file.grows_by_one_object(200) && file.grows_by_one_object(100) && !file.grows_by_one_object(99));
        file.truncated(200);
        assert!(!file.grows_by_one_object(300));
    }

    #[test]
    fn times_that_others_set_go_over_writes_before_them() {
        let told = |mtime: i64, ctime: i64| {
            let mut attr = reply(0, 0, true).attr;
            (attr.mtime, attr.ctime) = (Timestamp(mtime), Timestamp(ctime));
            attr
        };
        let seen = |file: &mut File, mut attr: Attr| {
            file.meets(&mut attr, None);
            file.overlay(&mut attr);
            attr.mtime.0
        };
        let mut file = file(0, 0);
        file.granted(&reply(0, 0, true));
        file.wrote(0, 1, Timestamp(100));
        assert_eq!(seen(&mut file, told(5, 200)), 100, "a change of the mode alone");
        assert_eq!(file.write_time(), Some(TimeChange { at: Timestamp(100), before: Timestamp(5) }));
        assert_eq!(seen(&mut file, told(7, 300)), 7, "set by somebody else");
        assert_eq!(file.write_time(), None);
        file.wrote(0, 1, Timestamp(400));
        assert_eq!(seen(&mut file, told(7, 300)), 400);
        assert_eq!(seen(&mut file, told(i64::MAX, 350)), 400, "the write came later");
        file.settled(file.write_time());
        assert_eq!(file.write_time(), None);
        file.wrote(0, 1, Timestamp(500));
        assert_eq!(seen(&mut file, told(400, 600)), 500, "the shard has what it was told");
    }

    #[test]
    fn a_time_that_others_set_to_what_it_was_goes_over_writes_before_it() {
        let told = |after: i64| InodeReply { written_after: Some(Timestamp(after)), ..reply(0, 0, true) };
        let seen = |file: &mut File, reply: &InodeReply| {
            let mut attr = reply.attr;
            file.meets(&mut attr, reply.written_after);
            file.overlay(&mut attr);
            attr.mtime.0
        };
        let mut file = file(0, 0);
        let before = told(200).attr.mtime.0;
        assert_eq!(seen(&mut file, &told(150)), before, "while others write");
        file.granted(&told(200));
        file.wrote(0, 1, Timestamp(100));
        assert_eq!(seen(&mut file, &told(200)), 100, "by a clock that is behind");
        assert_eq!(seen(&mut file, &told(300)), before);
        assert_eq!(file.write_time(), None);
        file.wrote(0, 1, Timestamp(250));
        assert_eq!(seen(&mut file, &told(300)), 301, "nobody has set it since, whatever our clock says");
        assert_eq!(seen(&mut file, &told(200)), 301, "an answer that was overtaken");
        file.wrote(0, 1, Timestamp(400));
        assert_eq!(seen(&mut file, &told(350)), 400, "the write came later");
    }

    #[test]
    fn a_read_after_one_that_the_shard_was_told_of_is_seen() {
        let mut file = file(0, 0);
        let mut attr = reply(0, 0, false).attr;
        let access = |file: &mut File, at| file.accessed(Timestamp(at), AccessTimes::Strictatime);
        access(&mut file, 1000);
        let told = file.read_time();
        access(&mut file, 2000);
        file.told_of_read(told.as_ref());
        attr.atime = Timestamp(1000);
        file.meets(&mut attr, None);
        assert_eq!(attr.atime, Timestamp(2000));
        assert_eq!(file.read_time(), Some(TimeChange { at: Timestamp(2000), before: Timestamp(1000) }));
        file.told_of_read(file.read_time().as_ref());
        assert_eq!(file.read_time(), None);
    }

    #[test]
    fn reads_are_told_one_after_the_other_while_the_file_stays_open() {
        let mut file = file(0, 0);
        let access = |file: &mut File, at| file.accessed(Timestamp(at), AccessTimes::Strictatime);
        let change = |at, before| Some(TimeChange { at: Timestamp(at), before: Timestamp(before) });
        let first = file.atime.0;
        access(&mut file, 1000);
        assert_eq!(file.begin_telling_read(), ReadTold::Here(change(1000, first)));
        assert_eq!(file.begin_telling_read(), ReadTold::ByAnother, "it is being told");
        access(&mut file, 2000);
        // What is asked meanwhile may know the first one already.
        let mut attr = Attr { atime: Timestamp(1000), ..reply(0, 0, false).attr };
        file.meets(&mut attr, None);
        assert_eq!(attr.atime, Timestamp(2000));
        file.told_of_read(change(1000, first).as_ref());
        assert_eq!(file.tell_of_read(), change(2000, 1000));
        // Others set it, and what was told comes to nothing.
        attr.atime = Timestamp(7);
        file.meets(&mut attr, None);
        file.told_of_read(change(2000, 1000).as_ref());
        access(&mut file, 3000);
        file.add_handle(false);
        assert_eq!(file.tell_of_read(), None, "it is open again");
        file.handles = 0;
        assert_eq!(file.begin_telling_read(), ReadTold::Here(change(3000, 7)));
    }

    /// The first answer was overtaken by the close that told of a read.
    #[test]
    fn what_a_second_answer_to_an_open_says_goes_over_the_first() {
        let mut file = file(0, 0);
        file.unconfirmed = true;
        let mut again = reply(70, 8, false);
        again.attr.atime = Timestamp(1000);
        file.confirmed(&again);
        file.accessed(Timestamp(2000), AccessTimes::Strictatime);
        assert_eq!(file.read_time(), Some(TimeChange { at: Timestamp(2000), before: Timestamp(1000) }));
        assert!(file.size == 70 && !file.unconfirmed);
    }

    #[test]
    fn after_a_restart_of_the_shard_contents_may_be_in_the_metadata_again() {
        let mut file = file(0, 0);
        file.inline_limit = 0;
        file.granted(&reply(0, 0, true));
        file.shard_restarted();
        assert_eq!(file.inline_limit, 0, "the intent is told, and keeps them in objects");
        file.lose_intent();
        file.shard_restarted();
        file.opened(&InodeReply { inline_limit: 4096, ..reply(0, 0, false) });
        assert_eq!(file.inline_limit, 4096);
    }

    #[test]
    fn a_gap_makes_the_allocation_unknown() {
        let mut file = file(0, 0);
        file.granted(&reply(0, 0, true));
        file.wrote(0, 10, Timestamp(1));
        assert_eq!(file.estimated_blocks(), Some(8));
        file.wrote(1 << 20, 10, Timestamp(1));
        assert_eq!(file.estimated_blocks(), None);
        file.truncated(0);
        assert_eq!(file.estimated_blocks(), Some(0));
        file.truncated(4096);
        assert_eq!(file.estimated_blocks(), None);
    }
}
