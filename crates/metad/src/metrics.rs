//! What a metadata service counts. Handles are resolved at start; only an error looks one up by its number.

use std::cell::Cell;
use std::time::Duration;

use cluster::capacity::Capacity;
use telemetry::metrics::{Counter, Gauge, Histogram, Metrics, level};
use telemetry::names;
use types::id::TargetId;
use wire::frame::Status;
use wire::op::Op;

pub(crate) struct ShardMetrics {
    metrics: Metrics,
    /// By the operation's number; those of storage lanes stay empty.
    seconds: Vec<Option<Histogram>>,
    pub(crate) batch: Histogram,
    pub(crate) commit: Histogram,
    pub(crate) queue: Part,
    pub(crate) waiting_for_sync: Part,
    pub(crate) parked: Part,
    pub(crate) waiting_for_locks: Part,
    pub(crate) waiting_for_transactions: Part,
    pub(crate) recalls: Counter,
    pub(crate) deletions: Part,
    pub(crate) grown: Counter,
    pub(crate) sessions: Part,
    pub(crate) open_inodes: Part,
    pub(crate) epoch: Gauge,
    total_bytes: Gauge,
    free_bytes: Gauge,
    free_inodes: Gauge,
}

/// One shard's part of a gauge that is the sum over all shards of the process.
pub(crate) struct Part {
    sum: Gauge,
    own: Cell<i64>,
}

impl Part {
    fn of(sum: Gauge) -> Self {
        Self { sum, own: Cell::new(0) }
    }

    pub(crate) fn set(&self, value: i64) {
        self.sum.inc_by(value - self.own.replace(value));
    }
}

impl ShardMetrics {
    pub(crate) fn new(metrics: &Metrics, target: TargetId) -> Self {
        let (target, mut seconds) = (target.to_string(), Vec::new());
        for &op in Op::ALL.iter().filter(|op| (**op as u16) < STORAGE) {
            let index = op as usize;
            seconds.resize(seconds.len().max(index + 1), None);
            seconds[index] = Some(metrics.histogram(&names::REQUEST_SECONDS, &[op.name()]));
        }
        Self {
            metrics: metrics.clone(),
            seconds,
            batch: metrics.histogram(&names::BATCH_REQUESTS, &[]),
            commit: metrics.histogram(&names::COMMIT_SECONDS, &[]),
            queue: Part::of(metrics.gauge(&names::QUEUE_DEPTH, &["requests"])),
            waiting_for_sync: Part::of(metrics.gauge(&names::QUEUE_DEPTH, &["sync"])),
            parked: Part::of(metrics.gauge(&names::QUEUE_DEPTH, &["leases"])),
            waiting_for_locks: Part::of(metrics.gauge(&names::QUEUE_DEPTH, &["locks"])),
            waiting_for_transactions: Part::of(metrics.gauge(&names::QUEUE_DEPTH, &["transactions"])),
            recalls: metrics.counter(&names::RECALLS, &[]),
            grown: metrics.counter(&names::INLINE_FILES_GROWN, &[]),
            deletions: Part::of(metrics.gauge(&names::DELETIONS_PENDING, &[])),
            sessions: Part::of(metrics.gauge(&names::SESSIONS, &[])),
            open_inodes: Part::of(metrics.gauge(&names::OPEN_INODES, &[])),
            epoch: metrics.gauge(&names::MAP_EPOCH, &[]),
            total_bytes: metrics.gauge(&names::TARGET_TOTAL_BYTES, &[&target]),
            free_bytes: metrics.gauge(&names::TARGET_FREE_BYTES, &[&target]),
            free_inodes: metrics.gauge(&names::TARGET_FREE_INODES, &[&target]),
        }
    }

    /// Of the target: its part of its file system.
    pub(crate) fn space(&self, capacity: &Capacity) {
        self.total_bytes.set(level(capacity.total_bytes));
        self.free_bytes.set(level(capacity.free_bytes));
        self.free_inodes.set(level(capacity.free_inodes));
    }

    pub(crate) fn answered(&self, op: Op, status: Status, took: Duration) {
        if let Some(Some(seconds)) = self.seconds.get(op as usize) {
            seconds.observe(took);
        }
        let error = match status {
            Status::Ok => return,
            Status::Errno(errno) => format!("{errno:?}"),
            Status::StaleMap | Status::NoSession | Status::Busy => format!("{status:?}"),
        };
        self.metrics.counter(&names::REQUEST_ERRORS, &[op.name(), &error]).inc();
    }
}

/// Operations from here on belong to storage lanes.
const STORAGE: u16 = 0x0200;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever watches storage targets by these names watches those of shards as well.
    #[test]
    fn a_target_of_a_shard_tells_its_space_as_those_of_storage_do() {
        let metrics = Metrics::new("metad");
        let capacity = Capacity { total_bytes: 100, free_bytes: 40, total_inodes: 9, free_inodes: 5 };
        ShardMetrics::new(&metrics, TargetId(7)).space(&capacity);
        let text = metrics.text();
        for (name, value) in [("total_bytes", 100), ("free_bytes", 40), ("free_inodes", 5)] {
            let line = format!(r#"weft_target_{name}{{service="metad",target="7"}} {value}"#);
            assert!(text.contains(&line), "no {line} in\n{text}");
        }
    }
}
