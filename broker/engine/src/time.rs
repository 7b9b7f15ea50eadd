//! Instants, durations, and the wall clock beside them.
//!
//! `now` is a parameter everywhere outside `io`, and always the last one.

/// Nanoseconds of CLOCK_MONOTONIC.
pub type Nanos = i64;

pub const NS_PER_S: Nanos = 1_000_000_000;

/// How long a client may take for a request, or block what is written to it, before its connection ends: 30 s.
pub const PATIENCE_NS: Nanos = 30 * NS_PER_S;

/// How long a client may take for a TLS handshake, or nobody for a message that is to leave: 5 s.
pub const SHORT_PATIENCE_NS: Nanos = 5 * NS_PER_S;

/// A change of the wall clock's offset by more than 1 ms is a step: slewing moves it by 0.05 % at most.
pub const STEP_NS: Nanos = 1_000_000;

/// Offsets of the wall clock and CLOCK_BOOTTIME to the monotonic clock. The caller sets them; nothing here reads a
/// clock.
#[derive(Debug)]
pub struct WallClock {
    offset: i64,      // wall clock minus monotonic clock
    latest: i64,      // latest wall time given to a message
    floor: i64,       // no message gets this or an earlier one: it was given before the wall clock went back
    suspended: Nanos, // CLOCK_BOOTTIME minus CLOCK_MONOTONIC
}

impl Default for WallClock {
    fn default() -> Self {
        Self { offset: 0, latest: i64::MIN, floor: i64::MIN, suspended: 0 }
    }
}

impl WallClock {
    /// Wall clock minus monotonic clock, from now on.
    pub fn set_offset(&mut self, offset: i64) {
        if offset < self.offset - STEP_NS {
            self.floor = self.latest;
        }
        self.offset = offset;
    }

    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The wall time at `now`.
    pub fn wall(&self, now: Nanos) -> i64 {
        now + self.offset
    }

    /// The wall time of a message, later than any given before the wall clock last went back.
    pub(crate) fn of_message(&mut self, stamp: Nanos) -> i64 {
        let wall_ns = stamp + self.offset;
        if wall_ns > self.floor {
            self.latest = self.latest.max(wall_ns);
            return wall_ns;
        }
        self.floor += 1;
        self.latest = self.floor;
        self.floor
    }

    /// Sets CLOCK_BOOTTIME minus CLOCK_MONOTONIC: before every turn while an engine `has_leases`, and before commands.
    pub fn set_suspended(&mut self, suspended: Nanos) {
        self.suspended = suspended;
    }

    pub(crate) fn suspended(&self) -> Nanos {
        self.suspended
    }

    /// CLOCK_BOOTTIME at `now`.
    pub(crate) fn boot(&self, now: Nanos) -> Nanos {
        now + self.suspended
    }
}
