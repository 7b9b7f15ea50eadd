//! The two clocks. Kernel stamps are CLOCK_REALTIME; everything else is CLOCK_MONOTONIC, so that a step of the wall clock neither mints nor burns tokens.

use crate::bucket::Nanos;

fn read(clock: libc::clockid_t) -> Nanos {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid timespec that outlives the call.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at.tv_sec * 1_000_000_000 + at.tv_nsec
}

pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

fn realtime() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

/// Offsets between samples differ by less than this unless the wall clock was stepped (slewing moves it by 0.05 % at most).
const STEP_NS: Nanos = 1_000_000;

/// Maps stamps of the wall clock to the monotonic one, also across a step.
#[derive(Debug, Clone, Copy)]
pub struct ClockMap {
    offset: Nanos,  // wall minus monotonic, now
    before: Nanos,  // the same before the last step
    stepped: Nanos, // the step came after this instant
    sampled: Nanos, // instant of the last sample
}

impl ClockMap {
    pub fn sample() -> Self {
        let now = monotonic();
        let offset = realtime() - now;
        Self { offset, before: offset, stepped: Nanos::MIN, sampled: now }
    }

    /// Take a new sample; gives the instant.
    pub fn resample(&mut self) -> Nanos {
        let now = monotonic();
        self.update(realtime() - now, now);
        now
    }

    fn update(&mut self, offset: Nanos, now: Nanos) {
        if (offset - self.offset).abs() > STEP_NS {
            self.before = self.offset;
            self.stepped = self.sampled;
        }
        self.offset = offset;
        self.sampled = now;
    }

    pub fn offset(&self) -> Nanos {
        self.offset
    }

    /// The monotonic instant of a stamp read at `now`. Around a step the reading that makes sense: not after `now`, not before the step.
    pub fn monotonic_of(&self, stamp: Nanos, now: Nanos) -> Nanos {
        let new = stamp - self.offset;
        let old = stamp - self.before;
        let at = if (new > now || new < self.stepped) && old <= now { old } else { new };
        at.min(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn map() -> ClockMap {
        ClockMap { offset: 100 * S, before: 100 * S, stepped: Nanos::MIN, sampled: 10 * S }
    }

    #[test]
    fn a_stamp_is_mapped_by_the_offset() {
        assert_eq!(map().monotonic_of(109 * S, 10 * S), 9 * S);
        assert_eq!(map().monotonic_of(112 * S, 10 * S), 10 * S); // never after the read
    }

    #[test]
    fn a_step_forward_does_not_make_messages_older() {
        let mut map = map();
        map.update(160 * S, 11 * S); // the wall clock jumped by a minute between 10 s and 11 s
        assert_eq!(map.monotonic_of(110 * S + S / 2, 11 * S), 10 * S + S / 2); // stamped before the step
        assert_eq!(map.monotonic_of(170 * S + S / 2, 11 * S), 10 * S + S / 2); // stamped after it
    }

    #[test]
    fn a_step_back_does_not_make_messages_younger() {
        let mut map = map();
        map.update(40 * S, 11 * S);
        assert_eq!(map.monotonic_of(110 * S + S / 2, 11 * S), 10 * S + S / 2);
        assert_eq!(map.monotonic_of(50 * S + S / 2, 11 * S), 10 * S + S / 2);
    }
}
