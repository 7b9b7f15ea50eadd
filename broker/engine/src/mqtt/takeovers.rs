//! Two clients with one id: each would end the other's connection without end. Pure.

use std::collections::HashMap;

use crate::time::{NS_PER_S, Nanos};

/// Takeovers are counted over this time, and of so many a client that loses its connection may come back at once.
const SPAN_NS: Nanos = 10 * NS_PER_S;
const FREE: u32 = 3;
/// For how long the one that is there keeps its connection from then on.
const HOLD_NS: Nanos = NS_PER_S;

/// How often connections ended because another one brought the same client id, within a span.
#[derive(Debug, Default)]
pub struct Takeovers {
    began: Nanos,
    recent: HashMap<Box<str>, Recent>, // by client id
}

#[derive(Debug, Default)]
struct Recent {
    times: u32,
    last: Nanos,
    is_elsewhere: bool, // the one that is there is at another broker
}

impl Takeovers {
    /// `is_elsewhere`: the new connection is at another broker.
    pub fn note(&mut self, client_id: &str, is_elsewhere: bool, now: Nanos) {
        if now >= self.began + SPAN_NS {
            self.recent.clear();
            self.began = now;
        }
        let recent = self.recent.entry(client_id.into()).or_default();
        *recent = Recent { times: recent.times + 1, last: now, is_elsewhere };
    }

    /// Whether the one that is there is to be left alone yet. `is_here`: it is at this broker.
    pub fn must_wait(&self, client_id: &str, is_here: bool, now: Nanos) -> bool {
        let recent = self.recent.get(client_id).filter(|recent| is_here || recent.is_elsewhere);
        recent.is_some_and(|recent| recent.times >= FREE && now < recent.last + HOLD_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fourth_takeover_within_10_s_waits_until_the_third_is_1_s_old() {
        let mut takeovers = Takeovers::default();
        for now in [0, 1, 2] {
            assert!(!takeovers.must_wait("twice", true, now));
            takeovers.note("twice", false, now);
        }
        assert!(takeovers.must_wait("twice", true, 2 + HOLD_NS - 1));
        assert!(!takeovers.must_wait("twice", true, 2 + HOLD_NS));
        assert!(!takeovers.must_wait("other", true, 3));
    }

    #[test]
    fn one_at_another_broker_keeps_its_connection_as_one_here_does() {
        let mut takeovers = Takeovers::default();
        [0, 1, 2].into_iter().for_each(|now| takeovers.note("twice", now == 2, now));
        assert!(takeovers.must_wait("twice", false, 3));
        takeovers.note("twice", false, 4);
        assert!(!takeovers.must_wait("twice", false, 5), "nobody is there");
    }

    #[test]
    fn who_comes_back_now_and_then_never_waits_and_nothing_is_kept_for_ever() {
        let mut takeovers = Takeovers::default();
        for number in 0..100 {
            let now = number * SPAN_NS / 2;
            assert!(!takeovers.must_wait("moving", true, now));
            takeovers.note("moving", false, now);
        }
        takeovers.note("other", false, 1_000 * SPAN_NS);
        assert_eq!(takeovers.recent.len(), 1);
    }
}
