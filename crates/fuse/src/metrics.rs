//! How long the operations take.

use std::time::Duration;

use telemetry::metrics::{Histogram, Metrics};
use telemetry::names::FUSE_SECONDS;

use crate::abi::Opcode;

/// The histograms of one loop, resolved at start; by operation number.
pub(crate) struct OperationMetrics {
    by_opcode: Vec<Option<Histogram>>,
}

impl OperationMetrics {
    /// Records nothing where there is no registry.
    pub(crate) fn new(metrics: Option<&Metrics>) -> Self {
        let mut by_opcode = Vec::new();
        if let Some(metrics) = metrics {
            for &opcode in Opcode::ALL {
                by_opcode.resize(by_opcode.len().max(opcode as usize + 1), None);
                by_opcode[opcode as usize] = Some(metrics.histogram(&FUSE_SECONDS, &[opcode.label()]));
            }
        }
        Self { by_opcode }
    }

    pub(crate) fn observe(&self, opcode: Opcode, took: Duration) {
        if let Some(Some(histogram)) = self.by_opcode.get(opcode as usize) {
            histogram.observe(took);
        }
    }
}
