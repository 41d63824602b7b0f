//! The requests of one target in one lane: so many are at its disk at once, a bounded number waits behind them, and what
//! comes on top is told to come back. So a disk that does not keep up takes neither the memory nor the kernel's workers
//! that the other targets need.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use ring::sync::{Permit, Semaphore};
use telemetry::metrics::{Gauge, Metrics};
use telemetry::names;
use types::id::TargetId;

use crate::pulse::Pulse;

/// Requests that are taken, for each that may be at the disk.
const TAKEN_PER_PLACE: usize = 16;
/// Bytes of requests that are taken. One is taken in any case.
const BYTES_MAX: usize = 64 << 20;
/// What is done for nobody in particular, at once: write-back that is begun early, advice to the kernel.
const ASIDE_MAX: usize = 8;

pub(crate) struct Queue {
    /// Apart, so that reads do not wait behind writes and syncs.
    reads: Rc<Semaphore>,
    changes: Rc<Semaphore>,
    aside: Rc<Semaphore>,
    taken_max: usize,
    taken: Cell<usize>,
    bytes: Cell<usize>,
    depth: Gauge,
    at_disk: Gauge,
    pulse: Arc<Pulse>,
}

impl Queue {
    /// Of a target of whose requests `depth` reads and `depth` changes may be at the disk at once.
    pub(crate) fn new(depth: usize, metrics: &Metrics, target: TargetId, pulse: Arc<Pulse>) -> Rc<Self> {
        let places = |count: usize| Rc::new(Semaphore::new(count));
        let gauge = |def| metrics.gauge(def, &[&target.to_string()]);
        Rc::new(Self {
            reads: places(depth),
            changes: places(depth),
            aside: places(ASIDE_MAX),
            taken_max: depth * TAKEN_PER_PLACE,
            taken: Cell::new(0),
            bytes: Cell::new(0),
            depth: gauge(&names::TARGET_QUEUE_DEPTH),
            at_disk: gauge(&names::TARGET_AT_DISK),
            pulse,
        })
    }

    /// Calls that may block in the kernel at once.
    pub(crate) fn calls_max(depth: usize) -> usize {
        2 * depth + ASIDE_MAX
    }

    /// Takes a request of so many bytes until it is answered; `None` where too many wait already.
    pub(crate) fn take(self: &Rc<Self>, bytes: usize) -> Option<Taken> {
        let (taken, held) = (self.taken.get(), self.bytes.get());
        if taken >= self.taken_max || taken > 0 && held + bytes > BYTES_MAX {
            return None;
        }
        self.taken.set(taken + 1);
        self.bytes.set(held + bytes);
        self.depth.inc();
        Some(Taken { queue: Rc::clone(self), bytes })
    }

    /// Waits for a place of those who only read.
    pub(crate) async fn read(self: &Rc<Self>) -> AtDisk {
        self.at_disk(self.reads.acquire(1).await)
    }

    /// Such a place without waiting; `None` where there is none.
    pub(crate) fn read_at_once(self: &Rc<Self>) -> Option<AtDisk> {
        self.reads.try_acquire(1).map(|place| self.at_disk(place))
    }

    /// Waits for a place of those who change something, or see that it is kept.
    pub(crate) async fn change(self: &Rc<Self>) -> AtDisk {
        self.at_disk(self.changes.acquire(1).await)
    }

    /// For a call that has no place of its own, or goes another way than most: only seen from outside.
    pub(crate) fn call(self: &Rc<Self>) -> Calling {
        self.pulse.begins(ring::now());
        Calling(Rc::clone(self))
    }

    fn at_disk(self: &Rc<Self>, permit: Permit) -> AtDisk {
        self.at_disk.inc();
        AtDisk { _permit: permit, calling: self.call() }
    }

    /// A place for what may as well be left out; `None` where there is none.
    pub(crate) fn aside(&self) -> Option<Permit> {
        self.aside.try_acquire(1)
    }
}

/// A request that is not answered yet.
pub(crate) struct Taken {
    queue: Rc<Queue>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let queue = &self.queue;
        queue.taken.set(queue.taken.get() - 1);
        queue.bytes.set(queue.bytes.get() - self.bytes);
        queue.depth.dec();
    }
}

/// One that is not waiting any more.
pub(crate) struct AtDisk {
    _permit: Permit,
    calling: Calling,
}

impl Drop for AtDisk {
    fn drop(&mut self) {
        self.calling.0.at_disk.dec();
    }
}

/// The disk has something to do.
pub(crate) struct Calling(Rc<Queue>);

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.pulse.ends(ring::now());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn queue(depth: usize) -> Rc<Queue> {
        Queue::new(depth, &Metrics::new("test"), TargetId(1), Arc::new(Pulse::new(Instant::now())))
    }

    #[test]
    fn the_queue_is_bounded_in_requests_and_in_bytes() {
        let queue = queue(2);
        let all: Vec<Taken> = std::iter::from_fn(|| queue.take(1)).collect();
        assert_eq!((all.len(), queue.depth.get()), (32, 32));
        drop(all);
        let huge = queue.take(BYTES_MAX + 1).expect("the only one, however long");
        assert!(queue.take(0).is_none());
        drop(huge);
        let half = queue.take(BYTES_MAX / 2).expect("there is room");
        assert!(queue.take(BYTES_MAX / 2 + 1).is_none() && queue.take(BYTES_MAX / 2).is_some());
        drop(half);
        assert_eq!((queue.taken.get(), queue.bytes.get(), queue.depth.get()), (0, 0, 0));
    }

    #[test]
    fn so_many_are_at_the_disk_and_reads_do_not_wait_for_changes() {
        ring::Ring::new(&ring::Config::default()).expect("io_uring is there").run(async {
            let queue = queue(2);
            let (one, _other) = (queue.change().await, queue.change().await);
            assert!(ring::timeout(Duration::from_millis(5), queue.change()).await.is_err());
            let _read = queue.read().await;
            assert_eq!(queue.at_disk.get(), 3);
            drop(one);
            drop(queue.change().await);
            assert_eq!(queue.at_disk.get(), 2);
            let aside: Vec<Permit> = std::iter::from_fn(|| queue.aside()).collect();
            assert_eq!(aside.len(), ASIDE_MAX);
        });
    }
}
