//! How long the operations take, and how they fail.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use telemetry::metrics::{Counter, Gauge, Histogram, Metrics};
use telemetry::names::{FUSE_SECONDS, REQUEST_ERRORS, REQUESTS_IN_FLIGHT};
use types::error::Errno;

use crate::abi::Opcode;

/// The histograms of one loop, resolved at start; by operation number.
pub(crate) struct OperationMetrics {
    by_opcode: Vec<Option<Histogram>>,
    metrics: Option<Metrics>,
    in_flight: Gauge,
    /// Errors so far, by operation number and error number.
    errors: RefCell<BTreeMap<(u32, u16), Counter>>,
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
        let in_flight = metrics.map(|metrics| metrics.gauge(&REQUESTS_IN_FLIGHT, &[])).unwrap_or_default();
        Self { by_opcode, metrics: metrics.cloned(), in_flight, errors: RefCell::default() }
    }

    /// A request of the kernel is here, until what this gives goes.
    pub(crate) fn begin(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight(&self.in_flight)
    }

    pub(crate) fn failed(&self, opcode: Opcode, error: Errno) {
        let Some(metrics) = &self.metrics else { return };
        let mut errors = self.errors.borrow_mut();
        let counter = errors
            .entry((opcode as u32, error.0))
            .or_insert_with(|| metrics.counter(&REQUEST_ERRORS, &[opcode.label(), &format!("{error:?}")]));
        counter.inc();
    }

    pub(crate) fn observe(&self, opcode: Opcode, took: Duration) {
        if let Some(Some(histogram)) = self.by_opcode.get(opcode as usize) {
            histogram.observe(took);
        }
    }
}

pub(crate) struct InFlight<'a>(&'a Gauge);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
