//! Sizes of a file and of its objects, each from the other.

use types::layout::Layout;

use crate::Geometry;

/// Bytes that object `stripe` has where the file has `file_size` bytes and was filled or truncated to that end: what a
/// truncate of the file must give this object.
///
/// # Panics
/// If the layout is none that [`crate::validate`] accepts.
#[must_use]
pub fn object_size(layout: &Layout, stripe: u32, file_size: u64) -> u64 {
    let Geometry { chunk, shift, stripes } = Geometry::of(layout);
    let stripe = u64::from(stripe);
    debug_assert!(stripe < stripes, "stripe {stripe} of {stripes}");
    let full_chunks = file_size >> shift;
    let rows = full_chunks / stripes;
    // In the last, incomplete row the objects before the file's end have a whole chunk, and one has what is left.
    let last_row = match (full_chunks % stripes).cmp(&stripe) {
        std::cmp::Ordering::Greater => chunk,
        std::cmp::Ordering::Equal => file_size & (chunk - 1),
        std::cmp::Ordering::Less => 0,
    };
    (rows << shift) + last_row
}

/// Where byte `object_offset` of object `stripe` lies in the file. `u64::MAX` where the file can't be that large.
///
/// # Panics
/// If the layout is none that [`crate::validate`] accepts.
#[must_use]
pub fn file_offset(layout: &Layout, stripe: u32, object_offset: u64) -> u64 {
    let Geometry { chunk, shift, stripes } = Geometry::of(layout);
    let within = object_offset & (chunk - 1);
    (object_offset >> shift)
        .saturating_mul(stripes)
        .saturating_add(u64::from(stripe))
        .saturating_mul(chunk)
        .saturating_add(within)
}

/// Bytes of the file up to and including the last byte of object `stripe`, which has `object_size` bytes; 0 for an
/// empty object.
///
/// # Panics
/// If the layout is none that [`crate::validate`] accepts.
#[must_use]
pub fn logical_end(layout: &Layout, stripe: u32, object_size: u64) -> u64 {
    match object_size.checked_sub(1) {
        Some(last) => file_offset(layout, stripe, last).saturating_add(1),
        None => 0,
    }
}

/// The file's size by its objects: the largest [`logical_end`]. `object_sizes` in order of stripes; absent objects
/// count as 0.
///
/// # Panics
/// If the layout is none that [`crate::validate`] accepts.
#[must_use]
pub fn file_size(layout: &Layout, object_sizes: impl IntoIterator<Item = u64>) -> u64 {
    (0u32..).zip(object_sizes).map(|(stripe, size)| logical_end(layout, stripe, size)).max().unwrap_or(0)
}

/// The object that holds the file's last byte; `None` for an empty file.
///
/// # Panics
/// If the layout is none that [`crate::validate`] accepts.
#[must_use]
pub fn last_stripe(layout: &Layout, file_size: u64) -> Option<u32> {
    let Geometry { shift, stripes, .. } = Geometry::of(layout);
    file_size.checked_sub(1).map(|last| ((last >> shift) % stripes) as u32)
}
