//! A bucket and its servers, one message at a time.

use srtm_engine::limiter::bucket::{Bucket, TOKEN};
use srtm_engine::time::Nanos;

use crate::service::Service;

/// The access delay of a message for which no token ever comes.
pub const NEVER: Nanos = Nanos::MAX;

#[derive(Debug, Clone)]
pub struct Station {
    bucket: Bucket,
    due: Nanos,          // of the last message that a token came for
    free_at: Vec<Nanos>, // by server
    service: Service,
}

impl Station {
    /// The bucket is full at 0, the servers idle. `None` without a server.
    pub fn new(rate_micro: u64, burst_micro: u64, servers: usize, service: Service) -> Option<Self> {
        let bucket = Bucket::new(rate_micro, burst_micro, 0, true);
        (servers > 0).then(|| Self { bucket, due: 0, free_at: vec![Nanos::MIN; servers], service })
    }

    /// A message that arrives at `at`, no earlier than the one before: from arrival to due, and from due to served, ns.
    pub fn pass(&mut self, at: Nanos) -> (Nanos, Nanos) {
        let Some(due) = self.let_go(at) else {
            return (NEVER, 0);
        };
        (due - at, self.serve(due) - due)
    }

    /// The law of section 3 of the design: first come, first served, at the first instant at which a token is there.
    fn let_go(&mut self, at: Nanos) -> Option<Nanos> {
        let earliest = at.max(self.due);
        if self.bucket.take_now(TOKEN, earliest) {
            self.due = earliest;
            return Some(self.due);
        }
        if self.bucket.burst() < TOKEN {
            return None;
        }
        let due = self.bucket.instant_of(TOKEN)?;
        self.bucket.pay_at(TOKEN, due);
        self.due = due;
        Some(due)
    }

    /// By the server that is free first.
    fn serve(&mut self, due: Nanos) -> Nanos {
        let takes = self.service.draw();
        let Some(first) = self.free_at.iter_mut().min() else {
            return due;
        };
        *first = (*first).max(due).saturating_add(takes);
        *first
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MICRO: u64 = 1_000_000;

    fn station(rate: u64, burst: u64, servers: usize, takes: Nanos) -> Station {
        let service = Service::new(vec![takes], 1).expect("a time");
        Station::new(rate * MICRO, burst * MICRO, servers, service).expect("a server")
    }

    #[test]
    fn a_burst_beyond_the_bucket_waits_for_tokens_and_then_for_the_server() {
        let mut one = station(1_000, 2, 1, 300_000);
        let passed: Vec<_> = [0, 0, 0, 0].map(|at| one.pass(at)).into();
        assert_eq!(passed, [(0, 300_000), (0, 600_000), (1_000_000, 300_000), (2_000_000, 300_000)]);
    }

    #[test]
    fn two_servers_take_two_messages_at_once() {
        let mut two = station(1_000_000, 100, 2, 50);
        assert_eq!([0, 0, 0].map(|at| two.pass(at).1), [50, 50, 100]);
    }

    #[test]
    fn a_share_of_nothing_never_lets_go() {
        assert_eq!(station(0, 0, 1, 5).pass(7), (NEVER, 0));
        let mut once = station(0, 1, 1, 5);
        assert_eq!((once.pass(0).0, once.pass(1).0), (0, NEVER));
    }

    #[test]
    fn there_is_no_station_without_a_server() {
        assert!(Station::new(1, 1, 0, Service::new(vec![1], 1).expect("a time")).is_none());
    }

    proptest! {
        #[test]
        fn no_interval_holds_more_than_the_envelope(
            gaps in prop::collection::vec(0i64..3_000_000, 1..200), rate in 1u64..2_000, burst in 1u64..20
        ) {
            let mut station = station(rate, burst, 1, 0);
            let mut at = 0;
            let due: Vec<i128> = gaps.iter().map(|gap| { at += gap; i128::from(at + station.pass(at).0) }).collect();
            // Due instants are rounded up to whole nanoseconds, so an interval may be one too short.
            let units = |dt: i128| i128::from(burst) * TOKEN + i128::from(rate * MICRO) * (dt + 1);
            for (last, end) in due.iter().enumerate() {
                for (first, start) in due[..=last].iter().enumerate() {
                    prop_assert!((last - first + 1) as i128 * TOKEN <= units(end - start));
                }
            }
        }
    }
}
