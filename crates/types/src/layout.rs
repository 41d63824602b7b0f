//! How a file's bytes map to groups: the value. The arithmetic is crate `layout`.

use serde::{Deserialize, Serialize};

use crate::error::Errno;
use crate::id::{GroupId, PoolId};
use crate::placement::Placement;

/// Smallest and largest chunk, in bytes; a chunk is a power of two.
pub const CHUNK_SIZE_MIN: u32 = 4 << 10;
pub const CHUNK_SIZE_MAX: u32 = 64 << 20;
pub const CHUNK_SIZE_DEFAULT: u32 = 512 << 10;
/// Most groups that one file is striped over.
pub const STRIPE_COUNT_MAX: u16 = 256;
pub const STRIPE_COUNT_DEFAULT: u16 = 4;
/// Largest file, in bytes, that any directory may want in the metadata; and what a new cluster's root wants.
pub const INLINE_MAX: u32 = 64 << 10;
pub const INLINE_DEFAULT: u32 = 4 << 10;

/// Striping of one file: chunk `n` of the file is chunk `n / groups.len()` of object `n % groups.len()`, which lives
/// on `groups[n % groups.len()]` (RAID 0).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Layout {
    /// Bytes; a power of two in `CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX`.
    pub chunk_size: u32,
    /// One per stripe, 1 to `STRIPE_COUNT_MAX`.
    pub groups: Vec<GroupId>,
}

/// What a directory gives to files and directories made in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LayoutPolicy {
    pub chunk_size: u32,
    /// Desired number of stripes; a file gets fewer where the pool has fewer groups.
    pub stripe_count: u16,
    pub pool: PoolId,
    /// Which shard a directory made in it goes to.
    pub directories: Placement,
    /// New files have their contents in the metadata until they pass so many bytes; 0: never. At most `INLINE_MAX`.
    pub inline_limit: u32,
}

impl Default for LayoutPolicy {
    fn default() -> Self {
        Self {
            chunk_size: CHUNK_SIZE_DEFAULT,
            stripe_count: STRIPE_COUNT_DEFAULT,
            pool: PoolId::DEFAULT,
            directories: Placement::Random,
            inline_limit: INLINE_DEFAULT,
        }
    }
}

impl LayoutPolicy {
    /// # Errors
    /// `EINVAL` where the chunk size is no power of two in range, or the stripe count or the inline limit out of range.
    pub fn validate(&self) -> Result<(), Errno> {
        let chunk_ok =
            self.chunk_size.is_power_of_two() && (CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&self.chunk_size);
        let count_ok = (1..=STRIPE_COUNT_MAX).contains(&self.stripe_count);
        let inline_ok = self.inline_limit <= INLINE_MAX;
        if chunk_ok && count_ok && inline_ok { Ok(()) } else { Err(Errno::EINVAL) }
    }
}
