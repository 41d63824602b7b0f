//! Which shard a new directory goes to.

use kv::Kv;
use types::id::ShardId;
use types::placement::Placement;

use crate::namespace::Namespace;

/// The shards of the cluster.
#[derive(Debug, Default)]
pub(crate) struct Homes {
    pub(crate) all: Vec<ShardId>,
    /// Those whose nodes seem to be there.
    good: Vec<ShardId>,
    /// How many directories were placed one after the other.
    placed: usize,
}

impl Homes {
    pub(crate) fn new(all: Vec<ShardId>, good: Vec<ShardId>) -> Self {
        Self { all, good, placed: 0 }
    }

    pub(crate) fn are_several(&self) -> bool {
        self.all.len() > 1
    }
}

impl<K: Kv> Namespace<K> {
    pub(crate) fn choose_home(&mut self, policy: Placement) -> ShardId {
        let shards = if self.homes.good.is_empty() { &self.homes.all } else { &self.homes.good };
        let at = match policy {
            Placement::Inherit => return self.shard,
            Placement::Shard(shard) if self.homes.all.contains(&shard) => return shard,
            Placement::Random | Placement::Shard(_) => self.placement.below(shards.len().max(1) as u64) as usize,
            Placement::RoundRobin => {
                self.homes.placed = self.homes.placed.wrapping_add(1);
                self.homes.placed % shards.len().max(1)
            }
        };
        shards.get(at).copied().unwrap_or(self.shard)
    }
}
