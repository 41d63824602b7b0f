//! The shard alone: the namespace over RocksDB, driven as metad drives it, without a network.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kv::rocks::{Grouping, RocksConfig, RocksKv};
use namespace::schema;
use namespace::shard::{Config, Limits, Shard};
use namespace::view::{Create, Exactly, GroupSpace, PoolSpace, SpaceClass};
use serde::{Deserialize, Serialize};
use types::attr::FileType;
use types::cred::{Conditions, Credentials};
use types::id::{GroupId, InodeId, PoolId, SessionId, ShardId};
use types::name::Name;

use super::rocks::{FILES_PER_DIRECTORY, name, now};
use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::Measured;
use crate::work::pattern::Random;

pub(super) const SESSION: SessionId = SessionId(1);
/// Files that are looked at again and again.
const HOT: u64 = 1_000;

/// Creates in batches, then looks at some of what was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Alone {
    /// Must not exist yet.
    pub(crate) dir: PathBuf,
    pub(crate) creates: u64,
    pub(crate) batch: u64,
    pub(crate) stats: u64,
}

impl Alone {
    /// `create`, `lookup` and `getattr`.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        ensure!(!self.dir.exists(), "{} exists", self.dir.display());
        let mut driver = Driver::open(&self.dir, Limits::default().cached_inodes)?;
        let directories = driver.make_directories(self.creates.div_ceil(FILES_PER_DIRECTORY))?;
        let watch = Watch::default();
        let stopwatch = Stopwatch::start(Who::Server, &watch)?;
        for begin in (0..self.creates).step_by(self.batch as usize) {
            driver.create_some(&directories, begin..(begin + self.batch).min(self.creates))?;
        }
        let created = stopwatch.stop("create", self.creates)?;
        let hot = driver.hot(directories[0])?;
        let looked_up = driver.look(&hot, self, "lookup", |shard, file| {
            Ok(shard.lookup(SESSION, file.0, &file.1)?.found()?.attr.inode)
        })?;
        let got = driver.look(&hot, self, "getattr", |shard, file| Ok(shard.getattr(SESSION, file.2)?.attr.inode))?;
        drop(driver);
        std::fs::remove_dir_all(&self.dir)?;
        Ok(vec![created, looked_up, got])
    }
}

/// Parent, name, inode.
type File = (InodeId, Name, InodeId);

/// Drives a shard as metad does.
pub(super) struct Driver {
    pub(super) shard: Shard<RocksKv>,
    begin: Instant,
    sequence: u64,
}

impl Driver {
    /// `cached`: names, and inodes, that are kept in memory.
    pub(super) fn open(dir: &std::path::Path, cached: usize) -> Result<Self> {
        let config = Config {
            shard: ShardId(0),
            seed: 1,
            session_expiry_ms: 60_000,
            lease_term_ms: 10_000,
            root_owner: Credentials::default(),
            limits: Limits { cached_inodes: cached, cached_edges: cached, ..Limits::default() },
        };
        let grouping = Some(Grouping { name: schema::GROUPS, front: schema::group });
        let kv = RocksKv::open(dir, &RocksConfig { grouping, ..RocksConfig::default() })?;
        let mut shard = Shard::open(kv, config, now(), 0)?;
        shard.scattered_memory().iter().for_each(ring::memory::prefer_large_pages);
        let group = |id| GroupSpace { group: GroupId(id), class: SpaceClass::Normal, free_bytes: 1 << 40 };
        shard.set_pools(vec![PoolSpace { pool: PoolId::DEFAULT, groups: (1..=4).map(group).collect() }]);
        let mut driver = Self { shard, begin: Instant::now(), sequence: 0 };
        driver.turn();
        driver.shard.session_open(SESSION, b"bench")?;
        driver.shard.commit()?;
        Ok(driver)
    }

    pub(super) fn turn(&mut self) {
        let mono_ms = self.begin.elapsed().as_millis() as u64;
        self.shard.begin_turn(now(), mono_ms);
        self.shard.touch(SESSION);
    }

    /// All before it are answered: each turn's answers leave before the next one's requests come.
    fn exactly(&mut self, turn: u64) -> Exactly {
        self.sequence += 1;
        Exactly { session: SESSION, sequence: self.sequence, answered_below: turn, given: Conditions::default() }
    }

    pub(super) fn make_directories(&mut self, count: u64) -> Result<Vec<InodeId>> {
        let mut made = Vec::new();
        for index in 0..count {
            self.turn();
            let exactly = self.exactly(self.sequence + 1);
            let name = Name::new(format!("directory-{index}").as_bytes())?;
            let view = self.shard.mkdir(exactly, InodeId::ROOT, &name, 0o755, Credentials::default())?;
            made.push(view.attr.inode);
            self.shard.commit()?;
        }
        Ok(made)
    }

    pub(super) fn create_some(&mut self, directories: &[InodeId], indices: std::ops::Range<u64>) -> Result<()> {
        self.turn();
        let turn = self.sequence + 1;
        for index in indices {
            let exactly = self.exactly(turn);
            let name = Name::new(name(index).as_bytes())?;
            let create = Create {
                parent: directories[(index / FILES_PER_DIRECTORY) as usize],
                name: &name,
                kind: FileType::Regular,
                mode: 0o644,
                rdev: 0,
                cred: Credentials::default(),
                open: false,
                write_intent: false,
                exclusive: true,
                draft: false,
            };
            self.shard.create(exactly, &create)?;
        }
        self.shard.commit().context("cannot commit")
    }

    fn hot(&mut self, parent: InodeId) -> Result<Vec<File>> {
        self.turn();
        let one = |index| {
            let name = Name::new(name(index).as_bytes())?;
            let inode = self.shard.lookup(SESSION, parent, &name)?.found()?.attr.inode;
            Ok((parent, name, inode))
        };
        (0..HOT).map(one).collect()
    }

    fn look(
        &mut self,
        hot: &[File],
        size: &Alone,
        phase: &str,
        look: impl Fn(&mut Shard<RocksKv>, &File) -> Result<InodeId>,
    ) -> Result<Measured> {
        let mut random = Random::new(2);
        let watch = Watch::default();
        let stopwatch = Stopwatch::start(Who::Server, &watch)?;
        for begin in (0..size.stats).step_by(size.batch as usize) {
            self.turn();
            for _ in begin..(begin + size.batch).min(size.stats) {
                let file = &hot[random.below(hot.len() as u64) as usize];
                ensure!(look(&mut self.shard, file)? == file.2, "{} is another file", file.1);
            }
            self.shard.commit()?;
        }
        stopwatch.stop(phase, size.stats)
    }
}
