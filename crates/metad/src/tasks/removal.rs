//! Removes the objects of files that are gone from their storage groups. Their records in the shard go when the storage
//! has answered, so a crash of either side loses none; removing twice is harmless. None is removed before the end of its file
//! is on the metadata's disk: a power cut would bring back a name without its contents. With a group that was deleted go the
//! records of what lay there.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use namespace::view::{Deletion, DeletionPage};
use ring::sync::{Acquire, Notify, Permit, Semaphore};
use telemetry::metrics::level;
use tracing::{debug, error, warn};
use types::id::{GroupId, InodeId, ObjectId};
use wire::v1::storage::Remove;

use crate::tasks::storage::{Failure, Storage};
use crate::turn::Core;

mod floor;
mod pauses;

pub(crate) use floor::Floor;
use pauses::{Pauses, Tell};

/// Removals under way at a time in one group.
const IN_FLIGHT_MAX: usize = 128;
/// A group that ends none of so many for so long is slow: the pass goes on without it, since others are to become empty.
const SLOW: Duration = Duration::from_millis(100);
/// Records read at a time.
const PAGE: usize = 512;
/// Between two passes over the records, at least and at most.
const BETWEEN_PASSES: Duration = Duration::from_millis(50);
const BETWEEN_PASSES_MAX: Duration = Duration::from_secs(600);
/// Look again after this time though nobody has said anything.
const UNASKED: Duration = Duration::from_secs(60);

type Key = (InodeId, u32);

/// The task's state, shared with the removals under way.
pub(crate) struct Removal {
    core: Rc<Core>,
    storage: Rc<Storage>,
    in_flight: RefCell<BTreeSet<Key>>,
    /// Of each group.
    places: RefCell<BTreeMap<GroupId, Rc<Semaphore>>>,
    /// Groups that failed or are busy: not asked again before.
    paused: RefCell<Pauses>,
    /// Those that failed may be there again.
    may_be_back: Notify,
    /// So many records that cannot be read were told of.
    damaged: Cell<usize>,
}

/// What came of going through the records once.
#[derive(Default)]
struct Pass {
    /// Records.
    seen: usize,
    /// Others, which cannot be read.
    damaged: usize,
    /// For so long the thread did nothing else; not what was waited for.
    reading: Duration,
}

impl Removal {
    pub(crate) fn new(core: Rc<Core>, storage: Rc<Storage>) -> Rc<Self> {
        Rc::new(Self {
            core,
            storage,
            in_flight: RefCell::default(),
            places: RefCell::default(),
            paused: RefCell::default(),
            may_be_back: Notify::new(),
            damaged: Cell::default(),
        })
    }

    /// Groups may be elsewhere now, so those that failed are asked again.
    pub(crate) fn map_changed(&self) {
        if self.paused.borrow_mut().clear() {
            self.may_be_back.notify_one();
        }
        self.core.removable.notify_one();
    }

    /// Goes through the records again and again, for as long as there are any.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            let begun = Instant::now();
            let Pass { seen, reading, .. } = self.pass().await;
            self.core.metrics.deletions.set(level(seen));
            if seen == 0 {
                self.paused.borrow_mut().clear();
                self.places.borrow_mut().clear();
            }
            // Each pass begins at the records that the last one has removed: not too often, or it would only read their
            // tombstones. And one that has to go over many which wait for their group takes no more than a tenth of the thread.
            let pause = pause_after(reading, begun.elapsed());
            // Also where groups come and go all the time.
            let at_least = pause.min(2 * reading);
            ring::sleep(at_least.max(BETWEEN_PASSES)).await;
            let _ = ring::timeout(pause.saturating_sub(at_least), self.may_be_back.notified()).await;
            let _ = ring::timeout(self.until_next_try(), self.core.removable.notified()).await;
        }
    }

    /// How long all is quiet unless something is recorded anew.
    fn until_next_try(&self) -> Duration {
        self.paused.borrow().shortest(ring::now()).unwrap_or(UNASKED)
    }

    /// Starts the removal of every object that is recorded, except where one is under way or its group has failed just
    /// now.
    async fn pass(self: &Rc<Self>) -> Pass {
        let floor = &self.core.deletions_floor;
        let begin = floor.begin_pass();
        let mut after = floor::before(begin);
        let mut pass = Pass::default();
        let mut slow = BTreeSet::new();
        loop {
            let begun = Instant::now();
            let page = match self.core.deletions(after, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    warn!(%error, "objects to be removed cannot be read");
                    floor.lower_to(begin);
                    return pass;
                }
            };
            self.tell_damage(&mut pass, &page);
            if page.damaged > 0 {
                floor.lower_to(begin);
            }
            let (Some(first), Some(last)) = (page.deletions.first(), page.deletions.last()) else { return pass };
            floor.lower_to(first.inode);
            after = Some((last.inode, last.stripe));
            pass.seen += page.deletions.len();
            let ready: Vec<_> = page.deletions.into_iter().filter(|deletion| self.may_start(deletion)).collect();
            pass.reading += begun.elapsed();
            for deletion in ready {
                if slow.contains(&deletion.group) || !self.may_start(&deletion) {
                    continue;
                }
                match ring::timeout(SLOW, self.place(deletion.group)).await {
                    Ok(place) => self.start(deletion, place),
                    Err(_) => drop(slow.insert(deletion.group)),
                }
            }
            // The shard comes first, and what it has to send.
            ring::next_turn().await;
        }
    }

    /// Once: every pass meets it again.
    fn tell_damage(&self, pass: &mut Pass, page: &DeletionPage) {
        pass.damaged += page.damaged;
        if let Some(first) = &page.first_damage
            && pass.damaged > self.damaged.get()
        {
            error!(records = pass.damaged, %first, "objects of removed files stay where they are: damaged records");
            self.damaged.set(pass.damaged);
        }
    }

    fn place(&self, group: GroupId) -> Acquire {
        let mut places = self.places.borrow_mut();
        places.entry(group).or_insert_with(|| Rc::new(Semaphore::new(IN_FLIGHT_MAX))).acquire(1)
    }

    fn may_start(&self, deletion: &Deletion) -> bool {
        let paused = self.paused.borrow().is_paused(deletion.group, ring::now());
        let is_free = !paused && !self.in_flight.borrow().contains(&(deletion.inode, deletion.stripe));
        is_free && self.core.is_gone_for_good(deletion.inode)
    }

    fn start(self: &Rc<Self>, deletion: Deletion, place: Permit) {
        let key = (deletion.inode, deletion.stripe);
        if !self.in_flight.borrow_mut().insert(key) {
            return;
        }
        let this = Rc::clone(self);
        ring::spawn(async move {
            match this.remove(&deletion).await {
                Ok(()) => {
                    this.paused.borrow_mut().succeeded(deletion.group);
                    this.core.removed(deletion);
                }
                Err(failure) => this.pause(&deletion, &failure),
            }
            drop(place);
            let is_last = {
                let mut in_flight = this.in_flight.borrow_mut();
                in_flight.remove(&key);
                in_flight.is_empty()
            };
            if is_last {
                // How many are left is to be known.
                this.core.removable.notify_one();
            }
        });
    }

    async fn remove(&self, deletion: &Deletion) -> Result<(), Failure> {
        if self.storage.is_deleted(deletion.group) {
            return Ok(());
        }
        let object = object_of(deletion);
        self.storage.call(deletion.group, object, &Remove { object }, Vec::new()).await.map(drop)
    }

    fn pause(&self, deletion: &Deletion, reason: &Failure) {
        let (group, object, now) = (deletion.group, object_of(deletion), ring::now());
        let tell = match reason {
            Failure::Busy => self.paused.borrow_mut().busy(group, now),
            Failure::Errno(_) | Failure::Missed(_) => self.paused.borrow_mut().failed(group, now),
        };
        match tell {
            Tell::Nothing => return,
            Tell::Again => debug!(%group, %reason, %object, "objects of removed files cannot be removed"),
            Tell::Begins { left_out } => {
                warn!(%group, %reason, %object, left_out, "objects of removed files cannot be removed: trying on");
            }
        }
        self.core.removable.notify_one();
    }
}

fn object_of(deletion: &Deletion) -> ObjectId {
    ObjectId { inode: deletion.inode, stripe: deletion.stripe }
}

/// What is left of the pause after a pass that `took` so long, in which the thread did nothing else for `reading`.
fn pause_after(reading: Duration, took: Duration) -> Duration {
    (10 * reading).saturating_sub(took).min(BETWEEN_PASSES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_its_group_takes_a_tenth_of_the_thread_at_most() {
        let pause = |reading, took| pause_after(Duration::from_secs(reading), Duration::from_secs(took)).as_secs();
        assert_eq!([pause(0, 0), pause(3, 3), pause(20, 20), pause(60, 61)], [0, 27, 180, 539]);
        assert_eq!(pause(20, 300), 0, "the pass itself has left enough, as it waited for storage");
    }
}
