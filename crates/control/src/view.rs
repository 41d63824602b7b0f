//! What a service or client knows of the cluster.

use std::sync::{Arc, OnceLock};

use cluster::capacity::{Capacities, Capacity};
use cluster::map::ClusterMap;
use prost::bytes::Bytes;
use types::id::TargetId;

use crate::proto;

/// Version of the encoding of the map that this release writes.
const FORMAT: u32 = 1;

/// One moment's knowledge of the cluster; cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    pub map: Arc<ClusterMap>,
    /// Free space by target, at most a few seconds old.
    pub capacities: Arc<Capacities>,
    encoded: Encoded,
}

/// The map as it goes out: made once for all who hear of it. Says nothing that the map does not.
#[derive(Clone, Debug, Default)]
struct Encoded(Arc<OnceLock<Bytes>>);

impl PartialEq for Encoded {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Encoded {}

impl Default for View {
    fn default() -> Self {
        Self::new(ClusterMap::empty(String::new()), Arc::default())
    }
}

impl View {
    #[must_use]
    pub fn new(map: ClusterMap, capacities: Arc<Capacities>) -> Self {
        Self { map: Arc::new(map), capacities, encoded: Encoded::default() }
    }

    /// The update that tells all of it.
    #[must_use]
    pub fn to_update(&self) -> proto::ViewUpdate {
        self.to_update_since(&View::default())
    }

    /// The update that brings one who knows `known` here.
    #[must_use]
    pub fn to_update_since(&self, known: &View) -> proto::ViewUpdate {
        let map = if self.map.epoch == known.map.epoch { Bytes::new() } else { self.encoded() };
        let capacities = if self.capacities == known.capacities { Vec::new() } else { capacities(&self.capacities) };
        proto::ViewUpdate { format: FORMAT, map, capacities }
    }

    /// Takes an update in. An older map than the one that is known is passed over. Says whether anything has changed.
    ///
    /// # Errors
    /// Where the update comes from a newer release or is damaged; nothing has changed then.
    pub fn update(&mut self, update: &proto::ViewUpdate) -> Result<bool, String> {
        if update.format > FORMAT {
            return Err(format!("a map of format {}: upgrade this side", update.format));
        }
        let before = self.clone();
        if !update.map.is_empty() {
            let map: ClusterMap = serde_json::from_slice(&update.map).map_err(|error| format!("a bad map: {error}"))?;
            if map.epoch > self.map.epoch {
                *self = Self::new(map, Arc::clone(&self.capacities));
            }
        }
        if !update.capacities.is_empty() {
            self.capacities = Arc::new(update.capacities.iter().map(capacity).collect());
        }
        Ok(*self != before)
    }

    fn encoded(&self) -> Bytes {
        let encode = || serde_json::to_vec(&*self.map).expect("plain values always encode").into();
        self.encoded.0.get_or_init(encode).clone()
    }
}

fn capacities(capacities: &Capacities) -> Vec<proto::TargetCapacity> {
    let one = |(target, capacity): (&TargetId, &Capacity)| proto::TargetCapacity {
        target: target.0,
        total_bytes: capacity.total_bytes,
        free_bytes: capacity.free_bytes,
        total_inodes: capacity.total_inodes,
        free_inodes: capacity.free_inodes,
    };
    capacities.iter().map(one).collect()
}

fn capacity(message: &proto::TargetCapacity) -> (TargetId, Capacity) {
    let capacity = Capacity {
        total_bytes: message.total_bytes,
        free_bytes: message.free_bytes,
        total_inodes: message.total_inodes,
        free_inodes: message.free_inodes,
    };
    (TargetId(message.target), capacity)
}

#[cfg(test)]
mod tests {
    use types::id::Epoch;

    use super::*;

    fn view(epoch: u64, free_bytes: u64) -> View {
        let mut map = ClusterMap::empty("c".into());
        map.epoch = Epoch(epoch);
        let capacity = Capacity { total_bytes: 100, free_bytes, total_inodes: 0, free_inodes: 0 };
        View::new(map, Arc::new([(TargetId(1), capacity)].into()))
    }

    #[test]
    fn updates_carry_only_what_has_changed() {
        let mut known = View::default();
        assert_eq!(known.update(&view(1, 50).to_update()), Ok(true));
        assert_eq!(known, view(1, 50));
        let only_space = view(1, 40).to_update_since(&known);
        assert!(only_space.map.is_empty() && !only_space.capacities.is_empty());
        assert_eq!(known.update(&only_space), Ok(true));
        assert_eq!(known.update(&only_space), Ok(false));
        let only_map = view(2, 40).to_update_since(&known);
        assert!(!only_map.map.is_empty() && only_map.capacities.is_empty());
        assert_eq!(known.update(&only_map), Ok(true));
        assert_eq!(known, view(2, 40));
    }

    #[test]
    fn older_maps_newer_formats_and_damage_change_nothing() {
        let mut known = view(5, 1);
        assert_eq!(known.update(&proto::ViewUpdate { capacities: vec![], ..view(4, 1).to_update() }), Ok(false));
        assert!(known.update(&proto::ViewUpdate { format: 99, ..view(6, 1).to_update() }).is_err());
        assert!(known.update(&proto::ViewUpdate { map: b"{"[..].into(), ..view(6, 1).to_update() }).is_err());
        assert_eq!(known, view(5, 1));
    }
}
