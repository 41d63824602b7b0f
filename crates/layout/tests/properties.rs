//! The arithmetic against its definition, byte by byte and at random.

use layout::{FILE_SIZE_MAX, extents, file_offset, file_size, last_stripe, logical_end, object_size};
use proptest::prelude::*;
use types::id::GroupId;
use types::layout::Layout;

fn layouts() -> impl Strategy<Value = Layout> {
    (12u32..=26, 1u32..=256).prop_map(|(shift, stripes)| Layout {
        chunk_size: 1 << shift,
        groups: (0..stripes).map(|stripe| GroupId(stripe * 7 + 1)).collect(),
    })
}

/// The definition: chunk `n` is chunk `n / stripes` of object `n % stripes`.
fn place(layout: &Layout, byte: u64) -> (u32, u64) {
    let (chunk, stripes) = (u64::from(layout.chunk_size), layout.groups.len() as u64);
    let n = byte / chunk;
    ((n % stripes) as u32, n / stripes * chunk + byte % chunk)
}

proptest! {
    #[test]
    fn extents_cover_the_range_exactly(
        layout in layouts(), offset in 0..FILE_SIZE_MAX, chunks in 0u64..40, odd in 0u64..5000
    ) {
        let len = chunks * u64::from(layout.chunk_size) + odd;
        let iterator = extents(&layout, offset, len);
        let promised = iterator.len();
        let all: Vec<_> = iterator.collect();
        prop_assert_eq!(promised, all.len());
        let mut at = offset;
        for extent in all {
            prop_assert_eq!(extent.file_offset, at);
            prop_assert!(extent.len > 0 && extent.len <= layout.chunk_size);
            prop_assert_eq!(extent.group, layout.groups[extent.stripe as usize]);
            let last = u64::from(extent.len) - 1;
            prop_assert_eq!((extent.stripe, extent.object_offset), place(&layout, at));
            prop_assert_eq!((extent.stripe, extent.object_offset + last), place(&layout, at + last));
            at += u64::from(extent.len);
        }
        prop_assert_eq!(at, offset + len);
    }

    #[test]
    fn sizes_invert_each_other(layout in layouts(), size in prop_oneof![0..=FILE_SIZE_MAX, 0u64..1 << 32]) {
        let stripes = layout.groups.len() as u32;
        let sizes: Vec<u64> = (0..stripes).map(|stripe| object_size(&layout, stripe, size)).collect();
        prop_assert_eq!(sizes.iter().sum::<u64>(), size);
        prop_assert_eq!(file_size(&layout, sizes.iter().copied()), size);
        if let Some(last) = last_stripe(&layout, size) {
            prop_assert_eq!(logical_end(&layout, last, sizes[last as usize]), size);
            prop_assert_eq!(last, place(&layout, size - 1).0);
        } else {
            prop_assert_eq!(size, 0);
        }
    }

    #[test]
    fn file_offset_inverts_placement(layout in layouts(), byte in 0..FILE_SIZE_MAX) {
        let (stripe, object_offset) = place(&layout, byte);
        prop_assert_eq!(file_offset(&layout, stripe, object_offset), byte);
    }

    /// A write anywhere gives objects whose sizes tell the file's new size, whatever holes it leaves.
    #[test]
    fn the_largest_end_wins(layout in layouts(), old in 0u64..1 << 40, offset in 0u64..1 << 40, len in 1u64..1 << 22) {
        let stripes = layout.groups.len() as u32;
        let mut sizes: Vec<u64> = (0..stripes).map(|stripe| object_size(&layout, stripe, old)).collect();
        for extent in extents(&layout, offset, len) {
            let size = &mut sizes[extent.stripe as usize];
            *size = (*size).max(extent.object_offset + u64::from(extent.len));
        }
        prop_assert_eq!(file_size(&layout, sizes), old.max(offset + len));
    }
}
