//! A histogram of the latencies of every message of a run.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::time::nanos;

/// Maximum latency in nanoseconds, a minute; longer ones count as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Significant digits: values that differ by less than a thousandth count as equal.
const DIGITS: u8 = 3;

/// The latencies recorded so far.
#[derive(Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    /// Creates an empty histogram.
    pub fn new() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("bounds and digits are allowed ones"))
    }

    /// Records a latency.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(nanos(latency));
    }

    /// Returns the quantiles of the recorded latencies.
    pub fn quantiles(&self) -> Quantiles {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Quantiles {
            count: self.0.len(),
            min_ns: self.0.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            max_ns: self.0.max(),
        }
    }
}

/// Latency quantiles, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of messages.
    pub count: u64,
    /// Minimum.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// 99.99th percentile.
    pub p9999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_recorded() {
        let mut latencies = Latencies::new();
        (1..=10_000).for_each(|micros| latencies.record(Duration::from_micros(micros)));
        let found = latencies.quantiles();
        assert_eq!(found.count, 10_000);
        for (value, micros) in
            [(found.p50_ns, 5000), (found.p90_ns, 9000), (found.p99_ns, 9900), (found.max_ns, 10_000)]
        {
            assert!(value.abs_diff(micros * 1000) <= micros, "{found:?}");
        }
        latencies.record(Duration::MAX);
        assert_eq!(latencies.quantiles().max_ns / 1_000_000_000, 60);
        assert_eq!(Latencies::new().quantiles(), Quantiles::default());
    }
}
