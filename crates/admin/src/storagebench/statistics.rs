//! Robust statistics: one wild value changes none of them much. Pure.

use std::collections::BTreeMap;

pub(super) use net::bench::histogram::percentile;
use wire::v1::bench::BenchLatency;

/// Makes a median absolute deviation comparable with the standard deviation of a normal distribution.
const NORMAL: f64 = 1.4826;

/// The middle one; of an even number the mean of the two in the middle. `None` of nothing.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => sorted.get(middle).copied(),
        _ => Some(f64::midpoint(*sorted.get(middle - 1)?, *sorted.get(middle)?)),
    }
}

/// How far values lie from their median, as a standard deviation that outliers cannot stretch. 0 of nothing.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let Some(center) = median(values) else { return 0.0 };
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    NORMAL * median(&distances).unwrap_or(0.0)
}

/// All counts of several targets together.
pub(super) fn merged<'a>(lists: impl Iterator<Item = &'a [BenchLatency]>) -> Vec<BenchLatency> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for latency in lists.flatten() {
        let count = counts.entry(latency.at_most_ns).or_default();
        *count = count.saturating_add(latency.count);
    }
    counts.into_iter().map(|(at_most_ns, count)| BenchLatency { at_most_ns, count }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(at_most_ns: u64, count: u64) -> BenchLatency {
        BenchLatency { at_most_ns, count }
    }

    #[test]
    fn one_wild_value_changes_little() {
        assert_eq!(median(&[3.0, 1000.0, 1.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert!((deviation(&[9.0, 10.0, 11.0]) - 1.4826).abs() < 1e-9);
        assert!((deviation(&[9.0, 10.0, 11.0, 10.0, 1e9]) - 1.4826).abs() < 1e-9);
        assert_eq!(deviation(&[]), 0.0);
    }

    #[test]
    fn percentiles_count_blocks_of_all_targets() {
        let (one, other) = (vec![latency(10, 98)], vec![latency(10, 1), latency(500, 1)]);
        let all = merged([one.as_slice(), other.as_slice()].into_iter());
        assert_eq!(all, [latency(10, 99), latency(500, 1)]);
        assert_eq!(percentile(&all, 0.5), Some(10));
        assert_eq!(percentile(&all, 0.99), Some(10));
        assert_eq!(percentile(&all, 0.999), Some(500));
        assert_eq!(percentile(&all, 1.0), Some(500));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
