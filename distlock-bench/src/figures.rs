//! Medians, percentiles and spreads of what was measured.

/// Measured values in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value that this share of them does not exceed; 0 if there are none.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let place = (share * last as f64).round() as usize;
        self.0.get(place.min(last)).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Half of them lie between these two.
    pub(crate) fn spread(&self) -> (f64, f64) {
        (self.quantile(0.25), self.quantile(0.75))
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    pub(crate) fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        let sample = Sample::new([5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((sample.min(), sample.median(), sample.max(), sample.len()), (1.0, 3.0, 5.0, 5));
        assert_eq!(sample.spread(), (2.0, 4.0));
        assert_eq!(Sample::default().median(), 0.0);
    }
}
