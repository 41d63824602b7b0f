//! RocksDB alone: what the shard's store can do with records of the shard's sizes.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use kv::rocks::{RocksConfig, RocksKv};
use kv::{Batch, Kv, KvError, Syncer};
use namespace::schema::{edge, inode};
use serde::{Deserialize, Serialize};
use types::attr::FileType;
use types::id::{InodeId, ShardId};
use types::time::Timestamp;

use super::stopwatch::Stopwatch;
use crate::cpu::{Watch, Who};
use crate::job::Measured;
use crate::work::pattern::{Random, content};

/// Per directory, here and wherever creates are compared with this.
pub(crate) const FILES_PER_DIRECTORY: u64 = 1_000;

/// Creates as two keys each, an edge and an inode, in batches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rocks {
    /// Must not exist yet.
    pub(crate) dir: PathBuf,
    pub(crate) count: u64,
    pub(crate) batch: u64,
    /// Makes the log durable as often as a metadata service does by default.
    pub(crate) synced: bool,
}

/// Bytes that inodes are taken from, at random places: nothing on the way to the disk makes them fewer, and to take them costs
/// nothing.
const NOISE: usize = 1 << 20;

/// The default of metad's `sync_interval`.
const SYNC_INTERVAL: Duration = Duration::from_millis(100);

/// Syncs on a thread of its own, until it is dropped.
struct Syncing {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<Result<(), KvError>>>,
}

impl Syncing {
    fn start(syncer: impl Syncer) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(SYNC_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                syncer.sync()?;
            }
            Ok(())
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> Result<()> {
        let _ = self.stop.send(());
        let ended = self.thread.take().map(JoinHandle::join);
        Ok(ended.transpose().map_err(|_| anyhow::anyhow!("the syncing thread has panicked"))?.transpose().map(drop)?)
    }
}

impl Rocks {
    pub(crate) fn run(&self) -> Result<Vec<Measured>> {
        ensure!(!self.dir.exists(), "{} exists", self.dir.display());
        let kv = RocksKv::open(&self.dir, &RocksConfig::default())?;
        let mut batch = kv.batch();
        let (mut key, mut random) = (Vec::new(), Random::new(1));
        let values = content(1, NOISE);
        let stopwatch_on = Watch::default();
        let syncing = self.synced.then(|| Syncing::start(kv.syncer()));
        let stopwatch = Stopwatch::start(Who::Server, &stopwatch_on)?;
        for index in 0..self.count {
            let id = InodeId::new(ShardId(0), InodeId::FIRST_COUNTER + index);
            let parent = InodeId(index / FILES_PER_DIRECTORY);
            let edge = edge::Edge { child: id, kind: FileType::Regular };
            // The shard's hash of the name: as long, and as much without order.
            edge::ser_key(&mut key, parent, random.next(), name(index).as_bytes());
            batch.put(&key, &edge::ser_value(edge));
            inode::ser_key(&mut key, id);
            let at = random.below((NOISE - inode::VALUE_LEN) as u64) as usize;
            batch.put(&key, &values[at..at + inode::VALUE_LEN]);
            if (index + 1).is_multiple_of(self.batch) {
                kv.commit(&mut batch)?;
            }
        }
        kv.commit(&mut batch)?;
        let measured = stopwatch.stop("create", self.count)?;
        syncing.map_or(Ok(()), Syncing::end)?;
        let last = InodeId::new(ShardId(0), InodeId::FIRST_COUNTER + self.count - 1);
        inode::ser_key(&mut key, last);
        ensure!(kv.get(&key, |value| value.is_some())?, "the last record is not there");
        drop(kv);
        std::fs::remove_dir_all(&self.dir)?;
        Ok(vec![measured])
    }
}

/// Of file number `index` of all.
pub(crate) fn name(index: u64) -> String {
    format!("file-{:08}", index)
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
