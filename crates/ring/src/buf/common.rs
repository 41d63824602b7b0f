//! Bytes that threads have in common. Memory is its thread's own (a pool, a slab, an arena), so what another thread is done
//! with goes back to where it came from.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Origin, Region, Slice};
use crate::shared::Place;

thread_local! {
    static HOME: RefCell<Option<Owner>> = const { RefCell::new(None) };
}

/// A shared, read-only range of bytes for any thread; clones share the memory.
#[derive(Clone)]
pub struct Common {
    pub(super) given: Arc<Given>,
    pub(super) start: usize,
    pub(super) len: usize,
}

pub(super) struct Given {
    /// What keeps the memory: never itself a [`Common`]. Only the thread that it came from touches it.
    region: ManuallyDrop<Returned>,
    pub(super) memory: NonNull<u8>,
    /// Of the region's beginning.
    place: Option<Place>,
    home: Arc<Home>,
}

// SAFETY: the bytes of a `Common` do not change while its `Slice` would be there, which `region` stands for. `region` itself
// is only moved, into `home`, which has the rules for it.
unsafe impl Send for Given {}
// SAFETY: as for `Send`; through a reference only the bytes can be had.
unsafe impl Sync for Given {}

/// A part of a region that came back from other threads.
struct Returned {
    region: Rc<Region>,
}

// SAFETY: dropped by the thread that it came from alone; what comes back after that has ended is leaked.
unsafe impl Send for Returned {}

/// Where a thread's memory comes back to.
#[derive(Default)]
struct Home {
    state: Mutex<State>,
    /// Something has come back, as far as is known without a lock.
    has_some: AtomicBool,
}

#[derive(Default)]
struct State {
    returned: Vec<Returned>,
    has_ended: bool,
}

impl Home {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread's own.
    fn is_here(self: &Arc<Self>) -> bool {
        HOME.try_with(|home| home.borrow().as_ref().is_some_and(|owner| Arc::ptr_eq(&owner.0, self))).unwrap_or(false)
    }

    fn put_back(self: &Arc<Self>, returned: Returned) {
        if self.is_here() {
            return drop(returned);
        }
        let mut state = self.lock();
        if state.has_ended {
            // The thread may be letting go of the slab or arena at this moment, and only one may count its references.
            // What it had of the memory that is lent stays taken.
            std::mem::forget(returned);
        } else {
            state.returned.push(returned);
            self.has_some.store(true, Ordering::Release);
        }
    }

    /// By its thread.
    fn take_back(&self) {
        let mut state = self.lock();
        let returned = std::mem::take(&mut state.returned);
        self.has_some.store(false, Ordering::Release);
        drop(state);
        drop(returned);
    }
}

/// What a thread has of its [`Home`]: it ends with the thread.
struct Owner(Arc<Home>);

impl Drop for Owner {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.has_ended = true;
        state.returned.clear();
    }
}

/// Takes in what has come back to this thread, before it takes new memory.
pub(super) fn take_back() {
    let _ = HOME.try_with(|home| {
        if let Some(Owner(home)) = &*home.borrow()
            && home.has_some.load(Ordering::Acquire)
        {
            home.take_back();
        }
    });
}

impl Slice {
    /// For other threads as well, without copying. The memory is this thread's until all are done with it.
    ///
    /// # Panics
    /// While the thread ends.
    #[must_use]
    pub fn into_common(self) -> Common {
        if let Origin::Common { common } = &self.region.origin {
            return Common { given: Arc::clone(&common.given), start: common.start + self.start, len: self.len };
        }
        let home = HOME.with_borrow_mut(|home| Arc::clone(&home.get_or_insert_with(|| Owner(Arc::default())).0));
        let (memory, place) = (self.region.memory, self.region.place(0));
        let region = ManuallyDrop::new(Returned { region: self.region });
        Common { given: Arc::new(Given { region, memory, place, home }), start: self.start, len: self.len }
    }

    /// Of this thread: what it was before, where it is this thread's memory.
    #[must_use]
    pub fn from_common(common: &Common) -> Self {
        if common.given.home.is_here() {
            // Of its own memory's references only a thread itself makes more.
            return Self { region: Rc::clone(&common.given.region.region), start: common.start, len: common.len };
        }
        // SAFETY: the range lies in the region, as it did when it was a `Slice`.
        let memory = unsafe { common.given.memory.add(common.start) };
        let origin = Origin::Common { common: common.clone() };
        Self { region: Rc::new(Region { memory, len: common.len, origin }), start: 0, len: common.len }
    }
}

impl Common {
    /// Where its byte `start` lies for those who share the memory.
    pub(super) fn place(&self, start: usize) -> Option<Place> {
        let offset = |place: Place| place.offset + (self.start + start) as u64;
        self.given.place.map(|place| Place { offset: offset(place), ..place })
    }
}

impl Deref for Common {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies in the region, as it did when it was a `Slice`; nobody changes it.
        unsafe { std::slice::from_raw_parts(self.given.memory.as_ptr().add(self.start), self.len) }
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Common({} bytes)", self.len)
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let returned = unsafe { ManuallyDrop::take(&mut self.region) };
        self.home.put_back(returned);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::buf::Buf;

    const LEN: usize = 256 << 10;

    fn filled(byte: u8) -> Common {
        let mut buf = Buf::with_capacity(LEN);
        buf.fill(byte);
        buf.freeze().into_common()
    }

    #[test]
    fn other_threads_read_it_and_it_comes_back() {
        let common = filled(7);
        let address = Slice::from_common(&common).as_ptr().addr();
        let theirs = common.clone();
        thread::spawn(move || {
            assert!(theirs.iter().all(|&byte| byte == 7));
            let slice = Slice::from_common(&theirs);
            drop(theirs);
            assert!(slice.iter().all(|&byte| byte == 7) && slice.len() == LEN);
            assert!(slice.slice(5..9).place().is_none(), "it is not in shared memory");
        })
        .join()
        .expect("the thread reads");
        let other = Buf::with_capacity(LEN);
        assert_ne!(other.as_ptr().addr(), address, "it is in use here");
        thread::spawn(move || drop(common)).join().expect("the thread lets go");
        assert_eq!(Buf::with_capacity(LEN).as_ptr().addr(), address, "it has come back");
    }

    #[test]
    fn what_its_own_thread_drops_is_free_at_once() {
        let common = filled(1);
        let address = Slice::from_common(&common).as_ptr().addr();
        drop(common);
        assert_eq!(Buf::with_capacity(LEN).as_ptr().addr(), address);
    }

    #[test]
    fn it_outlives_its_thread() {
        let come = || thread::spawn(|| [filled(3), filled(4)]).join().expect("the thread makes them");
        for _ in 0..10 {
            let threads = come().map(|common| {
                thread::spawn(move || {
                    let slice = Slice::from_common(&common);
                    assert!(slice.iter().all(|&byte| byte == slice[0]));
                })
            });
            threads.into_iter().for_each(|thread| thread.join().expect("the thread reads"));
        }
    }

    #[test]
    fn nobody_writes_to_it() {
        let common = filled(5);
        assert!(Slice::from_common(&common).try_into_buf().is_err());
        drop(common.clone());
        let part = Slice::from_common(&common).slice(10..20).into_common();
        drop(common);
        let part = Slice::from_common(&part);
        assert_eq!(&part[..], &[5; 10]);
        assert!(part.try_into_buf().is_err());
    }

    #[test]
    fn threads_pass_parts_of_one_region_around() {
        let parts: Vec<Common> = {
            let mut buf = Buf::with_capacity(LEN);
            (0..16)
                .map(|n| {
                    let mut part = buf.split_to(LEN / 16);
                    part.fill(n);
                    part.freeze().into_common()
                })
                .collect()
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (n, part) in parts.iter().enumerate() {
                        assert!(Slice::from_common(part).iter().all(|&byte| usize::from(byte) == n));
                    }
                });
            }
        });
    }
}
