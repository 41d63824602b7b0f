//! Memory for long buffers of one thread, on large pages where the kernel has them: a disk is told of one piece of memory
//! rather than of each small page. That costs less per byte, and much less in a virtual machine.

use std::alloc::{self, Layout};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::memory;
use crate::slots::{SLOT, Slots};

/// Bytes. Twice the large pages of most processors.
const SLAB: usize = 4 << 20;
/// Bytes.
const ALIGN: usize = 2 << 20;
/// Most bytes of slabs that a thread keeps though no buffer is in them.
const KEPT_MAX: usize = 32 << 20;

thread_local! {
    static SLABS: RefCell<Vec<Rc<Slab>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Slab {
    /// The beginning of `MAPPED` bytes.
    mapping: NonNull<u8>,
    /// The first large page in it.
    memory: NonNull<u8>,
    slots: RefCell<Slots>,
}

/// Bytes: with room to begin at a large page.
const MAPPED: usize = SLAB + ALIGN;

/// A slab, the offset of a free range of at least `len` bytes in it, and how many bytes it has. `None` for what is longer
/// than a slab, and while the thread ends.
pub(crate) fn take(len: usize) -> Option<(Rc<Slab>, usize, usize)> {
    if len > SLAB {
        return None;
    }
    let count = len.div_ceil(SLOT).max(1);
    SLABS
        .try_with(|slabs| {
            let mut slabs = slabs.borrow_mut();
            let place = |slab: &Rc<Slab>| slab.slots.borrow_mut().take(count).map(|first| (Rc::clone(slab), first));
            // The first that has room, so that the last ones become empty.
            let (slab, first) = slabs.iter().find_map(place).unwrap_or_else(|| {
                let slab = Rc::new(Slab::new());
                let placed = place(&slab).expect("a new one has room");
                slabs.push(slab);
                placed
            });
            (slab, first * SLOT, count * SLOT)
        })
        .ok()
}

impl Slab {
    fn new() -> Self {
        // Not from the allocator, which would touch each page to make it zero before the advice.
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), MAPPED, protection, flags, -1, 0) };
        let mapping = if mapping == libc::MAP_FAILED { None } else { NonNull::new(mapping.cast::<u8>()) };
        let mapping = mapping.unwrap_or_else(|| {
            alloc::handle_alloc_error(
                Layout::from_size_align(SLAB, ALIGN).expect("a power of two, and less than isize"),
            )
        });
        let before = mapping.as_ptr().align_offset(ALIGN);
        // SAFETY: less than `ALIGN`, and so much is mapped beyond a slab.
        let memory = unsafe { mapping.add(before) };
        memory::advise_large_pages(memory, SLAB);
        Self { mapping, memory, slots: RefCell::new(Slots::new(SLAB / SLOT)) }
    }

    /// The address of `offset`, which lies within.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < SLAB, "within the slab");
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.memory.add(offset) }
    }

    /// Takes back slots that were given out. Slabs are of one thread: only that one calls it.
    pub(crate) fn put_back(self: &Rc<Self>, offset: usize, len: usize) {
        let mut slots = self.slots.borrow_mut();
        slots.put_back(offset / SLOT, len / SLOT);
        if slots.are_all_free() {
            // Else the thread ends, and all of them go.
            let _ = SLABS.try_with(|slabs| {
                let mut slabs = slabs.borrow_mut();
                if slabs.len() * SLAB > KEPT_MAX {
                    slabs.retain(|slab| !Rc::ptr_eq(slab, self));
                }
            });
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; whoever uses a part of it holds a reference to this.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), MAPPED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Buf;

    fn slabs() -> usize {
        SLABS.with_borrow(Vec::len)
    }

    #[test]
    fn long_buffers_share_slabs_and_never_bytes() {
        let mut bufs: Vec<Buf> = (0..20).map(|n| Buf::with_capacity((n % 5 + 2) * 100_000)).collect();
        for (n, buf) in bufs.iter_mut().enumerate() {
            buf.fill(n as u8);
        }
        assert!(bufs.iter().enumerate().all(|(n, buf)| buf.iter().all(|&byte| byte == n as u8)));
        assert!(slabs() <= 3, "{} slabs for 8 MB", slabs());
        bufs.truncate(1);
        let addresses = |bufs: &[Buf]| bufs.iter().map(|buf| buf.as_ptr().addr()).collect::<Vec<_>>();
        let again: Vec<Buf> = (0..4).map(|_| Buf::with_capacity(512 << 10)).collect();
        assert!(addresses(&again).iter().all(|at| addresses(&bufs)[0].abs_diff(*at) < SLAB), "the first slab has room");
    }

    #[test]
    fn what_is_free_is_kept_up_to_a_bound() {
        let bufs: Vec<Buf> = (0..2 * KEPT_MAX / SLAB).map(|_| Buf::with_capacity(SLAB)).collect();
        assert_eq!(slabs() * SLAB, 2 * KEPT_MAX);
        drop(bufs);
        assert_eq!(slabs() * SLAB, KEPT_MAX);
        let longer = Buf::with_capacity(SLAB + 1);
        assert!(longer.len() > SLAB && slabs() * SLAB == KEPT_MAX);
    }

    #[test]
    fn a_buffer_may_outlive_the_slabs_of_its_thread() {
        thread_local! {
            static LAST: RefCell<Option<Buf>> = const { RefCell::new(None) };
        }
        std::thread::spawn(|| {
            // Made first, so that it is destroyed last.
            LAST.with_borrow_mut(|last| *last = None);
            let buf = Buf::with_capacity(1 << 20);
            LAST.set(Some(buf));
        })
        .join()
        .expect("no panic while the thread ends");
    }
}
