//! Newtypes for every id. An id is never reused, so a stale one can be refused but never mistaken.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $repr);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                s.parse().map(Self)
            }
        }
    };
}

id!(
    /// One running service instance (mgmtd, metad or storaged), stable across restarts. From 1.
    NodeId(u32)
);
id!(
    /// One unit of storage owned by a node. From 1; metadata and storage targets share the number space.
    TargetId(u32)
);
id!(
    /// An ordered list of targets that hold the same data. From 1. Everything addresses groups, never targets.
    GroupId(u32)
);
id!(
    /// A metadata group's state machine: the high 16 bits of the inode ids that it owns. From 0; root lives in 0.
    ShardId(u16)
);
id!(
    /// A client's registered presence. From 1; 0 means "no session".
    SessionId(u64)
);
id!(
    /// A named set of storage groups. Pool 1 is `default`.
    PoolId(u32)
);
id!(
    /// Version of the cluster map; raised by one at every change.
    Epoch(u64)
);
id!(
    /// Version of one group: raised at every change of its members or their states. A request that carries an
    /// older one is refused.
    Generation(u64)
);

impl PoolId {
    pub const DEFAULT: PoolId = PoolId(1);
}

/// An inode's number: high 16 bits the home shard, low 48 a counter. Never reused, so no generation is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InodeId(pub u64);

impl InodeId {
    pub const ROOT: InodeId = InodeId(1);
    /// The first counter value that a shard hands out; those below are reserved (0 = none, 1 = root).
    pub const FIRST_COUNTER: u64 = 16;

    /// # Panics
    /// If `counter` needs more than 48 bits (281 tera inodes made by one shard).
    #[must_use]
    pub fn new(shard: ShardId, counter: u64) -> Self {
        assert!(counter < 1 << 48, "inode counter exhausted");
        Self((u64::from(shard.0) << 48) | counter)
    }

    /// The shard where this inode was created and where it stays.
    #[must_use]
    pub fn home(self) -> ShardId {
        ShardId((self.0 >> 48) as u16)
    }

    #[must_use]
    pub fn counter(self) -> u64 {
        self.0 & ((1 << 48) - 1)
    }
}

/// One operation over several shards: high 16 bits the shard that coordinates it, low 48 from that shard's counter of
/// inode ids, so none is ever given out twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// The shard that decides.
    #[must_use]
    pub fn coordinator(self) -> ShardId {
        InodeId(self.0).home()
    }
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Debug for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InodeId({:x})", self.0)
    }
}

/// The part of one file that lives on one group: object `stripe` of inode `inode`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId {
    pub inode: InodeId,
    pub stripe: u32,
}

impl ObjectId {
    /// A well-mixed hash, the same on every machine and release: it chooses lanes and folders.
    /// Finaliser of `MurmurHash3` (Appleby, public domain constants).
    #[must_use]
    pub fn hash64(self) -> u64 {
        let mut h = self.inode.0 ^ (u64::from(self.stripe).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        h ^= h >> 33;
        h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^= h >> 33;
        h = h.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        h ^ (h >> 33)
    }

    /// Which of `lanes` lanes owns this object.
    #[must_use]
    pub fn lane(self, lanes: usize) -> usize {
        assert!(lanes > 0, "a target has at least one lane");
        (self.hash64() % lanes as u64) as usize
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.inode, self.stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inode_id_splits_into_home_and_counter() {
        let id = InodeId::new(ShardId(7), 99);
        assert_eq!((id.home(), id.counter()), (ShardId(7), 99));
        assert_eq!(InodeId::ROOT.home(), ShardId(0));
    }

    #[test]
    fn object_hash_is_frozen() {
        // On-disk folders and lane routing depend on these values: they may never change.
        let object = ObjectId { inode: InodeId(0x0001_0000_0000_0010), stripe: 3 };
        assert_eq!(object.hash64(), ObjectId { inode: InodeId(0x0001_0000_0000_0010), stripe: 3 }.hash64());
        assert_eq!(ObjectId { inode: InodeId(1), stripe: 0 }.hash64(), 0xb456_bcfc_34c2_cb2c);
    }
}
