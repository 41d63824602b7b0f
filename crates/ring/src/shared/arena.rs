//! The memory that all threads of a process have their arenas in, and the arena of a thread.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{MARK_LEN, Memory};
use crate::slots::{SLOT, Slots};

/// Bytes of such a memory: address space for the arenas of 250 threads of the client's, taken up as they are used.
pub(super) const LEN: usize = 16 << 30;

/// What the arenas of a process are cut from.
struct Ground {
    memory: Arc<Memory>,
    parts: Mutex<Parts>,
}

/// Bytes from the memory's beginning.
struct Parts {
    /// From here on nothing was ever given out.
    next: usize,
    /// Offset and length of what ended threads had.
    free: Vec<(usize, usize)>,
}

/// A thread's memory to take buffers from.
pub(crate) struct Arena {
    ground: Arc<Ground>,
    offset: usize,
    len: usize,
    slots: RefCell<Slots>,
}

/// What new arenas are made in.
static CURRENT: Mutex<Option<Arc<Ground>>> = Mutex::new(None);
/// Of its memory; 0: none. Changed under that lock, and read without by who takes a buffer: a buffer that was lent is free only
/// after all threads that lent it have let go of it, and they abandon the memory before they do.
static CURRENT_ID: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Bytes of each arena of this thread; 0: it lends nothing.
    static LENDS: Cell<usize> = const { Cell::new(0) };
    static ARENA: RefCell<Option<Rc<Arena>>> = const { RefCell::new(None) };
}

/// From now on this thread's shareable buffers come from memory that can be lent to other processes, up to `limit`
/// bytes of them at a time.
pub fn lend(limit: usize) {
    LENDS.set(limit.next_multiple_of(SLOT));
}

/// The memory that shareable buffers of this process come from now, if there is one yet and this thread lends any.
#[must_use]
pub fn lent() -> Option<Arc<Memory>> {
    if LENDS.get() == 0 {
        return None;
    }
    let here = ARENA
        .with_borrow(|arena| arena.as_ref().filter(|arena| arena.is_current()).map(|arena| Arc::clone(arena.memory())));
    here.or_else(|| current().as_ref().map(|ground| Arc::clone(&ground.memory)))
}

/// Never again is a buffer given out from the memory `id`, on any thread: somebody may still write to the ones that were lent,
/// or read them, and cannot be asked. Later buffers come from a new one; it goes when all of its buffers are gone.
pub fn abandon(id: u64) {
    let mut current = current();
    if current.take_if(|ground| ground.memory.id() == id).is_some() {
        CURRENT_ID.store(0, Ordering::Release);
    }
}

/// The offset of a free range of at least `len` bytes of this thread's arena, and how many bytes it has.
pub(crate) fn take(len: usize) -> Option<(Rc<Arena>, usize, usize)> {
    let limit = LENDS.try_with(Cell::get).ok().filter(|limit| *limit > 0)?;
    ARENA
        .try_with(|arena| {
            let mut arena = arena.borrow_mut();
            if !arena.as_ref().is_some_and(|arena| arena.is_current()) {
                // Without it buffers come from elsewhere, which is slower, and right.
                *arena = Arena::new(limit).map(Rc::new);
                if arena.is_none() {
                    LENDS.set(0);
                }
            }
            let arena = arena.as_ref()?;
            let count = len.div_ceil(SLOT).max(1);
            let first = arena.slots.borrow_mut().take(count)?;
            Some((Rc::clone(arena), arena.offset + first * SLOT, count * SLOT))
        })
        .ok()
        .flatten()
}

fn current() -> MutexGuard<'static, Option<Arc<Ground>>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ground {
    fn new() -> io::Result<Self> {
        let memory = Memory::create(LEN)?;
        let mut mark = [0; MARK_LEN];
        // SAFETY: the pointer and the length are those of a live array.
        let filled = unsafe { libc::getrandom(mark.as_mut_ptr().cast(), MARK_LEN, 0) };
        if filled != MARK_LEN as isize {
            return Err(io::Error::last_os_error());
        }
        memory.set_mark(mark);
        // The first slot is the mark's.
        Ok(Self { memory: Arc::new(memory), parts: Mutex::new(Parts { next: SLOT, free: Vec::new() }) })
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parts {
    /// The offset of `len` bytes.
    fn take(&mut self, len: usize) -> Option<usize> {
        if let Some(at) = self.free.iter().position(|(_, had)| *had == len) {
            return Some(self.free.swap_remove(at).0);
        }
        let offset = self.next;
        self.next = offset.checked_add(len).filter(|end| *end <= LEN)?;
        Some(offset)
    }
}

impl Arena {
    /// `None` where the kernel gives no memory, or the threads before have all of it.
    fn new(len: usize) -> Option<Self> {
        let mut current = current();
        let ground = match &*current {
            Some(ground) => Arc::clone(ground),
            None => {
                let ground = Arc::new(Ground::new().ok()?);
                CURRENT_ID.store(ground.memory.id(), Ordering::Release);
                Arc::clone(current.insert(ground))
            }
        };
        drop(current);
        let offset = ground.parts().take(len)?;
        Some(Self { ground, offset, len, slots: RefCell::new(Slots::new(len / SLOT)) })
    }

    /// Buffers of it may be given out.
    fn is_current(&self) -> bool {
        self.memory().id() == CURRENT_ID.load(Ordering::Acquire)
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.ground.memory
    }

    pub(crate) fn put_back(&self, offset: usize, len: usize) {
        self.slots.borrow_mut().put_back((offset - self.offset) / SLOT, len / SLOT);
    }
}

impl Drop for Arena {
    /// Its thread ends, or its memory was abandoned, and the last of its buffers is gone.
    fn drop(&mut self) {
        if self.is_current() {
            self.memory().clear(self.offset, self.len);
            self.ground.parts().free.push((self.offset, self.len));
        }
        // What was abandoned stays as it is: somebody may still read it. It goes with the last arena.
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Place;
    use super::*;
    use crate::buf::{Buf, Slice};

    /// All threads have one memory in common: one test at a time.
    pub(in crate::shared) fn on_a_thread_that_lends(test: impl FnOnce() + Send + 'static) {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        in_a_thread(test);
    }

    fn in_a_thread<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        let lending = move || {
            lend(1 << 20);
            test()
        };
        std::thread::spawn(lending).join().expect("the test passes")
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

    #[test]
    fn threads_name_places_in_what_another_gave_them() {
        on_a_thread_that_lends(|| {
            let mut buf = Buf::shareable(SLOT);
            buf.fill(9);
            let place = buf.place().expect("shared");
            let common = buf.freeze().into_common();
            let there = common.clone();
            let theirs = in_a_thread(move || {
                let own = Buf::shareable(SLOT).place().expect("shared");
                let part = Slice::from_common(&there).slice(5..10);
                assert_eq!(lent().map(|memory| memory.id()), Some(own.memory));
                (own, part.place().expect("shared"))
            });
            assert_eq!(theirs.1, Place { memory: place.memory, offset: place.offset + 5 });
            assert_eq!(theirs.0.memory, place.memory, "one memory");
            assert!(theirs.0.offset.abs_diff(place.offset) >= 1 << 20, "an arena of its own");
            assert_eq!(Slice::from_common(&common).slice(5..10).place(), Some(theirs.1));
        });
    }

    #[test]
    fn what_another_thread_abandons_is_not_given_out_here() {
        on_a_thread_that_lends(|| {
            let old = Buf::shareable(SLOT);
            let place = old.place().expect("shared");
            let common = old.freeze().into_common();
            in_a_thread(move || {
                abandon(place.memory);
                drop(common);
            });
            let new = Buf::shareable(SLOT).place().expect("shared");
            assert_ne!(new.memory, place.memory);
        });
    }

    /// A server that was slow rather than dead still reads what it was told to write.
    #[test]
    fn what_was_abandoned_keeps_its_bytes() {
        on_a_thread_that_lends(|| {
            let mut old = Buf::shareable(SLOT);
            old.fill(3);
            let place = old.place().expect("shared");
            let memory = lent().expect("shared");
            let (process, descriptor) = (std::process::id(), memory.descriptor() as u32);
            let there = Memory::open(process, descriptor, memory.length() as u64).expect("our own");
            abandon(place.memory);
            drop((old, memory));
            assert_ne!(Buf::shareable(SLOT).place().map(|place| place.memory), Some(place.memory));
            let left = Buf::in_memory(&there, place.offset, SLOT).expect("within");
            assert!(left.iter().all(|&byte| byte == 3));
        });
    }

    #[test]
    fn the_arena_of_an_ended_thread_is_another_ones_and_empty() {
        on_a_thread_that_lends(|| {
            let here = Buf::shareable(SLOT).place().expect("shared");
            let first = in_a_thread(|| {
                let mut buf = Buf::shareable(SLOT);
                buf.fill(1);
                buf.place()
            });
            let (second, was_cleared) = in_a_thread(|| {
                let buf = Buf::shareable(SLOT);
                (buf.place(), buf.iter().all(|&byte| byte == 0))
            });
            assert_eq!(first, second);
            assert!(was_cleared);
            assert_ne!(second, Some(here));
        });
    }
}
