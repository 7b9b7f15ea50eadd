//! Latencies in nanoseconds, 1 ns to 1 h, three digits; encoded as HDR V2 (deflate, base64) for merging.

use base64::Engine as _;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

const HIGHEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

pub struct Latencies(Histogram<u64>);

#[derive(Debug, Clone, Copy, Default)]
pub struct Percentiles {
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

impl Latencies {
    pub fn new() -> Latencies {
        // safe: the bounds are constants that the crate accepts
        Latencies(Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS).expect("constant bounds"))
    }

    /// Anything below 1 ns counts as 1 ns, above 1 h as 1 h.
    pub fn record(&mut self, latency_ns: i64) {
        self.0.saturating_record(latency_ns.max(1) as u64);
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn max_ms(&self) -> f64 {
        self.0.max() as f64 / 1e6
    }

    /// `percentile` in 0..=100; 0 if nothing was recorded.
    pub fn at_percentile_ms(&self, percentile: f64) -> f64 {
        self.at_quantile_ms(percentile / 100.0)
    }

    fn at_quantile_ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e6
    }

    pub fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50_ms: self.at_quantile_ms(0.5),
            p95_ms: self.at_quantile_ms(0.95),
            p99_ms: self.at_quantile_ms(0.99),
            p999_ms: self.at_quantile_ms(0.999),
            max_ms: self.max_ms(),
        }
    }

    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        // safe: writing into a Vec does not fail, and the counts fit the format
        V2DeflateSerializer::new().serialize(&self.0, &mut bytes).expect("a histogram in memory");
        base64::engine::general_purpose::STANDARD.encode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn percentiles_are_in_milliseconds_within_a_thousandth() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|ms| latencies.record(ms * 1_000_000));
        let p = latencies.percentiles();
        for (measured, expected) in
            [(p.p50_ms, 500.0), (p.p95_ms, 950.0), (p.p99_ms, 990.0), (p.p999_ms, 999.0), (p.max_ms, 1000.0)]
        {
            assert!((measured - expected).abs() <= expected / 1000.0, "{measured} is not {expected}");
        }
    }

    #[test]
    fn what_is_encoded_can_be_read_back() {
        let mut latencies = Latencies::new();
        [-5, 0, 123_456, i64::MAX].into_iter().for_each(|ns| latencies.record(ns));
        let bytes = base64::engine::general_purpose::STANDARD.decode(latencies.encode()).expect("base64");
        let back: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).expect("HDR V2");
        assert_eq!(back, latencies.0);
        assert_eq!(back.len(), 4);
    }
}
