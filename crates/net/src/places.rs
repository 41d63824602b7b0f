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

/// Fewer connections are worth a line in the log.
const FEW: usize = 1024;

/// How many connections to take of the `allowed` descriptors, where the process needs `own` of them for its files and for what
/// it asks itself. However few there are, somebody is let in.
#[must_use]
pub fn for_connections(allowed: usize, own: usize) -> usize {
    let connections = allowed.saturating_sub(own).max(allowed / 8);
    if connections < FEW {
        tracing::warn!(allowed, connections, "few descriptors: raise the limit of open files (ulimit -n, LimitNOFILE)");
    }
    connections
}

/// How many descriptors this process may have.
///
/// # Errors
/// Where the kernel does not say.
pub fn descriptors() -> io::Result<usize> {
    Ok(number(limit()?.rlim_cur))
}

/// Lets this process have `wanted` descriptors, as far as it may, and returns how many it may have then. It keeps more.
///
/// # Errors
/// Where the kernel does not say how many there are.
pub fn raise_descriptors(wanted: usize) -> io::Result<usize> {
    let limit = limit()?;
    let wanted = wanted as libc::rlim_t;
    if limit.rlim_cur >= wanted {
        return Ok(number(limit.rlim_cur));
    }
    // Root may go above the hard limit; others up to it.
    for hard in [limit.rlim_max.max(wanted), limit.rlim_max] {
        let raised = libc::rlimit { rlim_cur: wanted.min(hard), rlim_max: hard };
        // SAFETY: the pointer is to a live rlimit.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            return Ok(number(raised.rlim_cur));
        }
    }
    Ok(number(limit.rlim_cur))
}

fn limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn number(limit: libc::rlim_t) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
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
    }

    #[test]
    fn connections_leave_a_process_its_descriptors() {
        assert_eq!(for_connections(1 << 18, 1 << 10), (1 << 18) - (1 << 10));
        assert_eq!(for_connections(1024, 2048), 128, "too few for all: somebody is let in");
        assert_eq!(for_connections(usize::MAX, 8), usize::MAX - 8);
    }

    #[test]
    fn the_limit_of_descriptors_is_raised_as_far_as_it_goes() {
        let before = descriptors().expect("there is a limit");
        assert_eq!(raise_descriptors(before - 1).expect("unchanged"), before, "none is given back");
        let raised = raise_descriptors(before + 1).expect("there is a limit");
        assert_eq!(raised, descriptors().expect("there is a limit"));
        let hard = number(limit().expect("there is a limit").rlim_max);
        assert!(raised >= hard.min(before + 1), "{raised} of {hard}");
    }
}
