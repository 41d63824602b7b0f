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

    /// How many seem to be there.
    pub(crate) fn count_good(&self) -> usize {
        self.good.len()
    }

    pub(crate) fn are_several(&self) -> bool {
        self.all.len() > 1
    }
}

impl<K: Kv> Namespace<K> {
    /// A shard for each of so many parts of a directory: this one and those that follow it. `None` where there are fewer.
    pub(crate) fn homes_of_parts(&self, count: u16) -> Option<Vec<ShardId>> {
        let count = usize::from(count);
        let Homes { all, good, .. } = &self.homes;
        let shards = if good.len() >= count { good } else { all };
        let first = shards.iter().position(|&shard| shard == self.shard).unwrap_or(0);
        (shards.len() >= count).then(|| shards.iter().cycle().skip(first).take(count).copied().collect())
    }

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
