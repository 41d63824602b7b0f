//! Memory that two processes of one host have in common: what one puts there the other finds, without a copy by way
//! of a socket.
//!
//! One process makes a [`Memory`], an anonymous file that can never shrink, and tells the other where to find it; the
//! other opens it. Each thread that asked for it ([`lend`]) has an arena in such a memory, from which
//! [`Buf::shareable`](crate::buf::Buf::shareable) comes.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory;
use crate::slots::{SLOT, Slots};

/// Bytes at the beginning of a memory by which the other process knows that it found the right one.
pub const MARK_LEN: usize = 16;
/// Longest memory that is opened for another process, in bytes: address space alone, until it is used.
const FOREIGN_MAX: u64 = 1 << 30;
const NAME: &CStr = c"weft-payloads";
/// How the kernel shows a descriptor of such a memory.
const LINK: &[u8] = b"/memfd:weft-payloads";

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A mapped part of memory that another process may have mapped too. Its bytes may change at any time.
pub struct Memory {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    id: u64,
}

/// Where bytes lie in a [`Memory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// [`Memory::id`].
    pub memory: u64,
    /// Bytes from the memory's beginning.
    pub offset: u64,
}

impl Memory {
    /// `len` bytes of zeros that take up nothing until they are used.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn create(len: usize) -> io::Result<Self> {
        // SAFETY: the name is a live C string; the result is checked before it is owned.
        let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(len as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: no memory is passed.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Self::map(file.into(), len)
    }

    /// What another process of this host made: its process id, its descriptor there, and the length. Refused where
    /// it could be made shorter later, for whoever touches what is missing gets SIGBUS.
    ///
    /// # Errors
    /// Where there is no such process or descriptor, it may not be looked at, or it is something else.
    pub fn open(process: u32, descriptor: u32, len: u64) -> io::Result<Self> {
        let refuse = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if len == 0 || len > FOREIGN_MAX {
            return refuse("a shared memory of this length");
        }
        let path = format!("/proc/{process}/fd/{descriptor}");
        // Before it is opened: to open a device may do something.
        if !std::fs::read_link(&path)?.as_os_str().as_bytes().starts_with(LINK) {
            return refuse("no memory of this program");
        }
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        // SAFETY: no memory is passed.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return refuse("not a memory that keeps its length");
        }
        if file.metadata()?.len() != len {
            return refuse("a memory of another length");
        }
        Self::map(file.into(), len as usize)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        memory::advise_large_pages(base, len);
        Ok(Self { fd, base, len, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) })
    }

    /// Unique in this process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.len
    }

    #[must_use]
    pub fn mark(&self) -> [u8; MARK_LEN] {
        let mut mark = [0; MARK_LEN];
        let len = MARK_LEN.min(self.len);
        // SAFETY: the mapping has `len` bytes, and the destination is a local.
        unsafe { std::ptr::copy_nonoverlapping(self.base.as_ptr(), mark.as_mut_ptr(), len) };
        mark
    }

    fn set_mark(&self, mark: [u8; MARK_LEN]) {
        // SAFETY: the first slot of an arena is the mark's, and no shorter.
        unsafe { std::ptr::copy_nonoverlapping(mark.as_ptr(), self.base.as_ptr(), MARK_LEN) };
    }

    /// The address of `offset`, which lies within.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "within the memory");
        // SAFETY: within the mapping, as was just checked.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; whoever uses it holds a reference to this.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A thread's memory to take buffers from.
pub(crate) struct Arena {
    memory: Rc<Memory>,
    slots: RefCell<Slots>,
}

thread_local! {
    /// Bytes of each arena of this thread; 0: it lends nothing.
    static LENDS: Cell<usize> = const { Cell::new(0) };
    static ARENA: RefCell<Option<Rc<Arena>>> = const { RefCell::new(None) };
}

/// From now on this thread's shareable buffers come from memory that can be lent to other processes, up to `limit`
/// bytes of them at a time.
pub fn lend(limit: usize) {
    LENDS.set(limit.next_multiple_of(SLOT) + SLOT);
}

/// The memory that this thread's shareable buffers come from now, if it has one yet.
#[must_use]
pub fn lent() -> Option<Rc<Memory>> {
    ARENA.with_borrow(|arena| arena.as_ref().map(|arena| Rc::clone(&arena.memory)))
}

/// Never again is a buffer given out from the memory `id`: somebody may still write to the ones that were lent, or read
/// them, and cannot be asked. Later buffers come from a new one; it goes when all of its buffers are gone.
pub fn abandon(id: u64) {
    ARENA.with_borrow_mut(|arena| {
        arena.take_if(|arena| arena.memory.id == id);
    });
}

/// The offset of a free range of at least `len` bytes of this thread's arena, and how many bytes it has.
pub(crate) fn take(len: usize) -> Option<(Rc<Arena>, usize, usize)> {
    let limit = LENDS.try_with(Cell::get).ok().filter(|limit| *limit > 0)?;
    ARENA
        .try_with(|current| {
            let mut current = current.borrow_mut();
            if current.is_none() {
                // Without it buffers come from elsewhere, which is slower, and right.
                *current = Arena::create(limit).ok().map(Rc::new);
                if current.is_none() {
                    LENDS.set(0);
                }
            }
            let arena = current.as_ref()?;
            let count = len.div_ceil(SLOT).max(1);
            let first = arena.slots.borrow_mut().take(count)?;
            Some((Rc::clone(arena), first * SLOT, count * SLOT))
        })
        .ok()
        .flatten()
}

impl Arena {
    fn create(len: usize) -> io::Result<Self> {
        let memory = Memory::create(len)?;
        let mut mark = [0; MARK_LEN];
        // SAFETY: the pointer and the length are those of a live array.
        let filled = unsafe { libc::getrandom(mark.as_mut_ptr().cast(), MARK_LEN, 0) };
        if filled != MARK_LEN as isize {
            return Err(io::Error::last_os_error());
        }
        memory.set_mark(mark);
        let mut slots = Slots::new(len / SLOT);
        // The mark's.
        slots.take(1).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { memory: Rc::new(memory), slots: RefCell::new(slots) })
    }

    pub(crate) fn memory(&self) -> &Rc<Memory> {
        &self.memory
    }

    pub(crate) fn put_back(&self, offset: usize, len: usize) {
        self.slots.borrow_mut().put_back(offset / SLOT, len / SLOT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buf::Buf;

    fn on_a_thread_that_lends(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(move || {
            lend(1 << 20);
            test();
        })
        .join()
        .expect("the test passes");
    }

    #[test]
    fn two_mappings_show_the_same_bytes() {
        on_a_thread_that_lends(|| {
            let mut here = Buf::shareable(100_000);
            let place = here.place().expect("it lies in shared memory");
            let memory = lent().expect("the arena's");
            assert_eq!(place.memory, memory.id());
            let there = Memory::open(std::process::id(), memory.descriptor() as u32, memory.length() as u64);
            let there = Rc::new(there.expect("it is our own"));
            assert_eq!(there.mark(), memory.mark());
            let mut same = Buf::in_memory(&there, place.offset, 100_000).expect("within");
            here.fill(7);
            assert!(same.iter().all(|&byte| byte == 7));
            same[99_999] = 8;
            assert_eq!(here[99_999], 8);
            let part = here.freeze().slice(10..20);
            assert_eq!(part.place(), Some(Place { memory: memory.id(), offset: place.offset + 10 }));
            for (offset, len) in [(u64::MAX, 1), (0, 2 << 20), (memory.length() as u64, 1), (1 << 20, 1 << 20)] {
                assert!(Buf::in_memory(&there, offset, len).is_none(), "{offset} {len}");
            }
        });
    }

    #[test]
    fn what_is_no_such_memory_is_refused() {
        on_a_thread_that_lends(|| {
            let _taken = Buf::shareable(1);
            let memory = lent().expect("the arena's");
            let (process, descriptor) = (std::process::id(), memory.descriptor() as u32);
            let len = memory.length() as u64;
            assert!(Memory::open(process, descriptor, len - 1).is_err());
            assert!(Memory::open(process, descriptor, u64::MAX).is_err());
            assert!(Memory::open(process, 0x7fff_ffff, len).is_err());
            // One that could shrink.
            let plain = tempfile::tempfile().expect("a file");
            plain.set_len(len).expect("its length");
            assert!(Memory::open(process, plain.as_raw_fd() as u32, len).is_err());
        });
    }

    #[test]
    fn a_full_arena_and_a_thread_without_one_give_other_memory() {
        let plain = Buf::shareable(4096);
        assert!(plain.place().is_none());
        on_a_thread_that_lends(|| {
            let held: Vec<Buf> = (0..16).map(|_| Buf::shareable(SLOT)).collect();
            assert!(held.iter().all(|buf| buf.place().is_some()));
            assert!(Buf::shareable(1).place().is_none());
            drop(held);
            assert!(Buf::shareable(1 << 20).place().is_some());
        });
    }

    #[test]
    fn nothing_is_given_out_from_an_abandoned_memory() {
        on_a_thread_that_lends(|| {
            let mut old = Buf::shareable(SLOT);
            let old_place = old.place().expect("shared");
            abandon(old_place.memory);
            assert!(lent().is_none());
            let new = Buf::shareable(SLOT).place().expect("shared");
            assert_ne!(new.memory, old_place.memory);
            abandon(old_place.memory);
            assert_eq!(lent().map(|memory| memory.id()), Some(new.memory), "it is gone already");
            // What was taken from it is as good as ever.
            old.fill(1);
            drop(old);
            assert_eq!(Buf::shareable(1).place().map(|place| place.memory), Some(new.memory));
        });
    }
}
