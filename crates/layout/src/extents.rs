//! A byte range of a file as the pieces of its objects.

use types::id::GroupId;
use types::layout::Layout;

use crate::Geometry;

/// A contiguous piece of one object that is also contiguous in the file. It never crosses a chunk's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Index of the object among the file's objects.
    pub stripe: u32,
    pub group: GroupId,
    /// Bytes from the object's begin.
    pub object_offset: u64,
    /// Bytes from the file's begin.
    pub file_offset: u64,
    /// Bytes, at least 1 and at most the chunk size.
    pub len: u32,
}

/// The pieces of `[offset, offset + len)`, in file order, without gap or overlap. A range that would end above
/// `u64::MAX` ends there.
///
/// # Panics
/// If the layout is none that [`crate::validate`] accepts.
#[must_use]
pub fn extents(layout: &Layout, offset: u64, len: u64) -> Extents<'_> {
    Extents { layout, geometry: Geometry::of(layout), position: offset, end: offset.saturating_add(len) }
}

/// See [`extents`].
#[derive(Clone)]
pub struct Extents<'a> {
    layout: &'a Layout,
    geometry: Geometry,
    position: u64,
    end: u64,
}

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        if self.position >= self.end {
            return None;
        }
        let Geometry { chunk, shift, stripes } = self.geometry;
        let file_chunk = self.position >> shift;
        let within = self.position & (chunk - 1);
        let len = (chunk - within).min(self.end - self.position);
        let stripe = file_chunk % stripes;
        let extent = Extent {
            stripe: stripe as u32,
            group: self.layout.groups[stripe as usize],
            object_offset: ((file_chunk / stripes) << shift) + within,
            file_offset: self.position,
            len: len as u32,
        };
        self.position += len;
        Some(extent)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let shift = self.geometry.shift;
        let left = if self.position < self.end { ((self.end - 1) >> shift) - (self.position >> shift) + 1 } else { 0 };
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Extents<'_> {}
