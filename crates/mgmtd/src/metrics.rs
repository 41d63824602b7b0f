//! Handles to this service's metrics, resolved once.

use std::collections::BTreeMap;

use cluster::map::{ClusterMap, NodeState, TargetState};
use telemetry::metrics::{Counter, Gauge, Histogram, Metrics, level};
use telemetry::names;

#[derive(Clone, Debug)]
pub(crate) struct MgmtMetrics {
    metrics: Metrics,
    requests: BTreeMap<&'static str, Histogram>,
    pub(crate) heartbeats: Counter,
    pub(crate) subscribers: Gauge,
    /// Events that the owner has not taken yet.
    pub(crate) queue: Gauge,
    in_flight: Gauge,
    pub(crate) batch: Histogram,
    pub(crate) sync: Histogram,
    epoch: Gauge,
}

/// Every operation, as its metric's label shows it.
const OPERATIONS: &[&str] = &[
    "register_node",
    "heartbeat",
    "register_client",
    "get_view",
    "watch_view",
    "set_alias",
    "create_pool",
    "remove_pool",
    "assign_pool",
    "set_target_state",
    "delete_target",
    "delete_node",
];

impl MgmtMetrics {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let histogram = |op: &&'static str| (*op, metrics.histogram(&names::REQUEST_SECONDS, &[op]));
        Self {
            metrics: metrics.clone(),
            requests: OPERATIONS.iter().map(histogram).collect(),
            heartbeats: metrics.counter(&names::HEARTBEATS, &[]),
            subscribers: metrics.gauge(&names::MAP_SUBSCRIBERS, &[]),
            queue: metrics.gauge(&names::QUEUE_DEPTH, &["events"]),
            in_flight: metrics.gauge(&names::REQUESTS_IN_FLIGHT, &[]),
            batch: metrics.histogram(&names::BATCH_REQUESTS, &[]),
            sync: metrics.histogram(&names::SYNC_SECONDS, &[]),
            epoch: metrics.gauge(&names::MAP_EPOCH, &[]),
        }
    }

    /// A request is here, until what this gives goes.
    pub(crate) fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// # Panics
    /// If `op` is not in the list above: a programmer's error.
    pub(crate) fn request(&self, op: &'static str) -> &Histogram {
        self.requests.get(op).expect("every operation is listed")
    }

    pub(crate) fn error(&self, op: &'static str, code: tonic::Code) {
        // Errors are rare enough to be looked up.
        self.metrics.counter(&names::REQUEST_ERRORS, &[op, &format!("{code:?}")]).inc();
    }

    pub(crate) fn show(&self, map: &ClusterMap) {
        self.epoch.set(level(map.epoch.0));
        for state in [NodeState::Online, NodeState::ProbablyOffline, NodeState::Offline] {
            let count = map.nodes.values().filter(|node| node.state == state).count();
            self.metrics.gauge(&names::NODES, &[&state.to_string()]).set(level(count));
        }
        for state in [TargetState::Good, TargetState::NeedsResync, TargetState::Bad] {
            let count = map.targets.values().filter(|target| target.state == state).count();
            self.metrics.gauge(&names::TARGETS, &[&state.to_string()]).set(level(count));
        }
    }
}

/// A request that is not answered yet. Whoever hangs up takes his request with him.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
