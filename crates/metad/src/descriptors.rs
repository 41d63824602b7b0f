//! What becomes of the descriptors that the process may have: a store that finds none for its files fails, and so connections
//! must leave it some.

use net::places;

/// Of a shard: the files that its store keeps open (`open_files_max`) and its logs, its event loops and its listeners.
const OF_SHARD: usize = 512 + 64;
/// Fewer connections are worth a line in the log.
const FEW: usize = 1024;

/// How many connections may come in to all of so many shards together.
pub(crate) fn for_connections(shards: usize) -> usize {
    let Ok(allowed) = places::descriptors() else { return usize::MAX };
    let connections = connections_of(allowed, shards);
    if connections < FEW {
        tracing::warn!(allowed, connections, "few descriptors: raise the limit of open files (ulimit -n, LimitNOFILE)");
    }
    connections
}

/// A quarter of what the stores leave is for what the shards ask themselves.
fn connections_of(allowed: usize, shards: usize) -> usize {
    let rest = allowed.saturating_sub(shards * OF_SHARD);
    (rest - rest / 4).max(allowed / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_stores_their_descriptors() {
        for (allowed, shards) in [(1024, 1), (4096, 1), (4096, 6), (1 << 18, 8), (1 << 18, 64), (usize::MAX, 1)] {
            let connections = connections_of(allowed, shards);
            assert!(connections <= allowed - shards * OF_SHARD, "{connections} of {allowed} for {shards}");
            assert!(connections >= allowed / 8);
        }
        assert_eq!(connections_of(1024, 8), 128, "too few for all: somebody is let in");
    }
}
