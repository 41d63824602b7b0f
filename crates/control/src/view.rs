//! What a service or client knows of the cluster.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cluster::capacity::{Capacities, Capacity};
use cluster::difference::Difference;
use cluster::map::ClusterMap;
use prost::bytes::Bytes;
use serde::Serialize;
use types::id::{Epoch, TargetId};

use crate::proto;

/// Version of the encoding of the map that this release writes.
const FORMAT: u32 = 1;

/// One moment's knowledge of the cluster; cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    pub map: Arc<ClusterMap>,
    /// Free space by target, at most a few seconds old; empty for who does not want to know.
    pub capacities: Arc<Capacities>,
    encoded: Encoded,
}

/// The map as it goes out: made once for all who hear of it. Says nothing that the map does not.
#[derive(Clone, Debug, Default)]
struct Encoded(Arc<Encodings>);

#[derive(Debug, Default)]
struct Encodings {
    whole: OnceLock<Bytes>,
    check: OnceLock<u64>,
    /// What differs from earlier maps, by their epochs: nearly all who watch know the same one.
    changes: Mutex<BTreeMap<Epoch, Bytes>>,
}

/// Why an update changes nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadUpdate {
    /// It comes from a newer release, or is damaged.
    #[error("{0}")]
    Incomprehensible(String),
    /// It tells changes of another map than the one that is known, or comes to another one than it says: ask for the whole.
    #[error("its changes do not fit the map that is known here")]
    Misfit,
}

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
        proto::ViewUpdate { format: FORMAT, map, capacities, ..proto::ViewUpdate::default() }
    }

    /// As [`View::to_update_since`], with what differs alone in place of the map, where that is less. `known` is an earlier
    /// view of the same mgmtd: of what it has under one epoch there is one map.
    #[must_use]
    pub fn to_changes_since(&self, known: &View) -> proto::ViewUpdate {
        if known.map.epoch == Epoch(0) || self.map.epoch == known.map.epoch {
            return self.to_update_since(known);
        }
        let changes = self.changes_since(&known.map);
        if changes.len() >= self.encoded().len() {
            return self.to_update_since(known);
        }
        let only_space = View { map: Arc::clone(&known.map), ..self.clone() };
        proto::ViewUpdate { changes, check: self.check(), ..only_space.to_update_since(known) }
    }

    /// What tells this map from others of its epoch, and the changes that come to it from those that do not.
    #[must_use]
    pub fn check(&self) -> u64 {
        *self.encoded.0.check.get_or_init(|| {
            let mut check = Fnv::default();
            let mut json = serde_json::Serializer::new(&mut check);
            self.map.serialize(&mut json).expect("plain values always encode");
            check.0
        })
    }

    /// Takes an update in. An older map than the one that is known is passed over. Says whether anything has changed.
    ///
    /// # Errors
    /// See [`BadUpdate`]; nothing has changed then.
    pub fn update(&mut self, update: &proto::ViewUpdate) -> Result<bool, BadUpdate> {
        if update.format > FORMAT {
            let text = format!("a map of format {}: upgrade this side", update.format);
            return Err(BadUpdate::Incomprehensible(text));
        }
        let unreadable = |error| BadUpdate::Incomprehensible(format!("a bad map: {error}"));
        let before = self.clone();
        if !update.map.is_empty() {
            let map: ClusterMap = serde_json::from_slice(&update.map).map_err(unreadable)?;
            if map.epoch > self.map.epoch {
                *self = Self::new(map, Arc::clone(&self.capacities));
            }
        } else if !update.changes.is_empty() {
            let difference: Difference = serde_json::from_slice(&update.changes).map_err(unreadable)?;
            if difference.epoch > self.map.epoch {
                let map = difference.apply(&self.map).ok_or(BadUpdate::Misfit)?;
                let after = Self::new(map, Arc::clone(&self.capacities));
                if after.check() != update.check {
                    return Err(BadUpdate::Misfit);
                }
                *self = after;
            }
        }
        if !update.capacities.is_empty() {
            self.capacities = Arc::new(update.capacities.iter().map(capacity).collect());
        }
        Ok(*self != before)
    }

    fn encoded(&self) -> Bytes {
        let encode = || serde_json::to_vec(&*self.map).expect("plain values always encode").into();
        self.encoded.0.whole.get_or_init(encode).clone()
    }

    fn changes_since(&self, known: &ClusterMap) -> Bytes {
        // Each change is one insertion, so a panic elsewhere leaves it whole.
        let mut changes = self.encoded.0.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let encode = || serde_json::to_vec(&Difference::between(known, &self.map)).expect("plain values always encode");
        changes.entry(known.epoch).or_insert_with(|| encode().into()).clone()
    }
}

/// FNV-1a, 64 bits, of what is written to it: against mistakes, and stores that were restored; not against anybody's will.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl io::Write for Fnv {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = bytes.iter().fold(self.0, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    use cluster::map::{Node, NodeState, Rail, ServiceKind};
    use prost::Message;
    use types::id::NodeId;

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

    /// 500 nodes: what differs is much less than all of it.
    fn large(epoch: u64, offline: &[u32]) -> View {
        let mut map = ClusterMap::empty("c".into());
        map.epoch = Epoch(epoch);
        map.nodes = (1..500).map(|id| (NodeId(id), node(id, !offline.contains(&id)))).collect();
        View::new(map, Arc::default())
    }

    fn node(id: u32, online: bool) -> Node {
        Node {
            id: NodeId(id),
            uuid: format!("00000000-0000-4000-8000-{id:012}"),
            kind: ServiceKind::Storage,
            alias: format!("storage-{id}"),
            state: if online { NodeState::Online } else { NodeState::Offline },
            rails: vec![Rail { interface: "eth0".into(), address: [10, 0, 0, 1].into() }],
            metrics: String::new(),
        }
    }

    #[test]
    fn a_change_of_a_large_map_is_a_small_update() {
        let mut known = View::default();
        assert_eq!(known.update(&large(1, &[]).to_changes_since(&known)), Ok(true));
        for (epoch, offline) in [(2, &[7][..]), (3, &[7, 9]), (9, &[])] {
            let next = large(epoch, offline);
            let update = next.to_changes_since(&known);
            assert!(update.map.is_empty() && update.encoded_len() < 1024, "{} bytes", update.encoded_len());
            assert_eq!((known.update(&update), known.update(&update)), (Ok(true), Ok(false)));
            assert_eq!(known, next);
        }
        let same = known.to_changes_since(&known);
        assert!(same.map.is_empty() && same.changes.is_empty());
    }

    #[test]
    fn changes_of_another_map_are_refused() {
        let (first, second) = (large(1, &[]), large(2, &[7]));
        let changes = second.to_changes_since(&first);
        for strange in [large(0, &[]), large(1, &[8])] {
            let mut known = strange.clone();
            assert_eq!(known.update(&changes), Err(BadUpdate::Misfit));
            assert_eq!(known, strange);
        }
        let mut newer = large(3, &[]);
        assert_eq!(newer.update(&changes), Ok(false), "an old map is passed over");
        assert!(first.check() != large(1, &[8]).check() && first.check() == large(1, &[]).check());
    }

    #[test]
    fn the_check_is_that_of_the_whole() {
        let view = view(1, 50);
        let mut whole = Fnv::default();
        io::Write::write_all(&mut whole, &view.to_update().map).expect("it takes all");
        assert_eq!(whole.0, view.check());
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
