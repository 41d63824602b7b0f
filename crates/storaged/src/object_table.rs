//! What a lane knows of the objects of one target: versions, tombstones, and who works on what.
//!
//! Versions rise over all objects of the table, so that one given out for any of them tells which changes of another came
//! before it. Kept in memory alone and bounded. Forgetting is safe: a forgotten version reads as one at least as new as any
//! forgotten one, so a caller that expects an older one is refused and looks again.

use std::cell::RefCell;
use std::rc::Rc;

use ring::sync::{Sender, oneshot};
use rustc_hash::FxHashMap;
use types::id::ObjectId;
use types::time::Timestamp;

use crate::bounded_map::BoundedMap;
use crate::order::{Access, Order, Ticket};

/// Versions remembered for a target and lane.
const VERSIONS_MAX: usize = 1 << 16;
/// Removed objects remembered for a target and lane.
const TOMBSTONES_MAX: usize = 1 << 16;
/// Low bits of a version that count changes; those above are the service's incarnation. With ten thousand changes a second of
/// one lane, enough for three years without a restart; with a hundred thousand, for four months.
const COUNTER_BITS: u32 = 40;
/// Incarnations that the clock may come to, in 2043: three quarters of those that there are bits for, so that one that is
/// years ahead leaves enough.
const BY_CLOCK_MAX: u64 = 3 << 22;

/// All versions that a service of this incarnation gives out are higher; those of earlier ones are lower.
pub(crate) fn first_version(incarnation: u64) -> u64 {
    incarnation << COUNTER_BITS
}

pub(crate) fn incarnation_of(version: u64) -> u64 {
    version >> COUNTER_BITS
}

/// The least that an incarnation that begins now is counted as: higher than all before, also where what counted them is an
/// older copy that was put back.
pub(crate) fn incarnation_by_clock(now: Timestamp) -> u64 {
    (now.seconds_since_2020() / 60).min(BY_CLOCK_MAX)
}

pub(crate) struct ObjectTable {
    state: RefCell<State>,
}

struct State {
    versions: BoundedMap<ObjectId, u64>,
    tombstones: BoundedMap<ObjectId, ()>,
    busy: FxHashMap<ObjectId, Busy>,
    /// The newest version given out.
    newest: u64,
    /// The version of every object that is not in `versions`.
    floor: u64,
}

/// An object with operations in flight.
#[derive(Default)]
struct Busy {
    order: Order,
    waiting: Vec<(Ticket, Sender<()>)>,
}

impl ObjectTable {
    /// `incarnation` is higher at each start of the service, so versions rise over restarts.
    pub(crate) fn new(incarnation: u64) -> Rc<Self> {
        let first = first_version(incarnation);
        Rc::new(Self {
            state: RefCell::new(State {
                versions: BoundedMap::new(VERSIONS_MAX),
                tombstones: BoundedMap::new(TOMBSTONES_MAX),
                busy: FxHashMap::default(),
                newest: first,
                floor: first,
            }),
        })
    }

    /// Waits until nothing that came earlier conflicts. The operation lasts until the [`Running`] is dropped.
    pub(crate) async fn begin(self: &Rc<Self>, object: ObjectId, access: Access) -> Running {
        let (running, turn) = {
            let mut state = self.state.borrow_mut();
            let busy = state.busy.entry(object).or_default();
            let (ticket, ready) = busy.order.begin(access);
            let turn = (!ready).then(|| {
                let (sender, receiver) = oneshot();
                busy.waiting.push((ticket, sender));
                receiver
            });
            (Running { table: Rc::clone(self), object, ticket }, turn)
        };
        if let Some(turn) = turn {
            turn.await;
        }
        running
    }

    pub(crate) fn version(&self, object: ObjectId) -> u64 {
        let state = self.state.borrow();
        state.versions.get(&object).copied().unwrap_or(state.floor)
    }

    /// The newest version given out.
    pub(crate) fn newest(&self) -> u64 {
        self.state.borrow().newest
    }

    /// Notes a change and returns the new version.
    pub(crate) fn changed(&self, object: ObjectId) -> u64 {
        let mut state = self.state.borrow_mut();
        state.newest += 1;
        let version = state.newest;
        let forgotten = state.versions.insert(object, version);
        let floor = forgotten.into_values().max().unwrap_or(0);
        state.floor = state.floor.max(floor);
        version
    }

    pub(crate) fn bury(&self, object: ObjectId) {
        self.state.borrow_mut().tombstones.insert(object, ());
    }

    pub(crate) fn is_buried(&self, object: ObjectId) -> bool {
        self.state.borrow().tombstones.contains(&object)
    }

    /// Objects with operations in flight.
    pub(crate) fn busy_count(&self) -> usize {
        self.state.borrow().busy.len()
    }

    fn finish(&self, object: ObjectId, ticket: Ticket) {
        let mut state = self.state.borrow_mut();
        let Some(busy) = state.busy.get_mut(&object) else { return };
        let Busy { order, waiting } = busy;
        order.finish(ticket, |started| {
            if let Some(at) = waiting.iter().position(|(ticket, _)| *ticket == started) {
                waiting.swap_remove(at).1.send(());
            }
        });
        waiting.retain(|(waiter, _)| *waiter != ticket);
        if order.is_empty() {
            state.busy.remove(&object);
        }
    }
}

/// An operation that has its turn.
pub(crate) struct Running {
    table: Rc<ObjectTable>,
    object: ObjectId,
    ticket: Ticket,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.table.finish(self.object, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;
    use types::id::InodeId;

    fn object(inode: u64) -> ObjectId {
        ObjectId { inode: InodeId(inode), stripe: 0 }
    }

    fn on_ring(test: impl Future<Output = ()>) {
        let config = ring::Config { entries: 16, spin: Duration::ZERO, ..ring::Config::default() };
        ring::Ring::new(&config).expect("io_uring is there").run(test);
    }

    #[test]
    fn versions_rise_with_changes_restarts_and_forgetting() {
        let table = ObjectTable::new(7);
        let before = table.version(object(1));
        let first = table.changed(object(1));
        assert!(first > before);
        assert_eq!(table.version(object(1)), first);
        assert_eq!(table.version(object(2)), before, "a change of one object is none of another");
        for inode in 100..100 + VERSIONS_MAX as u64 {
            table.changed(object(inode));
        }
        assert!(table.version(object(1)) >= first, "a forgotten version went backwards");
        assert!(table.changed(object(1)) > first);
        assert!(ObjectTable::new(8).version(object(1)) > table.changed(object(1)));
    }

    #[test]
    fn incarnations_rise_by_the_clock_which_leaves_some_for_when_it_is_wrong() {
        let minute = |seconds| incarnation_by_clock(Timestamp::from_parts(seconds, 0));
        assert_eq!(minute(1_795_824_060), minute(1_795_824_000) + 1);
        assert_eq!((minute(0), minute(i64::MIN), minute(i64::MAX)), (0, 0, BY_CLOCK_MAX));
        assert_eq!(incarnation_of(first_version(BY_CLOCK_MAX * 5 / 4)), BY_CLOCK_MAX * 5 / 4, "there is room for it");
    }

    #[test]
    fn tombstones_are_remembered_and_bounded() {
        let table = ObjectTable::new(1);
        table.bury(object(1));
        assert!(table.is_buried(object(1)) && !table.is_buried(object(2)));
        for inode in 2..4 * TOMBSTONES_MAX as u64 {
            table.bury(object(inode));
        }
        assert!(table.state.borrow().tombstones.len() <= TOMBSTONES_MAX);
        assert!(table.is_buried(object(4 * TOMBSTONES_MAX as u64 - 1)));
    }

    #[test]
    fn conflicting_operations_take_turns_and_leave_nothing_behind() {
        on_ring(async {
            let table = ObjectTable::new(1);
            let log = Rc::new(RefCell::new(Vec::new()));
            let first = table.begin(object(1), Access::Write { start: 0, end: 10 }).await;
            let started = Rc::new(Cell::new(0));
            for (name, access) in [("second", Access::Write { start: 5, end: 6 }), ("third", Access::Barrier)] {
                let (table, log, started) = (Rc::clone(&table), Rc::clone(&log), Rc::clone(&started));
                ring::spawn(async move {
                    started.set(started.get() + 1);
                    let _running = table.begin(object(1), access).await;
                    log.borrow_mut().push(name);
                });
            }
            while started.get() < 2 {
                ring::yield_now().await;
            }
            // Another object is not held up.
            drop(table.begin(object(2), Access::Barrier).await);
            log.borrow_mut().push("first");
            drop(first);
            let last = table.begin(object(1), Access::Barrier).await;
            assert_eq!(*log.borrow(), ["first", "second", "third"]);
            drop(last);
            assert_eq!(table.busy_count(), 0);
        });
    }
}
