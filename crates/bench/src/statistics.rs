//! Of few, noisy figures.

/// The middle one; of an even number the mean of the two in the middle. `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The least and the greatest. `None` of nothing.
pub(crate) fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let greatest = values.iter().copied().max_by(f64::total_cmp)?;
    Some((least, greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_an_outlier() {
        assert_eq!(median(&[3.0, 1000.0, 1.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(range(&[3.0, 1.0, 2.0]), Some((1.0, 3.0)));
        assert_eq!(range(&[]), None);
    }
}
