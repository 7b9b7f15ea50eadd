//! Instants and durations. `now` is a parameter everywhere outside `io`, and always the last one.

/// Nanoseconds of CLOCK_MONOTONIC.
pub type Nanos = i64;
