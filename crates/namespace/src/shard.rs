//! A shard: the namespace, and the sessions that use it.
//!
//! How to drive it: `begin_turn(now)`, then `touch` and operations in the order of their arrival, now and then `tick`,
//! then `commit`; send the answers (the refusals too: they may rest on changes of the same turn) only when it returned
//! `Ok`. Where `commit` fails, the turn is forgotten and each of its requests, whatever it returned, is answered with
//! `store_errno`. Nothing else is lost then, and the shard goes on.

use std::marker::PhantomData;

use kv::{Kv, KvError};
use types::error::Errno;
use types::id::{SessionId, ShardId};
use types::time::Timestamp;

use crate::error::Result;
use crate::view::PoolSpace;

mod changes;
mod presence;
mod reads;

/// What is fixed for the life of a shard's process.
#[derive(Clone, Debug)]
pub struct Config {
    pub shard: ShardId,
    /// Of the placement's random choices. Take a fresh one at each start.
    pub seed: u64,
    /// A session that was not heard of for so long ends.
    pub session_expiry_ms: u64,
    /// Bounds of memory.
    pub limits: Limits,
}

/// Bounds; each refuses with the error named.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `EBUSY` when a session more would open.
    pub sessions: usize,
    /// Inodes that one session may hold open or intend to write: `EBUSY`.
    pub opens_per_session: usize,
    /// Changes whose answers a session has not yet acknowledged: `EBUSY`.
    pub replies_per_session: usize,
    /// `EMLINK`: names of one file, and subdirectories of one directory (plus 2).
    pub links: u32,
    /// Hot inodes and edges kept in memory.
    pub cached_inodes: usize,
    pub cached_edges: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 4096,
            opens_per_session: 1 << 20,
            replies_per_session: 8192,
            links: 0x7fff_ffff,
            cached_inodes: 1 << 16,
            cached_edges: 1 << 16,
        }
    }
}

/// What `tick` did, for the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ticked {
    /// Sessions that were not heard of for too long and ended.
    pub expired: Vec<SessionId>,
    /// The time after a restart in which sessions reclaim what they held is over.
    pub grace_ended: bool,
}

/// One metadata shard. See the module for how to drive it.
pub struct Shard<K: Kv> {
    store: PhantomData<K>,
}

impl<K: Kv> Shard<K> {
    /// Opens the shard in `store`; an empty store is formatted (and shard 0 gets the root directory). Needs a
    /// `commit` before anything is answered. `mono_ms` is any clock that never steps back.
    ///
    /// # Errors
    /// `Damaged` where the store has a format that this release does not know, belongs to another shard, or is damaged.
    pub fn open(_store: K, _config: Config, _now: Timestamp, _mono_ms: u64) -> Result<Self> {
        Err(Errno::ENOSYS.into())
    }

    /// The time for all that follows until the next call.
    pub fn begin_turn(&mut self, _now: Timestamp, _mono_ms: u64) {}

    /// What placement may choose from, whole; at each change of the map.
    pub fn set_pools(&mut self, _pools: Vec<PoolSpace>) {}

    /// Ends sessions not heard of and the grace after a restart, as the time has come. Call it a few times a second;
    /// its changes belong to the turn and need a `commit`.
    ///
    /// # Errors
    /// Where the store fails; what was not done is done at the next call.
    pub fn tick(&mut self) -> Result<Ticked> {
        Err(Errno::ENOSYS.into())
    }

    /// Nothing waits for `commit`.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        true
    }

    /// Writes the turn's changes in one batch.
    ///
    /// # Errors
    /// Where the store refuses: none of the turn's changes happened, and all its requests must be answered with
    /// `store_errno` of this.
    pub fn commit(&mut self) -> std::result::Result<(), KvError> {
        Ok(())
    }
}
