//! What a mount shows of its memory and its map. Handles are resolved once; without a registry they count for nobody.

use telemetry::metrics::{Gauge, Metrics, level};
use telemetry::names;

/// Bytes that are kept: a sum over all files, which everybody who keeps some has a part of.
#[derive(Clone, Default, Debug)]
pub(crate) struct Bytes(Gauge);

impl Bytes {
    /// What was `before` bytes is `after` now.
    pub(crate) fn change(&self, before: usize, after: usize) {
        self.0.inc_by(level(after) - level(before));
    }

    pub(crate) fn get(&self) -> usize {
        usize::try_from(self.0.get()).unwrap_or(0)
    }
}

#[derive(Default)]
pub(crate) struct ClientMetrics {
    pub(crate) epoch: Gauge,
    /// Contents of small files that are kept under leases.
    pub(crate) contents: Bytes,
    /// What was read ahead.
    pub(crate) ahead: Bytes,
    /// What programs wrote and no server has yet.
    pub(crate) unwritten: Bytes,
}

impl ClientMetrics {
    pub(crate) fn new(metrics: Option<&Metrics>) -> Self {
        let Some(metrics) = metrics else { return Self::default() };
        let kept = |what| Bytes(metrics.gauge(&names::KEPT_BYTES, &[what]));
        let (contents, ahead, unwritten) = (kept("contents"), kept("ahead"), kept("unwritten"));
        Self { epoch: metrics.gauge(&names::MAP_EPOCH, &[]), contents, ahead, unwritten }
    }
}
