//! Errors of data that was acknowledged before: kept until those who sync have heard of them.
//!
//! The kernel tells each open file of a failed write-back once and then forgets. Our files are shared by all clients
//! and may be closed by the cache, so the memory has to be ours.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use types::error::Errno;
use types::id::ObjectId;

/// Objects remembered one by one; with more, the whole target counts as failed.
const OBJECTS_MAX: usize = 4096;
/// Connections remembered per object; further ones hear of the error each time.
const TOLD_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct Failures {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<ObjectId, Failure>,
    /// Too many to tell apart.
    everything: Option<Errno>,
}

struct Failure {
    errno: Errno,
    told: BTreeSet<u64>,
}

impl Failures {
    /// Acknowledged data of `object` may be lost.
    pub(crate) fn note(&self, object: ObjectId, errno: Errno) {
        let mut state = self.state.borrow_mut();
        if state.objects.len() >= OBJECTS_MAX && !state.objects.contains_key(&object) {
            state.everything = Some(errno);
            return;
        }
        // A new failure is news to everyone.
        state.objects.insert(object, Failure { errno, told: BTreeSet::new() });
    }

    /// What a sync of `object` asked for by `connection` has to answer: an error once per connection.
    ///
    /// # Errors
    /// The remembered one.
    pub(crate) fn tell(&self, object: ObjectId, connection: u64) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        if let Some(errno) = state.everything {
            return Err(errno);
        }
        let Some(failure) = state.objects.get_mut(&object) else { return Ok(()) };
        if failure.told.contains(&connection) {
            return Ok(());
        }
        if failure.told.len() < TOLD_MAX {
            failure.told.insert(connection);
        }
        Err(failure.errno)
    }

    /// The object's data is gone by intent: removed, or cut to nothing.
    pub(crate) fn forget(&self, object: ObjectId) {
        self.state.borrow_mut().objects.remove(&object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::id::InodeId;

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), stripe: 0 }
    }

    #[test]
    fn everyone_hears_of_an_error_once() {
        let failures = Failures::default();
        assert_eq!(failures.tell(object(1), 10), Ok(()));
        failures.note(object(1), Errno::EIO);
        assert_eq!(failures.tell(object(1), 10), Err(Errno::EIO));
        assert_eq!(failures.tell(object(1), 10), Ok(()));
        assert_eq!(failures.tell(object(1), 11), Err(Errno::EIO), "another client's news");
        assert_eq!(failures.tell(object(2), 10), Ok(()));
        failures.note(object(1), Errno::EIO);
        assert_eq!(failures.tell(object(1), 10), Err(Errno::EIO), "it failed again");
        failures.note(object(1), Errno::EIO);
        failures.forget(object(1));
        assert_eq!(failures.tell(object(1), 10), Ok(()));
    }

    #[test]
    fn too_many_failures_are_not_lost_but_total() {
        let failures = Failures::default();
        for inode in 0..=OBJECTS_MAX as u64 {
            failures.note(object(inode), Errno::EIO);
        }
        assert_eq!(failures.tell(object(1 << 40), 1), Err(Errno::EIO));
    }
}
