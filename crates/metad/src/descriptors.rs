//! What becomes of the descriptors that the process may have: a store that finds none for its files fails, and so connections
//! must leave it some.

use net::places;

/// Of a shard: the files that its store keeps open (`open_files_max`) and its logs, its event loops and its listeners.
const OF_SHARD: usize = 512 + 64;

/// How many connections may come in to all of so many shards together.
pub(crate) fn for_connections(shards: usize) -> usize {
    let Ok(allowed) = places::descriptors() else { return usize::MAX };
    places::for_connections(allowed, own(allowed, shards))
}

/// Those of the shards: a quarter of what the stores leave is for what they ask themselves.
fn own(allowed: usize, shards: usize) -> usize {
    let stores = shards * OF_SHARD;
    stores + allowed.saturating_sub(stores) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_stores_their_descriptors() {
        for (allowed, shards) in [(1024, 1), (4096, 1), (4096, 6), (1 << 18, 8), (1 << 18, 64), (usize::MAX, 1)] {
            let connections = places::for_connections(allowed, own(allowed, shards));
            assert!(connections <= allowed - shards * OF_SHARD, "{connections} of {allowed} for {shards}");
            assert!(connections >= allowed / 8);
        }
    }
}
