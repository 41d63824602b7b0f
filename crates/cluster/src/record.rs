//! What is persisted: one record per thing, JSON values under byte keys.
//!
//! | key | value |
//! |---|---|
//! | `c` | format and cluster UUID |
//! | `e` | epoch |
//! | `i` | the next id of each kind, and those that were skipped or whose group was deleted |
//! | `n` node | node |
//! | `t` target | target |
//! | `g` group | group |
//! | `p` pool | pool |
//! | `s` shard | its group |
//! | `x` target | its state was set: by an administrator (`null`), or for a deletion (its session) |

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use types::id::{GroupId, NodeId, PoolId, ShardId, TargetId};

use crate::skipped::Skipped;

/// Version of the records that this release writes.
pub(crate) const FORMAT: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Cluster,
    Epoch,
    Next,
    Node(NodeId),
    Target(TargetId),
    Group(GroupId),
    Pool(PoolId),
    Shard(ShardId),
    Pinned(TargetId),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ClusterRecord {
    pub(crate) format: u32,
    pub(crate) cluster: String,
}

/// The next id of each kind: none is ever given out twice.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct NextIds {
    pub(crate) node: u32,
    pub(crate) target: u32,
    pub(crate) group: u32,
    pub(crate) pool: u32,
    pub(crate) session: u64,
    /// Of a shard. Wider than shards' numbers: they may be used up.
    pub(crate) shard: u32,
    /// Ids below `node` and `target` that an older store skipped, since others have them.
    pub(crate) skipped_nodes: Skipped,
    pub(crate) skipped_targets: Skipped,
    /// Sessions were skipped, too, since this store was found to be old.
    pub(crate) skipped_sessions: bool,
    pub(crate) deleted_groups: BTreeSet<GroupId>,
}

impl NextIds {
    /// Of a new cluster.
    pub(crate) fn first() -> Self {
        Self {
            node: 1,
            target: 1,
            group: 1,
            pool: PoolId::DEFAULT.0 + 1,
            session: 1,
            shard: 0,
            skipped_nodes: Skipped::default(),
            skipped_targets: Skipped::default(),
            skipped_sessions: false,
            deleted_groups: BTreeSet::new(),
        }
    }
}

impl Key {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let with = |tag: u8, id: &[u8]| [&[tag], id].concat();
        match self {
            Self::Cluster => vec![b'c'],
            Self::Epoch => vec![b'e'],
            Self::Next => vec![b'i'],
            Self::Node(id) => with(b'n', &id.0.to_be_bytes()),
            Self::Target(id) => with(b't', &id.0.to_be_bytes()),
            Self::Group(id) => with(b'g', &id.0.to_be_bytes()),
            Self::Pool(id) => with(b'p', &id.0.to_be_bytes()),
            Self::Shard(id) => with(b's', &id.0.to_be_bytes()),
            Self::Pinned(id) => with(b'x', &id.0.to_be_bytes()),
        }
    }

    /// `None` for bytes that no key has.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (&tag, id) = bytes.split_first()?;
        let wide = || Some(u32::from_be_bytes(id.try_into().ok()?));
        match tag {
            b'c' if id.is_empty() => Some(Self::Cluster),
            b'e' if id.is_empty() => Some(Self::Epoch),
            b'i' if id.is_empty() => Some(Self::Next),
            b'n' => wide().map(|id| Self::Node(NodeId(id))),
            b't' => wide().map(|id| Self::Target(TargetId(id))),
            b'g' => wide().map(|id| Self::Group(GroupId(id))),
            b'p' => wide().map(|id| Self::Pool(PoolId(id))),
            b's' => Some(Self::Shard(ShardId(u16::from_be_bytes(id.try_into().ok()?)))),
            b'x' => wide().map(|id| Self::Pinned(TargetId(id))),
            _ => None,
        }
    }

    /// A change to it is a change of the map.
    pub(crate) fn in_map(self) -> bool {
        match self {
            Self::Epoch | Self::Node(_) | Self::Target(_) | Self::Group(_) | Self::Pool(_) | Self::Shard(_) => true,
            Self::Cluster | Self::Next | Self::Pinned(_) => false,
        }
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("plain values always encode")
}

pub(crate) fn decode<T: for<'de> Deserialize<'de>>(key: Key, value: &[u8]) -> Result<T, Damaged> {
    serde_json::from_slice(value).map_err(|error| Damaged(format!("record {key:?}: {error}")))
}

/// The persisted records contradict themselves.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the management store is damaged: {0}")]
pub struct Damaged(pub(crate) String);

#[cfg(test)]
mod tests {
    use types::id::SessionId;

    use super::*;

    #[test]
    fn keys_survive_their_bytes_and_sort_by_id() {
        let keys = [
            Key::Cluster,
            Key::Epoch,
            Key::Next,
            Key::Node(NodeId(7)),
            Key::Target(TargetId(0x0102_0304)),
            Key::Group(GroupId(1)),
            Key::Pool(PoolId(2)),
            Key::Shard(ShardId(300)),
            Key::Pinned(TargetId(9)),
        ];
        for key in keys {
            assert_eq!(Key::parse(&key.bytes()), Some(key));
        }
        assert!(Key::Node(NodeId(255)).bytes() < Key::Node(NodeId(256)).bytes());
        for bad in [&b""[..], b"n", b"n12345", b"cx", b"z1234", b"s1"] {
            assert_eq!(Key::parse(bad), None);
        }
        let key = Key::Pinned(TargetId(9));
        for (pin, bytes) in [(None, &b"null"[..]), (Some(SessionId(7)), b"7")] {
            assert_eq!((encode(&pin), decode(key, bytes)), (bytes.to_vec(), Ok(pin)));
        }
        assert_eq!(Key::Shard(ShardId(300)).bytes(), b"s\x01\x2c", "the bytes are on disks: they may never change");
    }
}
