//! IO500's score: of each group the geometric mean of its phases, and of both groups the geometric mean of these.

/// `None` of nothing. Zero where one of them is zero.
pub(crate) fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    Some((sum / values.len() as f64).exp())
}

/// Of GiB per second, and thousands of operations per second.
pub(crate) fn total(bandwidth: f64, metadata: f64) -> f64 {
    (bandwidth * metadata).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result from the published IO500 lists' arithmetic: four phases of data and eight of metadata.
    #[test]
    fn scores_are_geometric_means() {
        let bandwidth = geometric_mean(&[2.0, 0.5, 4.0, 1.0]).expect("four");
        assert!((bandwidth - 2.0_f64.sqrt()).abs() < 1e-12, "{bandwidth}");
        let metadata = geometric_mean(&[10.0, 10.0, 1000.0, 10.0, 10.0, 10.0, 10.0, 10.0]).expect("eight");
        assert!((metadata - 10.0 * 100.0_f64.powf(0.125)).abs() < 1e-9, "{metadata}");
        assert!((total(4.0, 9.0) - 6.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), Some(0.0));
    }
}
