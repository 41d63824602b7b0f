//! What whoever runs a shard chooses for it.

use types::cred::Credentials;
use types::id::ShardId;

use crate::locks::LockLimits;

/// What is fixed for the life of a shard's process.
#[derive(Clone, Debug)]
pub struct Config {
    pub shard: ShardId,
    /// Of the placement's random choices. Take a fresh one at each start.
    pub seed: u64,
    /// A session that was not heard of for so long ends.
    pub session_expiry_ms: u64,
    /// For how long a session may believe what it was told (see `leases`). 0: never beyond the answer. Less than
    /// `session_expiry_ms`.
    pub lease_term_ms: u64,
    /// Owns the root directory, where this start makes it.
    pub root_owner: Credentials,
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
    /// Changes whose answers a session has not yet acknowledged: `Again`.
    pub replies_per_session: usize,
    /// `EMLINK`: names of one file, and subdirectories of one directory (plus 2).
    pub links: u32,
    /// Hot inodes and edges kept in memory.
    pub cached_inodes: usize,
    pub cached_edges: usize,
    /// Names and inodes on which leases are given in one term; above it, there are none.
    pub leased: usize,
    pub locks: LockLimits,
    /// Entries that a directory may have until it is split over shards by itself. 0: any number.
    pub split_above: u64,
    /// Changes of a directory's names per second, for five seconds on end, from which on it is as well. 0: any number.
    pub split_rate: u64,
    /// Entries of a directory that is split that go to a part at a time.
    pub split_batch: usize,
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
            leased: 1 << 20,
            locks: LockLimits::default(),
            split_above: 50_000,
            split_rate: 30_000,
            split_batch: 256,
        }
    }
}
