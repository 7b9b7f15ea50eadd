//! The two clocks: kernel stamps are CLOCK_REALTIME, all other instants CLOCK_MONOTONIC.
//!
//! So a step of the wall clock neither mints nor burns tokens.

use crate::time::{Nanos, STEP_NS};

fn read(clock: libc::clockid_t) -> Nanos {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid timespec that outlives the call.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at.tv_sec * 1_000_000_000 + at.tv_nsec
}

pub fn monotonic() -> Nanos {
    read(libc::CLOCK_MONOTONIC)
}

/// Goes on while the host is suspended.
pub fn boottime() -> Nanos {
    read(libc::CLOCK_BOOTTIME)
}

fn realtime() -> Nanos {
    read(libc::CLOCK_REALTIME)
}

/// A change by more than this is looked at twice: the thread may have been stopped between the readings of the two
/// clocks.
const SUSPICIOUS_NS: Nanos = 50_000;

/// Wall minus monotonic clock: the closest of several readings, so that a stop in between does not count.
fn careful_offset() -> Nanos {
    let try_once = |_| {
        let (before, wall, after) = (monotonic(), realtime(), monotonic());
        (after - before, wall - before - (after - before) / 2)
    };
    (0..3).map(try_once).min_by_key(|(gap, _)| *gap).map_or(0, |(_, offset)| offset)
}

/// Maps stamps of the wall clock to the monotonic one, also across steps.
///
/// With one step between two samples, a stamp itself tells on which side it was taken. The other reading would lie in
/// the future, or before the step was possible. Several steps between two samples, or a step smaller than their
/// distance, remain ambiguous. Such a stamp is clamped to the caller's bounds, and the correction is counted. The error
/// is at most the time that the bytes lay unread.
#[derive(Debug, Clone, Copy)]
pub struct ClockMap {
    offset: Nanos,      // wall minus monotonic, now
    before: Nanos,      // the same before the last step
    stepped: Nanos,     // the step came after this instant
    sampled: Nanos,     // instant of the last sample
    pub steps: u64,     // seen so far
    pub corrected: u64, // stamps that were out of their bounds
}

impl ClockMap {
    pub fn sample() -> Self {
        Self::starting(careful_offset(), monotonic())
    }

    pub(crate) fn starting(offset: Nanos, now: Nanos) -> Self {
        Self { offset, before: offset, stepped: Nanos::MIN, sampled: now, steps: 0, corrected: 0 }
    }

    /// Take a new sample; gives the instant.
    pub fn resample(&mut self) -> Nanos {
        let now = monotonic();
        let mut offset = realtime() - now;
        if (offset - self.offset).abs() > SUSPICIOUS_NS {
            offset = careful_offset();
        }
        self.update(offset, now);
        now
    }

    /// The offset was this at `now`.
    pub(crate) fn update(&mut self, offset: Nanos, now: Nanos) {
        if (offset - self.offset).abs() > STEP_NS {
            self.before = self.offset;
            self.stepped = self.sampled;
            self.steps += 1;
        }
        self.offset = offset;
        self.sampled = now;
    }

    pub fn offset(&self) -> Nanos {
        self.offset
    }

    /// Whether a stamp was taken after the last step and not after `now`. Then `monotonic_of` is the same for every
    /// later `now`.
    pub fn is_before(&self, stamp: Nanos, now: Nanos) -> bool {
        (self.stepped..=now).contains(&(stamp - self.offset))
    }

    /// The monotonic instant of a stamp taken between `since` and `now`.
    ///
    /// A stamp is some microseconds older than its packet: that much below `since` is no sign of a step.
    pub fn monotonic_of(&mut self, stamp: Nanos, since: Nanos, now: Nanos) -> Nanos {
        let new = stamp - self.offset;
        let old = stamp - self.before;
        let at = if (new > now || new < self.stepped) && old <= now { old } else { new };
        let bounded = if at < since - STEP_NS { since.min(now) } else { at.min(now) };
        self.corrected += u64::from((bounded - at).abs() > STEP_NS);
        bounded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    const MS: Nanos = 1_000_000;
    const S: Nanos = 1_000_000_000;
    const HOUR: Nanos = 3_600 * S;
    const OFFSET: Nanos = 1_700_000_000 * S;

    fn map() -> ClockMap {
        ClockMap::starting(100 * S, 10 * S)
    }

    #[test]
    fn a_stamp_is_mapped_by_the_offset() {
        assert_eq!(map().monotonic_of(109 * S, 8 * S, 10 * S), 9 * S);
        assert_eq!(map().monotonic_of(112 * S, 8 * S, 10 * S), 10 * S); // never after the read
    }

    #[test]
    fn a_step_forward_does_not_make_messages_older() {
        let mut map = map();
        map.update(160 * S, 11 * S); // the wall clock jumped by a minute between 10 s and 11 s
        assert_eq!(map.monotonic_of(110 * S + S / 2, 10 * S, 11 * S), 10 * S + S / 2); // stamped before the step
        assert_eq!(map.monotonic_of(170 * S + S / 2, 10 * S, 11 * S), 10 * S + S / 2); // stamped after it
        assert_eq!((map.steps, map.corrected), (1, 0));
    }

    #[test]
    fn a_step_back_does_not_make_messages_younger() {
        let mut map = map();
        map.update(40 * S, 11 * S);
        assert_eq!(map.monotonic_of(110 * S + S / 2, 10 * S, 11 * S), 10 * S + S / 2);
        assert_eq!(map.monotonic_of(50 * S + S / 2, 10 * S, 11 * S), 10 * S + S / 2);
        assert_eq!((map.steps, map.corrected), (1, 0));
    }

    #[test]
    fn a_slewing_clock_has_no_steps() {
        let mut map = map();
        for i in 1..1_000 {
            map.update(100 * S + i * MS / 2, 10 * S + i * S);
        }
        assert_eq!(map.steps, 0);
    }

    #[test]
    fn a_step_that_no_sample_has_seen_yet_is_held_to_the_bounds_and_counted() {
        for step in [HOUR, -HOUR] {
            let mut map = map();
            let at = map.monotonic_of(110 * S + step, 10 * S - MS, 10 * S + MS);
            assert!((10 * S - MS..=10 * S + MS).contains(&at), "{at}");
            assert_eq!(map.corrected, 1);
        }
    }

    fn seeded() -> ProptestConfig {
        ProptestConfig { rng_seed: RngSeed::Fixed(23), failure_persistence: None, ..ProptestConfig::default() }
    }

    /// Steps of the wall clock that change its offset from one interval between samples to the next.
    fn a_step() -> impl Strategy<Value = Nanos> {
        prop_oneof![3 => Just(0), 1 => Just(HOUR), 1 => Just(-HOUR)]
    }

    proptest! {
        #![proptest_config(seeded())]

        /// Of a stamp from before `now` the clock need not be read again, whatever steps there were.
        #[test]
        fn a_stamp_from_before_an_instant_is_mapped_alike_for_every_later_one(
            steps in prop::collection::vec((a_step(), 1..S), 0..4),
            ago in -S..3 * S,
            unread in 0..10 * S,
            later in 0..S,
        ) {
            let (mut now, mut offset) = (1_000 * S, OFFSET);
            let mut map = ClockMap::starting(offset, now);
            for (step, length) in steps {
                now += length;
                offset += step;
                map.update(offset, now);
            }
            let stamp = offset + now - ago;
            let before = map.is_before(stamp, now);
            prop_assert_eq!(before, ago >= 0 && now - ago >= map.stepped);
            if before {
                let mut mapped = |at| map.monotonic_of(stamp, now - unread, at);
                prop_assert_eq!(mapped(now), mapped(now + later));
            }
        }

        /// One step by 1 h at most between two samples, at any instant: every stamp maps to its instant exactly.
        #[test]
        fn steps_by_an_hour_leave_no_trace_in_what_is_mapped(
            intervals in prop::collection::vec(
                (10_000..10 * S, a_step(), 0.0..1.0, prop::collection::vec(0.0..1.0, 0..5)), 1..40,
            ),
        ) {
            let (mut now, mut offset) = (1_000 * S, OFFSET);
            let mut map = ClockMap::starting(offset, now);
            let mut steps = 0;
            for (length, step, stepped, arrivals) in intervals {
                let (start, at) = (now, now + (length as f64 * stepped) as Nanos);
                let stamps: Vec<_> = arrivals.iter().map(|part| start + (length as f64 * part) as Nanos)
                    .map(|arrival| (arrival, arrival + if arrival < at { offset } else { offset + step })).collect();
                now += length;
                offset += step;
                steps += u64::from(step != 0);
                map.update(offset, now);
                for (arrival, stamp) in stamps {
                    prop_assert_eq!(map.monotonic_of(stamp, start, now), arrival);
                }
            }
            prop_assert_eq!((map.steps, map.corrected), (steps, 0));
        }

        /// Whatever the clock does between two samples, and however long ago: the error is at most the possible span of
        /// the bytes' arrival.
        #[test]
        fn no_stamp_is_mapped_out_of_its_bounds(
            offsets in prop::collection::vec((-2 * HOUR..2 * HOUR, 1..100 * S), 1..20),
            stamp in -3 * HOUR..3 * HOUR,
            unread in 0..10 * S,
        ) {
            let mut now = 1_000 * S;
            let mut map = ClockMap::starting(OFFSET, now);
            for (offset, length) in offsets {
                now += length;
                map.update(OFFSET + offset, now);
            }
            let at = map.monotonic_of(OFFSET + now + stamp, now - unread, now);
            prop_assert!(now - unread - STEP_NS <= at && at <= now, "{} ns before", now - at);
        }
    }
}
