//! What becomes of the descriptors that the process may have: a store that finds none for its files fails, and so connections
//! must leave it some.

use net::places;

/// Of a shard beside the files that its store keeps open: its logs, its event loops and its listeners.
const BESIDE: usize = 64;
/// What each store may keep open where nothing is configured: opening one costs more than to read from it, and each that is
/// open some kilobytes of memory.
const FILES_MIN: usize = 512;
const FILES_MAX: usize = 4096;

/// Files that the store of each of so many shards may keep open. `configured`: 0 where that is to be chosen here.
pub(crate) fn for_store(configured: u16, shards: usize) -> u16 {
    match configured {
        0 => chosen(places::descriptors().unwrap_or(0), shards),
        configured => configured,
    }
}

/// A quarter of the descriptors is for all stores together.
fn chosen(allowed: usize, shards: usize) -> u16 {
    (allowed / 4 / shards.max(1)).clamp(FILES_MIN, FILES_MAX) as u16
}

/// How many connections may come in to all shards together. `stores`: the files that the store of each may keep open.
pub(crate) fn for_connections(stores: impl IntoIterator<Item = u16>) -> usize {
    let Ok(allowed) = places::descriptors() else { return usize::MAX };
    let stores = stores.into_iter().map(|files| usize::from(files) + BESIDE).sum();
    places::for_connections(allowed, own(allowed, stores))
}

/// Those of the shards: a quarter of what the stores leave is for what they ask themselves.
fn own(allowed: usize, stores: usize) -> usize {
    stores + allowed.saturating_sub(stores) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_stores_their_descriptors() {
        for (allowed, shards) in [(1024, 1), (4096, 1), (4096, 6), (1 << 18, 8), (1 << 18, 64), (usize::MAX, 1)] {
            let stores = shards * (usize::from(chosen(allowed, shards)) + BESIDE);
            let connections = places::for_connections(allowed, own(allowed, stores));
            assert!(connections <= allowed - stores, "{connections} of {allowed} for {shards}");
            assert!(connections >= allowed / 8);
        }
    }

    #[test]
    fn stores_share_a_quarter_of_the_descriptors() {
        let files =
            [(0, 1), (1024, 1), (8192, 1), (1 << 18, 1), (1 << 18, 64)].map(|(all, shards)| chosen(all, shards));
        assert_eq!(files, [512, 512, 2048, 4096, 1024]);
        assert_eq!(for_store(100, 64), 100, "as it is configured");
    }
}
