//! What a storage node counts. Handles are resolved at start; only an error looks one up by its number.

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
    pub(crate) epoch: Gauge,
}

impl LaneMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let served = Op::ALL.iter().filter(|op| is_served(**op));
        Self {
            metrics: metrics.clone(),
            seconds: served.map(|&op| (op, metrics.histogram(&names::REQUEST_SECONDS, &[op.name()]))).collect(),
            in_flight: metrics.gauge(&names::REQUESTS_IN_FLIGHT, &[]),
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
