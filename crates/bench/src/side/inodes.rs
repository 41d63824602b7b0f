//! Memory of a shard that has many inodes in its cache.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use types::attr::FileType;
use types::id::InodeId;
use types::name::Name;

use super::rocks::{FILES_PER_DIRECTORY, name};
use super::shard::{Driver, SESSION};
use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::Measured;
use crate::work::gate::{Gate, Tally, together};

/// Files that are looked up at one turn.
const BATCH: u64 = 64;
/// One in so many is looked up before: code, buffers and tables are in memory then.
const FIRST: u64 = 64;

/// Each of `count` files is looked up once, by a shard that keeps so many names and inodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Inodes {
    /// Must not exist yet.
    pub(crate) dir: PathBuf,
    pub(crate) count: u64,
}

impl Inodes {
    /// `inodes`: one operation is one file, and bytes are those by which this process has grown, without RocksDB's cache of
    /// blocks.
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        ensure!(!self.dir.exists(), "{} exists", self.dir.display());
        // By another process, whose memory is not this one's.
        let make = |_: usize, gate: &mut Gate<'_>| {
            gate.pass();
            self.make()?;
            Ok((Tally::default(), ()))
        };
        together("make", 1, &Watch::default(), make, |_, ()| Ok(()))?;
        let mut driver = self.open()?;
        let first = self.count / FIRST;
        self.look(&mut driver, 0..first)?;
        let (resident, cache) = (resident_bytes()?, driver.shard.store().stats()?.block_cache_bytes);
        let watch = Watch::default();
        let stopwatch = Stopwatch::start(Who::Server, &watch)?;
        self.look(&mut driver, first..self.count)?;
        let measured = stopwatch.stop("inodes", self.count - first)?;
        let blocks = driver.shard.store().stats()?.block_cache_bytes.saturating_sub(cache);
        let bytes = resident_bytes()?.saturating_sub(resident).saturating_sub(blocks);
        drop(driver);
        std::fs::remove_dir_all(&self.dir)?;
        Ok(vec![Measured { bytes, ..measured }])
    }

    fn open(&self) -> Result<Driver> {
        Driver::open(&self.dir, usize::try_from(self.count)?)
    }

    fn make(&self) -> Result<()> {
        let mut driver = self.open()?;
        let directories = driver.make_directories(self.count.div_ceil(FILES_PER_DIRECTORY))?;
        for begin in (0..self.count).step_by(BATCH as usize) {
            driver.create_some(&directories, begin..(begin + BATCH).min(self.count))?;
        }
        Ok(())
    }

    fn look(&self, driver: &mut Driver, indices: std::ops::Range<u64>) -> Result<()> {
        let mut parent = None;
        for index in indices {
            if index.is_multiple_of(BATCH) {
                driver.shard.commit()?;
                driver.turn();
            }
            let directory = index / FILES_PER_DIRECTORY;
            let inode = match parent {
                Some((number, inode)) if number == directory => inode,
                _ => find(driver, InodeId::ROOT, &format!("directory-{directory}"), FileType::Directory)?,
            };
            parent = Some((directory, inode));
            find(driver, inode, &name(index), FileType::Regular)?;
        }
        Ok(driver.shard.commit()?)
    }
}

fn find(driver: &mut Driver, parent: InodeId, text: &str, kind: FileType) -> Result<InodeId> {
    let attr = driver.shard.lookup(SESSION, parent, &Name::new(text.as_bytes())?)?.found()?.attr;
    ensure!(attr.kind == kind, "{text} is not as it was made");
    Ok(attr.inode)
}

fn resident_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
