//! The memory that all threads of a process have their arenas in, and the arena of a thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{MARK_LEN, Memory, Place};
use crate::slots::{SLOT, Slots};

/// Bytes of such a memory: address space for the arenas of 250 threads of the client's, taken up as they are used.
pub(super) const LEN: usize = 16 << 30;
/// Arenas begin at multiples of so many bytes: no two threads have a large page in common.
const STEP: usize = 2 << 20;

/// What the arenas of a process are cut from.
struct Ground {
    memory: Arc<Memory>,
    /// Ranges of bytes that no arena has: the length of each, by its offset. No two of them touch.
    free: Mutex<BTreeMap<usize, usize>>,
}

/// A thread's part of the memory. It does not keep that, once it was abandoned: only its buffers do, or a thread that has
/// nothing to do would keep what all others had.
pub(crate) struct Arena {
    ground: Weak<Ground>,
    /// For all buffers that are out, with one look at what other threads look at, too.
    held: RefCell<std::rc::Weak<Held>>,
    /// [`Memory::id`].
    memory: u64,
    offset: usize,
    len: usize,
    slots: RefCell<Slots>,
}

/// Keeps the ground for all buffers of an arena.
struct Held(Arc<Ground>);

/// A range of an arena that is in use.
pub(crate) struct Loan {
    arena: Rc<Arena>,
    ground: Rc<Held>,
    offset: usize,
    len: usize,
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

/// [`Memory::id`] of the memory that shareable buffers of this process come from now, if there is one yet and this thread
/// lends any.
#[must_use]
pub fn lent_id() -> Option<u64> {
    Some(CURRENT_ID.load(Ordering::Acquire)).filter(|&id| id > 0 && LENDS.get() > 0)
}

/// That memory.
#[must_use]
pub fn lent() -> Option<Arc<Memory>> {
    let memory = || current().as_ref().map(|ground| Arc::clone(&ground.memory));
    lent_id().and_then(|_| memory())
}

/// Never again is a buffer given out from the memory `id`, on any thread: somebody may still write to the ones that were lent,
/// or read them, and cannot be asked. Later buffers come from a new one; it goes when all of its buffers are gone.
pub fn abandon(id: u64) {
    let mut current = current();
    let abandoned = current.take_if(|ground| ground.memory.id() == id);
    if abandoned.is_some() {
        CURRENT_ID.store(0, Ordering::Release);
    }
    drop(current);
}

/// A free range of at least `len` bytes of this thread's arena.
pub(crate) fn take(len: usize) -> Option<Loan> {
    let limit = LENDS.try_with(Cell::get).ok().filter(|limit| *limit > 0)?;
    ARENA
        .try_with(|arena| {
            let mut arena = arena.borrow_mut();
            if !arena.as_ref().is_some_and(|arena| arena.is_current()) {
                *arena = Arena::new(limit).map(Rc::new);
                if arena.is_none() {
                    // Buffers come from elsewhere, which is slower, and right.
                    LENDS.set(0);
                }
            }
            arena.as_ref().and_then(|arena| arena.take(len))
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
        // What comes before is the mark's.
        Ok(Self { memory: Arc::new(memory), free: Mutex::new(BTreeMap::from([(STEP, LEN - STEP)])) })
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The offset of `len` bytes, which are no longer free: the first that there are.
fn cut(free: &mut BTreeMap<usize, usize>, len: usize) -> Option<usize> {
    let (offset, had) = free.iter().map(|(&offset, &had)| (offset, had)).find(|(_, had)| *had >= len)?;
    free.remove(&offset);
    if had > len {
        free.insert(offset + len, had - len);
    }
    Some(offset)
}

fn join(free: &mut BTreeMap<usize, usize>, mut offset: usize, mut len: usize) {
    if let Some(next) = free.remove(&(offset + len)) {
        len += next;
    }
    let before = free.range(..offset).next_back().map(|(&at, &had)| (at, had));
    if let Some((at, had)) = before.filter(|(at, had)| at + had == offset) {
        (offset, len) = (at, len + had);
    }
    free.insert(offset, len);
}

impl Arena {
    /// With room for `limit` bytes. `None` where the kernel gives no memory, or other threads have all of it.
    fn new(limit: usize) -> Option<Self> {
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
        let len = limit.checked_next_multiple_of(STEP)?;
        let offset = cut(&mut ground.free(), len)?;
        let (memory, slots) = (ground.memory.id(), RefCell::new(Slots::new(limit / SLOT)));
        Some(Self { ground: Arc::downgrade(&ground), held: RefCell::default(), memory, offset, len, slots })
    }

    /// Buffers of it may be given out.
    fn is_current(&self) -> bool {
        self.memory == CURRENT_ID.load(Ordering::Acquire)
    }

    fn take(self: &Rc<Self>, len: usize) -> Option<Loan> {
        let ground = self.hold()?;
        let count = len.div_ceil(SLOT).max(1);
        let first = self.slots.borrow_mut().take(count)?;
        Some(Loan { arena: Rc::clone(self), ground, offset: self.offset + first * SLOT, len: count * SLOT })
    }

    /// `None` where the memory was abandoned at this moment.
    fn hold(&self) -> Option<Rc<Held>> {
        let mut held = self.held.borrow_mut();
        if let Some(ground) = held.upgrade() {
            return Some(ground);
        }
        let ground = Rc::new(Held(self.ground.upgrade()?));
        *held = Rc::downgrade(&ground);
        Some(ground)
    }
}

impl Drop for Arena {
    /// Its thread ends, or its memory was abandoned, and the last of its buffers is gone. What was abandoned stays as it is:
    /// somebody may still read it.
    fn drop(&mut self) {
        if self.is_current()
            && let Some(ground) = self.ground.upgrade()
        {
            ground.memory.clear(self.offset, self.len);
            join(&mut ground.free(), self.offset, self.len);
        }
    }
}

impl Loan {
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.ground.0.memory.at(self.offset)
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.len
    }

    pub(crate) fn place(&self) -> Place {
        Place { memory: self.arena.memory, offset: self.offset as u64 }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.arena.slots.borrow_mut().put_back((self.offset - self.arena.offset) / SLOT, self.len / SLOT);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::buf::{Buf, Slice};

    /// All threads have one memory in common: one test at a time.
    pub(crate) fn on_a_thread_that_lends(test: impl FnOnce() + Send + 'static) {
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

    /// A thread that has nothing to do does not keep what all others had.
    #[test]
    fn an_abandoned_memory_goes_with_its_buffers() {
        on_a_thread_that_lends(|| {
            let kept = Buf::shareable(SLOT);
            let memory = Arc::downgrade(&lent().expect("shared"));
            let id = kept.place().expect("shared").memory;
            in_a_thread(move || abandon(id));
            assert!(memory.upgrade().is_some(), "a buffer of it is there");
            drop(kept);
            assert!(memory.upgrade().is_none());
        });
    }

    #[test]
    fn free_ranges_join_and_are_cut() {
        let mut free = BTreeMap::from([(10, 90)]);
        let parts: Vec<usize> = [20, 30, 5].iter().filter_map(|&len| cut(&mut free, len)).collect();
        assert_eq!((&parts[..], &free), (&[10, 30, 60][..], &BTreeMap::from([(65, 35)])));
        assert_eq!(cut(&mut free, 36), None);
        join(&mut free, 10, 20);
        assert_eq!(cut(&mut free, 21), Some(65), "the first that is long enough");
        join(&mut free, 60, 5);
        join(&mut free, 30, 30);
        assert_eq!(free, BTreeMap::from([(10, 55), (86, 14)]));
        join(&mut free, 65, 21);
        assert_eq!(free, BTreeMap::from([(10, 90)]));
    }

    #[test]
    fn arenas_of_any_length_come_and_go() {
        on_a_thread_that_lends(|| {
            let here = Buf::shareable(SLOT).place().expect("shared");
            for round in 1..400 {
                let there = std::thread::spawn(move || {
                    lend(round << 20);
                    Buf::shareable(SLOT).place()
                });
                let there = there.join().expect("it lends").expect("there is room for one at a time");
                assert_eq!(there.memory, here.memory);
            }
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
