//! Errors of data that was acknowledged before: kept until those who sync have heard of them.
//!
//! The kernel tells each open file of a failed write-back once and then forgets. Our files are shared by all clients
//! and may be closed by the cache, so the memory has to be ours.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use types::error::Errno;
use types::id::ObjectId;

/// Objects remembered one by one. Of further ones those with the same [`place`] count as failed together.
const OBJECTS_MAX: usize = 4096;
/// Connections remembered per failure; further ones hear of the error each time. There may be many more places than objects.
const TOLD_MAX: usize = 256;
const TOLD_OF_PLACE_MAX: usize = 16;

/// Of one target and lane.
#[derive(Default)]
pub(crate) struct Failures {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<ObjectId, Failure>,
    /// Those that are too many to be told apart: by place, so that most of the others are not taken for one of them.
    places: BTreeMap<u16, Failure>,
    /// The version of the newest change.
    newest: u64,
    /// Failures that were ever noted.
    count: u64,
}

struct Failure {
    errno: Errno,
    /// Later changes are not part of it.
    version: u64,
    /// Counted from 1.
    number: u64,
    /// Who has heard that this object may have failed.
    told: BTreeSet<(u64, ObjectId)>,
}

fn place(object: ObjectId) -> u16 {
    (object.hash64() >> 48) as u16
}

impl Failure {
    /// Whether it may concern who wants what was changed from version `since` on; 0: that is not known.
    fn concerns(&self, since: u64) -> bool {
        since <= self.version
    }

    /// # Errors
    /// This one, where it may concern changes of `object` from version `since` on: once per connection.
    fn tell(&mut self, object: ObjectId, connection: u64, since: u64, told_max: usize) -> Result<(), Errno> {
        if !self.concerns(since) || self.told.contains(&(connection, object)) {
            return Ok(());
        }
        if self.told.len() < told_max {
            self.told.insert((connection, object));
        }
        Err(self.errno)
    }

    /// A change was under way when this was noted, and has this version now.
    fn reach(&mut self, count_before: u64, version: u64) {
        if self.number > count_before {
            self.version = self.version.max(version);
        }
    }
}

impl Failures {
    /// `newest`: the version of the last change, or of what could be one.
    pub(crate) fn new(newest: u64) -> Self {
        Self { state: RefCell::new(State { newest, ..State::default() }) }
    }

    /// Acknowledged data of `object` may be lost.
    pub(crate) fn note(&self, object: ObjectId, errno: Errno) {
        let mut state = self.state.borrow_mut();
        state.count += 1;
        // A new failure is news to everyone.
        let failure = Failure { errno, version: state.newest, number: state.count, told: BTreeSet::new() };
        if state.objects.len() >= OBJECTS_MAX && !state.objects.contains_key(&object) {
            state.places.insert(place(object), failure);
        } else {
            state.objects.insert(object, failure);
        }
    }

    /// Failures so far: to be asked before something is changed, and told to [`Self::changed`].
    pub(crate) fn count(&self) -> u64 {
        self.state.borrow().count
    }

    /// A change of `object` has this version. What failed since it began may be part of it.
    pub(crate) fn changed(&self, object: ObjectId, version: u64, count_before: u64) {
        let mut state = self.state.borrow_mut();
        state.newest = version;
        if state.count == count_before {
            return;
        }
        let State { objects, places, .. } = &mut *state;
        for failure in objects.get_mut(&object).into_iter().chain(places.get_mut(&place(object))) {
            failure.reach(count_before, version);
        }
    }

    /// What a sync of `object` asked for by `connection` has to answer, of changes from version `since` on (0: of any): an
    /// error once per connection.
    ///
    /// # Errors
    /// The remembered one.
    pub(crate) fn tell(&self, object: ObjectId, connection: u64, since: u64) -> Result<(), Errno> {
        let mut state = self.state.borrow_mut();
        let State { objects, places, .. } = &mut *state;
        let own = objects.get_mut(&object).map_or(Ok(()), |failure| failure.tell(object, connection, since, TOLD_MAX));
        let shared = places.get_mut(&place(object));
        own.and(shared.map_or(Ok(()), |failure| failure.tell(object, connection, since, TOLD_OF_PLACE_MAX)))
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
        assert_eq!(failures.tell(object(1), 10, 0), Ok(()));
        failures.note(object(1), Errno::EIO);
        assert_eq!(failures.tell(object(1), 10, 0), Err(Errno::EIO));
        assert_eq!(failures.tell(object(1), 10, 0), Ok(()));
        assert_eq!(failures.tell(object(1), 11, 0), Err(Errno::EIO), "another client's news");
        assert_eq!(failures.tell(object(2), 10, 0), Ok(()));
        failures.note(object(1), Errno::EIO);
        assert_eq!(failures.tell(object(1), 10, 0), Err(Errno::EIO), "it failed again");
        failures.note(object(1), Errno::EIO);
        failures.forget(object(1));
        assert_eq!(failures.tell(object(1), 10, 0), Ok(()));
    }

    /// As many as are remembered one by one.
    fn fill(failures: &Failures, errno: Errno) {
        (0..OBJECTS_MAX as u64).for_each(|inode| failures.note(object(1 << 32 | inode), errno));
    }

    #[test]
    fn too_many_failures_are_not_lost_and_concern_few_others() {
        let failures = Failures::default();
        fill(&failures, Errno::EIO);
        let further = 0..1000;
        further.clone().for_each(|inode| failures.note(object(inode), Errno::EIO));
        let told = |inode| failures.tell(object(inode), 1, 0).is_err();
        assert!(further.clone().all(told), "each of them");
        assert!(!further.clone().any(told), "once");
        let others = (1_000_000..1_001_000).filter(|&inode| told(inode)).count();
        assert!(others < 50, "{others} of 1000 others");
        failures.note(object(7), Errno::EIO);
        assert!(told(7), "it failed again");
    }

    #[test]
    fn who_wants_later_changes_alone_hears_of_later_failures_alone() {
        let failures = Failures::new(100);
        let change = |inode, version| failures.changed(object(inode), version, failures.count());
        failures.note(object(1), Errno::EIO);
        assert_eq!(failures.tell(object(1), 10, 99), Err(Errno::EIO), "acknowledged before a restart");
        change(1, 101);
        assert_eq!((failures.tell(object(1), 11, 101), failures.tell(object(1), 11, 0)), (Ok(()), Err(Errno::EIO)));
        fill(&failures, Errno::ENOSPC);
        failures.note(object(7000), Errno::ENOSPC);
        change(7000, 102);
        let told = Err(Errno::ENOSPC);
        for (connection, since, told) in [(10, 102, Ok(())), (10, 101, told), (11, 1, told), (12, 0, told)] {
            assert_eq!(failures.tell(object(7000), connection, since), told, "{since}");
        }
        change(7000, 103);
        failures.note(object(7000), Errno::EIO);
        assert_eq!(failures.tell(object(7000), 10, 103), Err(Errno::EIO), "and failed again");
    }

    #[test]
    fn a_change_under_way_may_be_part_of_a_failure() {
        let failures = Failures::new(100);
        let before = failures.count();
        failures.note(object(1), Errno::EIO);
        failures.changed(object(2), 101, failures.count());
        failures.changed(object(1), 102, before);
        assert_eq!(failures.tell(object(1), 10, 102), Err(Errno::EIO));
        failures.changed(object(1), 103, failures.count());
        assert_eq!(failures.tell(object(1), 11, 103), Ok(()));
        let before = failures.count();
        fill(&failures, Errno::EIO);
        failures.note(object(7000), Errno::EIO);
        failures.changed(object(7000), 104, before);
        assert_eq!(failures.tell(object(7000), 10, 104), Err(Errno::EIO));
        assert_eq!(failures.tell(object(7000), 10, 105), Ok(()));
    }
}
