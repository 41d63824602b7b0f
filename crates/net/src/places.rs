//! How many connections a process takes: each is a descriptor, and its files need some, too.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Places for the connections of all listeners of a process together.
#[derive(Clone, Debug)]
pub struct Places(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    most: AtomicUsize,
    taken: AtomicUsize,
}

impl Default for Places {
    /// As many as there is need of.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl Places {
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Counts { most: AtomicUsize::new(most), taken: AtomicUsize::new(0) }))
    }

    /// From now on there are so many. Connections that are there stay.
    pub fn set(&self, most: usize) {
        self.0.most.store(most, Ordering::Relaxed);
    }

    /// How many are taken, and how many there are.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.0.taken.load(Ordering::Relaxed), self.0.most.load(Ordering::Relaxed))
    }

    /// One, for as long as it is not dropped; `None` where all are taken.
    pub(crate) fn take(&self) -> Option<Place> {
        let most = self.0.most.load(Ordering::Relaxed);
        let one_more = |taken| (taken < most).then_some(taken + 1);
        self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Place(self.clone()))
    }
}

pub(crate) struct Place(Places);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many descriptors this process may have.
///
/// # Errors
/// Where the kernel does not say.
pub fn descriptors() -> io::Result<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_connection_has_gone() {
        let places = Places::new(2);
        let (one, other) = (places.take(), places.clone().take());
        assert!(one.is_some() && other.is_some() && places.take().is_none());
        assert_eq!(places.counts(), (2, 2));
        drop(one);
        assert!(places.take().is_some(), "and it was not kept");
        places.set(1);
        assert!(places.take().is_none());
        assert!(descriptors().is_ok_and(|count| count > 0));
    }
}
