//! Owned buffers that the kernel may write to while a task waits.
//!
//! A [`Buf`] is a unique, writable range of a page-aligned region; a [`Slice`] a shared, read-only one. Ranges of one
//! region never overlap unless all of them are `Slice`s. Regions return to a bounded pool of their thread, or to its slabs.

use std::alloc::{self, Layout};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use crate::shared::{self, Loan, Memory, Place};
use crate::slab::{self, Slab};

mod common;
mod growing;

pub use common::Common;
pub use growing::Growing;

const PAGE: usize = 4096;
/// Regions above this length are rounded to multiples of it, so that the pool has few sizes.
const LARGE_STEP: usize = 64 << 10;
/// Regions from this length on come from slabs, if they fit.
const SLAB_MIN: usize = 128 << 10;
/// Most bytes that a thread keeps for reuse.
const POOL_BYTES_MAX: usize = 32 << 20;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { free: BTreeMap::new(), bytes: 0 }) };
}

struct Pool {
    free: BTreeMap<usize, Vec<NonNull<u8>>>,
    bytes: usize,
}

impl Pool {
    fn take(&mut self, size: usize) -> Option<NonNull<u8>> {
        let memory = self.free.get_mut(&size)?.pop()?;
        self.bytes -= size;
        Some(memory)
    }

    /// False where the pool is full and the caller has to free the memory.
    fn put(&mut self, size: usize, memory: NonNull<u8>) -> bool {
        if self.bytes + size > POOL_BYTES_MAX {
            return false;
        }
        self.bytes += size;
        self.free.entry(size).or_default().push(memory);
        true
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (&size, list) in &self.free {
            for &memory in list {
                // SAFETY: allocated in `Region::pooled` with this very layout, and owned by the pool alone.
                unsafe { alloc::dealloc(memory.as_ptr(), pooled_layout(size)) };
            }
        }
    }
}

fn pooled_layout(size: usize) -> Layout {
    Layout::from_size_align(size, PAGE).expect("page-aligned sizes within isize")
}

enum Origin {
    Pool {
        size: usize,
    },
    Slab {
        slab: Rc<Slab>,
        offset: usize,
    },
    Vec {
        capacity: usize,
    },
    /// A range of this thread's arena.
    Arena {
        loan: Loan,
    },
    /// A range of another process's memory.
    Foreign {
        memory: Arc<Memory>,
        offset: usize,
    },
    /// A range of memory of any thread of this process.
    Common {
        common: Common,
    },
}

struct Region {
    memory: NonNull<u8>,
    len: usize,
    origin: Origin,
}

impl Region {
    fn new(len: usize) -> Self {
        common::take_back();
        let in_slab = if len < SLAB_MIN { None } else { slab::take(len) };
        match in_slab {
            Some((slab, offset, len)) => Self { memory: slab.at(offset), len, origin: Origin::Slab { slab, offset } },
            None => Self::pooled(len),
        }
    }

    fn pooled(len: usize) -> Self {
        let step = if len > LARGE_STEP { LARGE_STEP } else { PAGE };
        let size = len.max(1).next_multiple_of(step);
        let memory = POOL.try_with(|pool| pool.borrow_mut().take(size)).ok().flatten().unwrap_or_else(|| {
            // SAFETY: the size is not zero. Zeroed, so that every byte is initialised for good.
            let memory = unsafe { alloc::alloc_zeroed(pooled_layout(size)) };
            NonNull::new(memory).unwrap_or_else(|| alloc::handle_alloc_error(pooled_layout(size)))
        });
        Self { memory, len: size, origin: Origin::Pool { size } }
    }

    /// `None` where this thread lends no memory, or all of it is in use.
    fn shareable(len: usize) -> Option<Self> {
        common::take_back();
        let loan = shared::take(len)?;
        Some(Self { memory: loan.start(), len: loan.length(), origin: Origin::Arena { loan } })
    }

    fn from_vec(vec: Vec<u8>) -> Self {
        let mut vec = std::mem::ManuallyDrop::new(vec);
        let memory = NonNull::new(vec.as_mut_ptr()).expect("a Vec's pointer is never null");
        Self { memory, len: vec.len(), origin: Origin::Vec { capacity: vec.capacity() } }
    }
}

impl Region {
    /// Where `start` lies for those who share the memory.
    fn place(&self, start: usize) -> Option<Place> {
        let begin = match &self.origin {
            Origin::Pool { .. } | Origin::Slab { .. } | Origin::Vec { .. } => return None,
            Origin::Arena { loan } => loan.place(),
            Origin::Foreign { memory, offset } => Place { memory: memory.id(), offset: *offset as u64 },
            Origin::Common { common } => return common.place(start),
        };
        Some(Place { offset: begin.offset + start as u64, ..begin })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.origin {
            Origin::Slab { ref slab, offset } => slab.put_back(offset, self.len),
            // These have a drop of their own.
            Origin::Arena { .. } | Origin::Foreign { .. } | Origin::Common { .. } => {}
            Origin::Pool { size } => {
                let kept = POOL.try_with(|pool| pool.borrow_mut().put(size, self.memory)).unwrap_or(false);
                if !kept {
                    // SAFETY: allocated in `pooled` with this layout; this region was its only owner.
                    unsafe { alloc::dealloc(self.memory.as_ptr(), pooled_layout(size)) };
                }
            }
            // SAFETY: taken apart in `from_vec`, put together once.
            Origin::Vec { capacity } => drop(unsafe { Vec::from_raw_parts(self.memory.as_ptr(), self.len, capacity) }),
        }
    }
}

/// A unique, writable range of bytes.
pub struct Buf {
    region: Rc<Region>,
    start: usize,
    len: usize,
}

impl Buf {
    /// `len` bytes of unspecified (but initialised) content.
    #[must_use]
    pub fn with_capacity(len: usize) -> Self {
        Self { region: Rc::new(Region::new(len)), start: 0, len }
    }

    /// As [`Self::with_capacity`], rounded up to whole pages.
    #[must_use]
    pub fn with_whole_pages(len: usize) -> Self {
        Self::with_capacity(len.next_multiple_of(PAGE))
    }

    /// As [`Self::with_capacity`], from memory that other processes may be lent, where this thread has some
    /// ([`crate::shared::lend`]).
    #[must_use]
    pub fn shareable(len: usize) -> Self {
        Self::only_shareable(len).unwrap_or_else(|| Self::with_capacity(len))
    }

    fn only_shareable(len: usize) -> Option<Self> {
        Region::shareable(len).map(|region| Self { region: Rc::new(region), start: 0, len })
    }

    /// A range of the memory that another process shares with this one; `None` where it is not within. The other
    /// process may change the bytes at any time and may name one range twice: they are for the kernel to read and
    /// write, not to be trusted.
    #[must_use]
    pub fn in_memory(memory: &Arc<Memory>, offset: u64, len: usize) -> Option<Self> {
        let offset = usize::try_from(offset).ok()?;
        if len == 0 || offset.checked_add(len)? > memory.length() {
            return None;
        }
        let origin = Origin::Foreign { memory: Arc::clone(memory), offset };
        Some(Self { region: Rc::new(Region { memory: memory.at(offset), len, origin }), start: 0, len })
    }

    /// Where it lies in memory that can be shared.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.region.place(self.start)
    }

    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::with_capacity(len);
        buf.fill(0);
        buf
    }

    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buf = Self::with_capacity(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Takes the first `at` bytes off the front.
    ///
    /// # Panics
    /// If `at` is past the end.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Buf {
        assert!(at <= self.len, "split past the end");
        let front = Buf { region: Rc::clone(&self.region), start: self.start, len: at };
        self.start += at;
        self.len -= at;
        front
    }

    /// Takes the bytes from `at` on off the back.
    ///
    /// # Panics
    /// If `at` is past the end.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Buf {
        assert!(at <= self.len, "split past the end");
        let back = Buf { region: Rc::clone(&self.region), start: self.start + at, len: self.len - at };
        self.len = at;
        back
    }

    /// Joins what was split, without copying.
    ///
    /// # Errors
    /// Gives `next` back where it does not begin in the same region right where this one ends.
    pub fn unsplit(&mut self, next: Buf) -> Result<(), Buf> {
        if Rc::ptr_eq(&self.region, &next.region) && self.start + self.len == next.start {
            self.len += next.len;
            Ok(())
        } else {
            Err(next)
        }
    }

    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    #[must_use]
    pub fn freeze(self) -> Slice {
        Slice { region: self.region, start: self.start, len: self.len }
    }

    pub(crate) fn as_raw(&mut self) -> *mut u8 {
        self.as_mut_ptr()
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the region, is initialised, and no other handle covers it.
        unsafe { std::slice::from_raw_parts(self.region.memory.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; `self` is borrowed mutably, so this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.region.memory.as_ptr().add(self.start), self.len) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

/// A shared, read-only range of bytes; clones share the memory.
#[derive(Clone)]
pub struct Slice {
    region: Rc<Region>,
    start: usize,
    len: usize,
}

impl Slice {
    #[must_use]
    pub fn empty() -> Self {
        Self::from_vec(Vec::new())
    }

    #[must_use]
    pub fn from_vec(vec: Vec<u8>) -> Self {
        let len = vec.len();
        Self { region: Rc::new(Region::from_vec(vec)), start: 0, len }
    }

    /// A part of this slice.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Slice {
        assert!(range.start <= range.end && range.end <= self.len, "slice out of bounds");
        Slice { region: Rc::clone(&self.region), start: self.start + range.start, len: range.end - range.start }
    }

    /// Where it lies in memory that can be shared.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.region.place(self.start)
    }

    /// Makes it writable again.
    ///
    /// # Errors
    /// Gives the slice back where another handle shares its region.
    pub fn try_into_buf(self) -> Result<Buf, Slice> {
        let is_elsewhere = matches!(self.region.origin, Origin::Common { .. });
        if !is_elsewhere && Rc::strong_count(&self.region) == 1 {
            Ok(Buf { region: self.region, start: self.start, len: self.len })
        } else {
            Err(self)
        }
    }
}

impl Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the region and is initialised; only other `Slice`s may cover it.
        unsafe { std::slice::from_raw_parts(self.region.memory.as_ptr().add(self.start), self.len) }
    }
}

impl From<Vec<u8>> for Slice {
    fn from(vec: Vec<u8>) -> Self {
        Self::from_vec(vec)
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_disjoint_and_join_again() {
        let mut front = Buf::from_slice(b"hello world");
        let mut back = front.split_off(5);
        front[0] = b'J';
        back[1] = b'W';
        assert_eq!((&front[..], &back[..]), (&b"Jello"[..], &b" World"[..]));
        let stranger = Buf::from_slice(b"x");
        assert!(front.unsplit(stranger).is_err());
        front.unsplit(back).expect("adjacent parts join");
        assert_eq!(&front[..], b"Jello World");
    }

    #[test]
    fn only_a_sole_slice_becomes_writable() {
        let slice = Buf::from_slice(b"abc").freeze();
        let other = slice.slice(1..2);
        let slice = slice.try_into_buf().expect_err("shared");
        assert_eq!(&other[..], b"b");
        drop(other);
        assert!(slice.try_into_buf().is_ok());
    }

    #[test]
    fn regions_are_page_aligned_and_reused() {
        let buf = Buf::with_capacity(100_000);
        let address = buf.as_ptr() as usize;
        assert_eq!(address % PAGE, 0);
        drop(buf);
        assert_eq!(Buf::with_capacity(99_000).as_ptr() as usize, address);
    }

    #[test]
    fn a_vec_comes_back_out_as_bytes() {
        let slice = Slice::from_vec(b"0123".to_vec());
        assert_eq!(&slice.slice(1..3)[..], b"12");
        assert!(Slice::empty().is_empty());
    }
}
