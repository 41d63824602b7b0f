//! How long requests took, of any bench: counted in buckets of a sixteenth of an octave, so that a percentile is at most
//! 6.25 % too high. Pure.

use std::time::Duration;

use wire::v1::bench::BenchLatency;

/// Buckets per octave, as a power of two.
const FINE_BITS: u32 = 4;
const FINE: u64 = 1 << FINE_BITS;
/// For all 64-bit numbers of nanoseconds.
const BUCKETS: usize = ((64 - FINE_BITS as usize) + 1) << FINE_BITS;

/// Counts of one thread.
#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    #[must_use]
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }

    pub fn note(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
    }

    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// The buckets that have anything, the fastest first.
    #[must_use]
    pub fn latencies(&self) -> Vec<BenchLatency> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, &count)| BenchLatency { at_most_ns: at_most(bucket), count }).collect()
    }
}

/// What `share` (0..1) of those counted took at most, in nanoseconds. `None` of nothing.
#[must_use]
pub fn percentile(latencies: &[BenchLatency], share: f64) -> Option<u64> {
    let all: u64 = latencies.iter().map(|latency| latency.count).sum();
    let wanted = (all as f64 * share).ceil().max(1.0) as u64;
    let mut seen = 0;
    let reaches = |latency: &&BenchLatency| {
        seen += latency.count;
        seen >= wanted
    };
    latencies.iter().find(reaches).or(latencies.last()).map(|latency| latency.at_most_ns)
}

/// Below 16 every number has its own; above, the highest bit chooses the octave and the next four the place in it.
fn bucket(ns: u64) -> usize {
    if ns < FINE {
        return ns as usize;
    }
    let octave = ns.ilog2() - FINE_BITS;
    ((u64::from(octave) << FINE_BITS) + (ns >> octave)) as usize
}

/// The largest number in a bucket.
fn at_most(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket;
    }
    let octave = (bucket >> FINE_BITS) - 1;
    let first = (FINE + (bucket & (FINE - 1))) << octave;
    first + ((1 << octave) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_the_bucket_that_ends_at_or_closely_above_it() {
        let mut numbers: Vec<u64> = (0..2000).collect();
        numbers.extend((4..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1, u64::MAX >> (63 - bit)]));
        for ns in numbers {
            let limit = at_most(bucket(ns));
            assert!(limit >= ns && limit - ns <= ns / 16, "{ns} is said to be at most {limit}");
            assert!(bucket(ns) == 0 || at_most(bucket(ns) - 1) < ns, "{ns} belongs to an earlier bucket");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
        assert_eq!(at_most(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn counts_of_threads_are_added() {
        let (mut one, mut other) = (Histogram::new(), Histogram::new());
        one.note(Duration::from_micros(10));
        other.note(Duration::from_micros(10));
        other.note(Duration::from_secs(1));
        one.add(&other);
        let counts: Vec<u64> = one.latencies().iter().map(|latency| latency.count).collect();
        assert_eq!(counts, [2, 1]);
    }
}
