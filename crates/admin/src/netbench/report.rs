//! What was measured. Pure.

use net::bench::Measure;
use serde::Serialize;
use wire::v1::netbench::{NetLoad, NetPlan};

use crate::storagebench::Latency;

/// As rows call the host of the command.
pub(super) const HERE: &str = "this host";

/// All rows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Bytes of one request.
    pub block_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
    pub threads: u32,
    /// Of each measurement.
    pub duration_ms: u64,
    pub rows: Vec<Row>,
}

/// One way between two hosts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    pub from: String,
    pub to: String,
    /// The rail, or what stands for several.
    pub way: String,
    /// Of empty requests, one at a time.
    pub round_trip: Option<Latency>,
    pub write: Option<Figure>,
    pub read: Option<Figure>,
    /// Why something is missing.
    pub failure: Option<String>,
}

/// One load over it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figure {
    pub bytes_per_second: f64,
    pub requests: u64,
    pub seconds: f64,
    pub latency: Latency,
}

impl Report {
    pub(super) fn begin(plan: &NetPlan) -> Self {
        let NetPlan { block, depth, threads, duration_ms } = *plan;
        Self { block_bytes: block, depth, threads, duration_ms, rows: Vec::new() }
    }

    /// Something is missing.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| row.failure.is_some())
    }
}

impl Row {
    pub(super) fn new(from: &str, to: &str, way: &str) -> Self {
        let (from, to, way) = (from.to_owned(), to.to_owned(), way.to_owned());
        Self { from, to, way, round_trip: None, write: None, read: None, failure: None }
    }

    pub(super) fn fail(&mut self, failure: String) {
        self.failure = Some(failure);
    }

    /// What ended before its time has no figure.
    pub(super) fn note(&mut self, load: NetLoad, measure: &Measure) {
        if let Some(failure) = &measure.failure {
            return self.fail(failure.clone());
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let Measure { p50_ns, p99_ns, p999_ns, max_ns, requests, bytes, .. } = *measure;
        let latency = Latency { p50_us: us(p50_ns), p99_us: us(p99_ns), p999_us: us(p999_ns), max_us: us(max_ns) };
        let seconds = measure.elapsed.as_secs_f64();
        if requests == 0 || seconds == 0.0 {
            return self.fail("not one request was answered".to_owned());
        }
        let figure = Figure { bytes_per_second: bytes as f64 / seconds, requests, seconds, latency };
        match load {
            NetLoad::Ping => self.round_trip = Some(latency),
            NetLoad::Write => self.write = Some(figure),
            NetLoad::Read => self.read = Some(figure),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_was_cut_short_has_no_figure() {
        let mut row = Row::new(HERE, "a", "x");
        let whole = Measure { requests: 4, bytes: 4_000, elapsed: Duration::from_secs(2), ..Measure::default() };
        row.note(NetLoad::Write, &whole);
        row.note(NetLoad::Read, &Measure { failure: Some("it died".to_owned()), ..whole });
        assert_eq!(row.write.map(|write| write.bytes_per_second), Some(2_000.0));
        assert_eq!((row.read, row.failure.as_deref()), (None, Some("it died")));
        row.note(NetLoad::Read, &Measure::default());
        assert_eq!(row.failure.as_deref(), Some("not one request was answered"));
    }
}
