//! Striping arithmetic, used alike by clients and servers, so that all sides always agree where a byte lies.
//!
//! Chunk `n` of a file is chunk `n / stripes` of object `n % stripes` (RAID 0). Pure: no I/O, no allocation, no
//! overflow for files up to [`FILE_SIZE_MAX`]. What these functions answer is frozen by `tests/golden.rs`: data on disk
//! depends on it.

mod extents;
mod size;

pub use extents::{Extent, Extents, extents};
pub use size::{file_offset, file_size, last_stripe, logical_end, object_size};

use types::error::Errno;
use types::layout::{CHUNK_SIZE_MAX, CHUNK_SIZE_MIN, Layout, STRIPE_COUNT_MAX};

/// Largest file, in bytes. Far above what local file systems can hold, far below where 64-bit sums overflow.
pub const FILE_SIZE_MAX: u64 = 1 << 62;

/// Whether a layout that came from outside is one that this crate's functions may be given.
///
/// # Errors
/// `EINVAL` where the chunk size is no power of two in range, or there are no groups or too many.
pub fn validate(layout: &Layout) -> Result<(), Errno> {
    let chunk_ok =
        layout.chunk_size.is_power_of_two() && (CHUNK_SIZE_MIN..=CHUNK_SIZE_MAX).contains(&layout.chunk_size);
    let count_ok = (1..=usize::from(STRIPE_COUNT_MAX)).contains(&layout.groups.len());
    if chunk_ok && count_ok { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The two numbers of a layout that arithmetic needs.
///
/// # Panics
/// If the layout has no groups or a chunk size that is no power of two: callers check with [`validate`] what comes
/// from outside.
#[derive(Clone, Copy)]
pub(crate) struct Geometry {
    pub(crate) chunk: u64,
    pub(crate) shift: u32,
    pub(crate) stripes: u64,
}

impl Geometry {
    pub(crate) fn of(layout: &Layout) -> Self {
        assert!(layout.chunk_size.is_power_of_two(), "chunk size is a power of two");
        assert!(!layout.groups.is_empty(), "a layout has at least one group");
        Self {
            chunk: u64::from(layout.chunk_size),
            shift: layout.chunk_size.trailing_zeros(),
            stripes: layout.groups.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::id::GroupId;

    #[test]
    fn refuses_layouts_that_cannot_be() {
        let layout = |chunk_size, groups: usize| Layout { chunk_size, groups: vec![GroupId(1); groups] };
        assert_eq!(validate(&layout(512 << 10, 4)), Ok(()));
        assert_eq!(validate(&layout(CHUNK_SIZE_MAX, 256)), Ok(()));
        for bad in
            [layout(0, 1), layout(2048, 1), layout(5000, 1), layout(128 << 20, 1), layout(4096, 0), layout(4096, 257)]
        {
            assert_eq!(validate(&bad), Err(Errno::EINVAL), "{} x {}", bad.chunk_size, bad.groups.len());
        }
    }
}
