//! The namespace of one shard: its records in memory and store, and the turn's changes on their way to one batch.

use std::collections::BTreeSet;

use kv::{Batch, Kept, Kv, KvError};
use types::attr::FileType;
use types::cred::Credentials;
use types::error::Errno;
use types::flags::FileFlags;
use types::id::{InodeId, ShardId};
use types::layout::{Layout, LayoutPolicy};
use types::time::Timestamp;

use crate::busy::Busy;
use crate::cold::Cold;
use crate::config::{Config, Limits};
use crate::edges::Edges;
use crate::error::{Damage, Result};
use crate::homes::Homes;
use crate::inodes::Inodes;
use crate::placement::Placement;
use crate::schema::inode::{Body, Inode, POLICY_IS_OWN, Role};
use crate::schema::meta::{self, Counts};
use crate::schema::{self, layout};
use crate::view::PoolSpace;

/// Inode ids reserved at a time, so that a create writes no counter. A restart skips what is left of them.
///
/// Objects on storage bear the ids, so none may come again even where a power cut takes commits back. The store is
/// synced when it is opened, and at the latest some 100 ms after each commit, unless its disk hangs; and the next block is
/// reserved when half of the last one is left: the half lasts for half an hour of 20,000 files a second, and all blocks for
/// a million starts, whatever the clock has said.
const IDS_RESERVED: u64 = 1 << 26;
/// Ids passed over where the store may have lost what had been synced, and with it what it said of ids: a thousand blocks.
/// There is room for a thousand such losses, whatever the clock has said.
const IDS_DOUBTED: u64 = 1 << 36;
/// Ids that may have been given out in each second since the store was told of them last: more than a shard makes in the long
/// run. So none comes again either where an older store was put back, once or several times.
const IDS_PER_S: u64 = 1 << 17;
/// Ids that the clock may come to: three quarters of all, so that one that is years ahead leaves enough.
const IDS_BY_CLOCK_MAX: u64 = 3 << 46;

/// The rules of names and inodes over a store. Operations check everything before they change anything, so a refused
/// one leaves no trace. Changes are seen by later operations at once and by the store at `commit`.
pub struct Namespace<K: Kv> {
    pub(crate) kv: K,
    pub(crate) inodes: Inodes,
    pub(crate) edges: Edges,
    pub(crate) cold: Cold,
    pub(crate) placement: Placement,
    pub(crate) now: Timestamp,
    /// `EMLINK` above.
    pub(crate) links_max: u32,
    /// For one key at a time; its contents mean nothing between uses.
    pub(crate) key: Vec<u8>,
    pub(crate) shard: ShardId,
    pub(crate) homes: Homes,
    root_owner: Credentials,
    batch: K::Batch,
    next_id: u64,
    /// Ids below are reserved by what is committed or will be with this turn.
    reserved: u64,
    reserved_committed: u64,
    counts: Counts,
    inodes_committed: u64,
    /// Files whose objects were recorded to be removed, since somebody asked.
    pub(crate) buried: Vec<InodeId>,
    pub(crate) split_above: u64,
    /// Directories with more entries than that, which should be split. A hint.
    pub(crate) overgrown: BTreeSet<InodeId>,
    pub(crate) busy: Busy,
}

/// Whether a commit writes the record of counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CountsRecord {
    /// They are in another record of the same batch.
    Elsewhere,
    IfChanged,
    /// Records that had them go.
    Always,
}

impl<K: Kv> Namespace<K> {
    /// Opens or formats. The number of inodes may be known better by stored replies: see `learn_counts`.
    ///
    /// # Errors
    /// `Damaged` where the store is of another format or shard.
    pub fn open(kv: K, config: &Config, now: Timestamp) -> Result<Self> {
        let Config { shard, seed, root_owner, limits, .. } = *config;
        let Limits { links, cached_inodes, cached_edges, split_above, split_rate, .. } = limits;
        let batch = kv.batch();
        let mut namespace = Self {
            inodes: Inodes::new(cached_inodes),
            edges: Edges::new(cached_edges),
            cold: Cold::default(),
            placement: Placement::new(seed),
            now,
            links_max: links,
            key: Vec::new(),
            shard,
            root_owner,
            homes: Homes::new(vec![shard], vec![shard]),
            batch,
            next_id: InodeId::FIRST_COUNTER,
            reserved: InodeId::FIRST_COUNTER,
            reserved_committed: InodeId::FIRST_COUNTER,
            counts: Counts::default(),
            inodes_committed: 0,
            buried: Vec::new(),
            split_above,
            overgrown: BTreeSet::new(),
            busy: Busy::new(split_rate),
            kv,
        };
        namespace.load()?;
        Ok(namespace)
    }

    fn load(&mut self) -> Result<()> {
        let Some(superblock) = self.cold.get(&self.kv, meta::SUPERBLOCK)? else {
            return self.format();
        };
        meta::check_superblock(&superblock, self.shard)?;
        if let Some(ids) = self.number(meta::IDS)? {
            let unused = match self.kv.kept() {
                Kept::Unknown => ids.saturating_add(IDS_DOUBTED).min(1 << 48),
                Kept::Synced | Kept::All => ids,
            };
            let given_out = self.elapsed_s()?.saturating_mul(IDS_PER_S);
            // So that one that goes to and fro over years does not come so far either.
            let most = self.now.seconds_since_2020().saturating_mul(2 * IDS_PER_S).min(IDS_BY_CLOCK_MAX);
            let by_clock = unused.saturating_add(given_out).min(most);
            self.next_id = unused.max(by_clock);
            self.reserved = ids;
            self.reserved_committed = ids;
        }
        if let Some(counts) = self.cold.get(&self.kv, meta::COUNTS)? {
            self.learn_counts(meta::deser_counts(meta::COUNTS, &counts)?);
        }
        Ok(())
    }

    /// For how long others may have been told something that the store does not know, as where an older one was put back:
    /// seconds since ids were reserved last. 0 where the clock says nothing of that.
    pub(crate) fn elapsed_s(&self) -> Result<u64> {
        let noted = self.number(meta::IDS_AT)?;
        Ok(noted.map_or(0, |noted| self.now.seconds_since_2020().saturating_sub(noted)))
    }

    fn format(&mut self) -> Result<()> {
        let mut found = None;
        self.kv.scan(b"", b"\xff", |key, _| {
            found = Some(Damage::new("the store has records but no superblock", key));
            std::ops::ControlFlow::Break(())
        })?;
        if let Some(damage) = found {
            return Err(damage.into());
        }
        self.cold.put(meta::SUPERBLOCK, &meta::ser_superblock(self.shard));
        if self.shard == InodeId::ROOT.home() {
            self.make_root();
        }
        Ok(())
    }

    fn make_root(&mut self) {
        let root = Inode {
            kind: FileType::Directory,
            mode: 0o755,
            flags: POLICY_IS_OWN,
            file_flags: FileFlags::NONE,
            uid: self.root_owner.uid,
            gid: self.root_owner.gid,
            nlink: 2,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
            parent: InodeId::ROOT,
            body: Body::Directory { entries: 0, policy: LayoutPolicy::default(), role: Role::Whole },
        };
        self.add_inode(InodeId::ROOT, root);
    }

    pub(crate) fn number(&self, key: &[u8]) -> Result<Option<u64>> {
        let value = self.cold.get(&self.kv, key)?;
        Ok(value.map(|value| meta::deser_number(key, &value)).transpose()?)
    }

    /// A count of inodes that was found in the store; the one of the latest commit is right.
    pub(crate) fn learn_counts(&mut self, counts: Counts) {
        if counts.commit > self.counts.commit {
            self.counts = counts;
            self.inodes_committed = counts.inodes;
        }
    }

    /// The counts that stored replies of the coming commit carry.
    pub(crate) fn counts_to_store(&self) -> Counts {
        Counts { commit: self.counts.commit + 1, inodes: self.counts.inodes }
    }

    #[must_use]
    pub fn inode_count(&self) -> u64 {
        self.counts.inodes
    }

    /// What is written to this from now on is not older than that. It may be older than the change time, where a clock that was
    /// ahead has been put right.
    pub(crate) fn writes_begin_after(&self, inode: &Inode) -> Timestamp {
        inode.ctime.min(self.now)
    }

    /// The time of all that follows.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub fn set_pools(&mut self, pools: Vec<PoolSpace>) {
        self.placement.set_pools(pools);
    }

    #[must_use]
    pub fn is_clean(&self) -> bool {
        let records = self.inodes.is_clean() && self.edges.is_clean() && self.cold.is_clean();
        records && self.batch.is_empty() && self.reserved == self.reserved_committed
    }

    /// Adds a record to the coming batch that nobody reads before the commit.
    pub(crate) fn put_blind(&mut self, key: &[u8], value: &[u8]) {
        self.batch.put(key, value);
    }

    /// Writes the turn's changes in one batch.
    ///
    /// # Errors
    /// Where the store refuses: the changes are forgotten, and memory is as after the commit before.
    pub fn commit(&mut self, record: CountsRecord) -> std::result::Result<(), KvError> {
        if self.is_clean() {
            return Ok(());
        }
        self.edges.write(&mut self.batch);
        self.inodes.write(&mut self.batch);
        self.cold.write(&mut self.batch);
        if self.reserved != self.reserved_committed {
            self.batch.put(meta::IDS, &meta::ser_number(self.reserved));
            // A clock that says nothing leaves what it said before.
            let at = self.now.seconds_since_2020();
            if at != 0 {
                self.batch.put(meta::IDS_AT, &meta::ser_number(at));
            }
        }
        let counts = self.counts_to_store();
        let needed = match record {
            CountsRecord::Elsewhere => false,
            CountsRecord::IfChanged => counts.inodes != self.inodes_committed,
            CountsRecord::Always => true,
        };
        if needed {
            self.batch.put(meta::COUNTS, &meta::ser_counts(counts));
        }
        if let Err(error) = self.kv.commit(&mut self.batch) {
            self.reset();
            return Err(error);
        }
        self.edges.committed();
        self.inodes.committed();
        self.cold.clear();
        self.reserved_committed = self.reserved;
        self.counts = counts;
        self.inodes_committed = counts.inodes;
        Ok(())
    }

    /// Forgets the turn's changes, and all that was read.
    pub fn reset(&mut self) {
        self.batch.clear();
        self.edges.reset();
        self.inodes.reset();
        self.cold.clear();
        self.reserved = self.reserved_committed;
        self.counts.inodes = self.inodes_committed;
        self.buried.clear();
    }

    /// The inode, or `None`.
    ///
    /// # Errors
    /// Where the store fails or the record is damaged.
    pub fn find(&mut self, id: InodeId) -> Result<Option<Inode>> {
        self.inodes.get(&self.kv, id)
    }

    /// The inode that a client names by its number: `ESTALE` where it is gone.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn existing(&mut self, id: InodeId) -> Result<Inode> {
        self.find(id)?.ok_or_else(|| Errno::ESTALE.into())
    }

    /// A file's layout; `None` of what is no regular file.
    ///
    /// # Errors
    /// Where the store fails or the record is damaged.
    pub fn layout(&mut self, id: InodeId, inode: &Inode) -> Result<Option<Layout>> {
        let Body::File(striping) = &inode.body else {
            return Ok(None);
        };
        let groups = match striping.inline() {
            Some(groups) => groups.to_vec(),
            None => {
                layout::ser_key(&mut self.key, id);
                let value = self.cold.get(&self.kv, &self.key)?;
                let value = value.ok_or_else(|| Damage::new("a wide file without its layout", &self.key))?;
                layout::deser_value(&self.key, &value)?
            }
        };
        if groups.len() != usize::from(striping.stripes) {
            schema::inode::ser_key(&mut self.key, id);
            return Err(Damage::new("a file with another number of groups than stripes", &self.key).into());
        }
        Ok(Some(Layout { chunk_size: striping.chunk_size, groups }))
    }

    /// An id never used before.
    pub(crate) fn new_id(&mut self) -> Result<InodeId> {
        if self.next_id >= 1 << 48 {
            return Err(Errno::ENOSPC.into());
        }
        self.reserve_ids();
        let id = InodeId::new(self.shard, self.next_id);
        self.next_id += 1;
        Ok(id)
    }

    /// Half a block of ids is reserved, at least.
    pub(crate) fn reserve_ids(&mut self) {
        if self.next_id + IDS_RESERVED / 2 > self.reserved {
            self.reserved = (self.next_id + IDS_RESERVED).min(1 << 48);
        }
    }

    pub(crate) fn add_inode(&mut self, id: InodeId, inode: Inode) {
        self.inodes.modify(id, inode);
        self.counts.inodes += 1;
    }

    pub(crate) fn remove_inode(&mut self, id: InodeId) {
        self.inodes.remove(id);
        self.counts.inodes = self.counts.inodes.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use kv::Syncer;
    use kv::memory::MemoryKv;

    use super::*;

    #[test]
    fn no_id_comes_again_where_the_power_is_cut_after_a_sync_has_hung_for_long() {
        let kv = MemoryKv::new();
        let config = Config {
            shard: ShardId(0),
            seed: 7,
            session_expiry_ms: 2,
            lease_term_ms: 1,
            root_owner: Credentials::default(),
            limits: Limits { cached_inodes: 9, cached_edges: 9, ..Limits::default() },
        };
        let open = || Namespace::open(kv.clone(), &config, Timestamp(1)).expect("opens");
        let mut namespace = open();
        namespace.reserve_ids();
        namespace.commit(CountsRecord::IfChanged).expect("commits");
        kv.syncer().sync().expect("syncs");
        let mut last = InodeId(0);
        // Ten minutes of 20,000 files a second.
        for _ in 0..600 {
            for _ in 0..20_000 {
                last = namespace.new_id().expect("there are more");
            }
            namespace.commit(CountsRecord::IfChanged).expect("commits");
        }
        kv.crash();
        assert!(open().new_id().expect("there are more") > last);
    }
}
