//! What becomes of the descriptors that the process may have: a store that finds none for its files fails, and so connections
//! must leave it some.

use net::places;

use crate::config::OPEN_FILES_MIN;

/// Of a shard beside the files that its store keeps open: its logs, its event loops and its listeners.
const BESIDE: usize = 64;
/// What each store may keep open where nothing is configured: opening one costs more than to read from it, and each that is
/// open some kilobytes of memory.
const FILES_MIN: usize = 512;
const FILES_MAX: usize = 4096;

/// Files that the store of each of so many shards may keep open. `configured`: 0 where that is to be chosen here. More than the
/// process may have is not taken, with a warning.
pub(crate) fn for_store(configured: u16, shards: usize) -> u16 {
    let Ok(allowed) = places::descriptors() else {
        return if configured == 0 { FILES_MIN as u16 } else { configured };
    };
    let most = most(allowed, shards) as u16;
    if configured > most {
        let files = most;
        tracing::warn!(
            configured,
            files,
            "open_files: the process may not have so many (LimitNOFILE): keeps fewer open"
        );
    }
    if configured == 0 { chosen(allowed, shards) } else { configured.min(most) }
}

/// A quarter of the descriptors is for all stores together, or up to half of few.
fn chosen(allowed: usize, shards: usize) -> u16 {
    let most = most(allowed, shards);
    (allowed / 4 / shards.max(1)).max(FILES_MIN.min(most)).min(FILES_MAX) as u16
}

/// So many may each store have that all of them, and what shards have beside, take half of the descriptors.
fn most(allowed: usize, shards: usize) -> usize {
    let each = (allowed / 2 / shards.max(1)).saturating_sub(BESIDE);
    each.clamp(OPEN_FILES_MIN.into(), u16::MAX.into())
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
        for (allowed, shards) in
            [(1024, 1), (1024, 5), (4096, 1), (4096, 8), (4096, 20), (1 << 18, 8), (1 << 18, 64), (usize::MAX, 1)]
        {
            let stores = shards * (usize::from(chosen(allowed, shards)) + BESIDE);
            let connections = places::for_connections(allowed, own(allowed, stores));
            assert!(connections <= allowed - stores, "{connections} of {allowed} for {shards}");
            assert!(connections >= allowed / 8);
        }
    }

    #[test]
    fn stores_share_a_quarter_of_the_descriptors_or_half_of_few() {
        let files = [(1024, 1), (4096, 8), (4096, 64), (8192, 1), (1 << 18, 1), (1 << 18, 64)];
        assert_eq!(files.map(|(all, shards)| chosen(all, shards)), [448, 192, 32, 2048, 4096, 1024]);
        assert_eq!([(1024, 1), (1 << 18, 1)].map(|(all, shards)| most(all, shards)), [448, 65535]);
        assert_eq!(for_store(32, 1), 32, "as it is configured");
    }
}
