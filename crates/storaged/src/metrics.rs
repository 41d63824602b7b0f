//! What a storage node counts. Handles are resolved at start; only an error looks one up by its number.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use telemetry::metrics::{Counter, Gauge, Histogram, Metrics};
use telemetry::names;
use types::id::TargetId;
use wire::frame::Status;
use wire::op::Op;

/// Shared by the lanes of a node (each has a clone).
#[derive(Clone)]
pub(crate) struct LaneMetrics {
    metrics: Metrics,
    /// In the order of `Op::ALL`; operations of other services stay empty.
    seconds: Vec<(Op, Histogram)>,
    pub(crate) in_flight: Gauge,
    /// Requests of one turn.
    pub(crate) batch: Histogram,
    pub(crate) epoch: Gauge,
}

impl LaneMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let served = Op::ALL.iter().filter(|op| is_served(**op));
        Self {
            metrics: metrics.clone(),
            seconds: served.map(|&op| (op, metrics.histogram(&names::REQUEST_SECONDS, &[op.name()]))).collect(),
            in_flight: metrics.gauge(&names::REQUESTS_IN_FLIGHT, &[]),
            batch: metrics.histogram(&names::BATCH_REQUESTS, &[]),
            epoch: metrics.gauge(&names::MAP_EPOCH, &[]),
        }
    }

    pub(crate) fn answered(&self, op: Op, took: Duration) {
        if let Some((_, histogram)) = self.seconds.iter().find(|(known, _)| *known == op) {
            histogram.observe(took);
        }
    }

    pub(crate) fn refused(&self, op: Op, status: Status) {
        let error = match status {
            Status::Ok => return,
            Status::Errno(errno) => format!("{errno:?}"),
            Status::StaleMap | Status::NoSession | Status::Busy => format!("{status:?}"),
        };
        self.metrics.counter(&names::REQUEST_ERRORS, &[op.name(), &error]).inc();
    }
}

/// Bytes that went past the page cache.
pub(crate) struct PastCache {
    pub(crate) read: Counter,
    pub(crate) written: Counter,
}

impl PastCache {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counter = |way| metrics.counter(&names::PAST_CACHE_BYTES, &[way]);
        Self { read: counter("read"), written: counter("written") }
    }
}

/// What requests wait for before a target does anything, and how long its disk takes.
pub(crate) struct Waits {
    /// For earlier requests on the same object.
    pub(crate) order: Gauge,
    /// For the memory of reads.
    pub(crate) memory: Gauge,
    pub(crate) sync: Histogram,
}

impl Waits {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        Self {
            order: metrics.gauge(&names::QUEUE_DEPTH, &["order"]),
            memory: metrics.gauge(&names::QUEUE_DEPTH, &["memory"]),
            sync: metrics.histogram(&names::SYNC_SECONDS, &[]),
        }
    }
}

/// Waits for what `queue` counts as waited for meanwhile. What is there at once is not counted.
pub(crate) async fn in_queue<T>(queue: &Gauge, wait: impl Future<Output = T>) -> T {
    let mut wait = pin!(wait);
    let mut guard = None;
    poll_fn(|cx| {
        let polled = wait.as_mut().poll(cx);
        if polled.is_pending() && guard.is_none() {
            queue.inc();
            guard = Some(GaugeGuard(queue));
        }
        polled
    })
    .await
}

/// Counts one in the gauge until it is dropped, also where whoever waits is given up.
struct GaugeGuard<'a>(&'a Gauge);

impl Drop for GaugeGuard<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The bytes of one target.
#[derive(Clone)]
pub(crate) struct TargetMetrics {
    pub(crate) read: Counter,
    pub(crate) written: Counter,
    pub(crate) total: Gauge,
    pub(crate) free: Gauge,
    pub(crate) free_inodes: Gauge,
}

impl TargetMetrics {
    pub(crate) fn new(metrics: &Metrics, target: TargetId) -> Self {
        let target = target.to_string();
        Self {
            read: metrics.counter(&names::READ_BYTES, &[&target]),
            written: metrics.counter(&names::WRITTEN_BYTES, &[&target]),
            total: metrics.gauge(&names::TARGET_TOTAL_BYTES, &[&target]),
            free: metrics.gauge(&names::TARGET_FREE_BYTES, &[&target]),
            free_inodes: metrics.gauge(&names::TARGET_FREE_INODES, &[&target]),
        }
    }
}

fn is_served(op: Op) -> bool {
    op == Op::Ping || (op as u16) >> 8 == 2
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use ring::sync::Semaphore;

    use super::*;

    #[test]
    fn a_queue_counts_those_that_wait_and_no_others() {
        let config = ring::Config { entries: 16, cpu: None, spin: Duration::ZERO, ..ring::Config::default() };
        ring::Ring::new(&config).expect("io_uring is there").run(async {
            let (queue, memory) = (Gauge::default(), Rc::new(Semaphore::new(1)));
            let first = in_queue(&queue, memory.acquire(1)).await;
            assert_eq!(queue.get(), 0, "it was there at once");
            for _ in 0..2 {
                let (queue, memory) = (queue.clone(), Rc::clone(&memory));
                ring::spawn(async move { drop(in_queue(&queue, memory.acquire(1)).await) });
            }
            let given_up = ring::timeout(Duration::from_millis(5), in_queue(&queue, memory.acquire(1))).await;
            assert!(given_up.is_err());
            assert_eq!(queue.get(), 2);
            drop(first);
            drop(memory.acquire(1).await);
            ring::next_turn().await;
            assert_eq!(queue.get(), 0);
        });
    }
}
