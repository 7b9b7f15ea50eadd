//! What is known of traffic: counters, latency histograms, bins of arrivals, changes of a rate, measurements.
//!
//! Pure: imports `arrival`, `limiter`, `keys`, `time` and `timer`. Begin with `arrival_bins`, then `change_detector`.

pub mod arrival_bins;
pub mod change_detector;
pub mod counters;
pub mod drift_detector;
pub mod e2e_latency;
pub mod latency;
pub mod latency_buckets;
pub mod measurement;
pub mod network_delay;
mod share_rates;
pub mod watch_list;
