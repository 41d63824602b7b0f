//! Frozen answers: data on disk was placed by them. They may never change.

use layout::{Extent, extents, file_offset, file_size, last_stripe, logical_end, object_size};
use types::id::GroupId;
use types::layout::Layout;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

fn four() -> Layout {
    Layout { chunk_size: 512 << 10, groups: vec![GroupId(11), GroupId(12), GroupId(13), GroupId(14)] }
}

fn three_small() -> Layout {
    Layout { chunk_size: 4096, groups: vec![GroupId(7), GroupId(5), GroupId(9)] }
}

fn tuples(layout: &Layout, offset: u64, len: u64) -> Vec<(u32, u32, u64, u64, u32)> {
    extents(layout, offset, len).map(|e| (e.stripe, e.group.0, e.object_offset, e.file_offset, e.len)).collect()
}

#[test]
fn ranges_lie_where_they_always_lay() {
    assert_eq!(tuples(&four(), 0, 0), []);
    assert_eq!(tuples(&four(), 0, M), [(0, 11, 0, 0, 512 << 10), (1, 12, 0, 512 * K, 512 << 10)]);
    // An unaligned range over the row's end.
    assert_eq!(
        tuples(&four(), 2 * M - 10, 512 * K + 20),
        [
            (3, 14, 512 * K - 10, 2 * M - 10, 10),
            (0, 11, 512 * K, 2 * M, 512 << 10),
            (1, 12, 512 * K, 2 * M + 512 * K, 10),
        ]
    );
    assert_eq!(tuples(&three_small(), 40_000, 5000), [(0, 7, 15_424, 40_000, 960), (1, 5, 12_288, 40_960, 4040)]);
    // One group: every chunk still is an extent of its own.
    let one = Layout { chunk_size: 4096, groups: vec![GroupId(3)] };
    assert_eq!(tuples(&one, 4000, 200), [(0, 3, 4000, 4000, 96), (0, 3, 4096, 4096, 104)]);
}

#[test]
fn huge_files_do_not_overflow() {
    let end = layout::FILE_SIZE_MAX;
    assert_eq!(
        extents(&four(), end - 1, 2).collect::<Vec<_>>(),
        [
            Extent { stripe: 3, group: GroupId(14), object_offset: end / 4 - 1, file_offset: end - 1, len: 1 },
            Extent { stripe: 0, group: GroupId(11), object_offset: end / 4, file_offset: end, len: 1 },
        ]
    );
    assert_eq!(object_size(&four(), 3, end), end / 4);
    assert_eq!(logical_end(&four(), 3, end / 4), end);
    // What no honest server says is answered without overflow.
    assert_eq!(file_size(&four(), [u64::MAX; 4]), u64::MAX);
    assert_eq!(extents(&four(), u64::MAX - 1, u64::MAX).map(|e| u64::from(e.len)).sum::<u64>(), 1);
}

#[test]
fn sizes_are_what_they_always_were() {
    let sizes = |layout: &Layout, size| {
        (0..layout.groups.len() as u32).map(|s| object_size(layout, s, size)).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&four(), 0), [0, 0, 0, 0]);
    assert_eq!(sizes(&four(), 1), [1, 0, 0, 0]);
    assert_eq!(sizes(&four(), M), [512 * K, 512 * K, 0, 0]);
    assert_eq!(sizes(&four(), 2 * M + 5), [512 * K + 5, 512 * K, 512 * K, 512 * K]);
    assert_eq!(sizes(&three_small(), 12_288 * 10 + 4097), [45_056, 40_961, 40_960]);
    assert_eq!(file_size(&three_small(), [45_056, 40_961, 40_960]), 12_288 * 10 + 4097);
    // A hole before the only object that has data.
    assert_eq!(file_size(&four(), [0, 0, 7, 0]), M + 7);
    assert_eq!(file_size(&four(), [0, 0, 0, 0]), 0);
    assert_eq!(file_offset(&four(), 2, 512 * K), 2 * M + M);
    assert_eq!(last_stripe(&four(), 0), None);
    assert_eq!(last_stripe(&four(), 512 * K), Some(0));
    assert_eq!(last_stripe(&four(), 512 * K + 1), Some(1));
}
