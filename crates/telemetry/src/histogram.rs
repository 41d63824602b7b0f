//! Histograms with fixed buckets: one observation is a short search and two relaxed additions, without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in nanoseconds: 10 us to 10 s in steps of 1, 2, 5.
const SECONDS: &[u64] = &[
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];
/// Upper bounds of counts: powers of two.
const SIZES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// A distribution of durations or counts. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Cells>);

#[derive(Debug)]
struct Cells {
    bounds: &'static [u64],
    /// Recorded units in one shown unit: 1e9 for durations, recorded in nanoseconds and shown in seconds.
    divisor: f64,
    /// One per bound, and one for what is above the last.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Of durations; shown in seconds.
    #[must_use]
    pub fn seconds() -> Self {
        Self::new(SECONDS, 1e9)
    }

    /// Of numbers of things.
    #[must_use]
    pub fn sizes() -> Self {
        Self::new(SIZES, 1.0)
    }

    fn new(bounds: &'static [u64], divisor: f64) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Cells { bounds, divisor, buckets, sum: AtomicU64::new(0) }))
    }

    /// Records one duration in a histogram made by [`Histogram::seconds`].
    pub fn observe(&self, duration: Duration) {
        self.record(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Records one value: nanoseconds, or a count.
    pub fn record(&self, value: u64) {
        let cells = &*self.0;
        let bucket = cells.bounds.partition_point(|&bound| bound < value);
        cells.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        cells.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Number of values recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let cells = &*self.0;
        let counts: Vec<u64> = cells.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let bounds = cells.bounds.iter().map(|&bound| bound as f64 / cells.divisor).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
        let sum = cells.sum.load(Ordering::Relaxed) as f64 / cells.divisor;
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_bucket_whose_bound_it_reaches() {
        let histogram = Histogram::sizes();
        for value in [0, 1, 2, 3, 4096, 4097] {
            histogram.record(value);
        }
        let counts: Vec<u64> = histogram.0.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        assert_eq!((counts[0], counts[1], counts[2], counts[12], counts[13]), (2, 1, 1, 1, 1));
        assert_eq!(histogram.count(), 6);
    }
}
