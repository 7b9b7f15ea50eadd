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
    recent: HashMap<Box<str>, (u32, Nanos)>, // {client id: how often, and when last}
}

impl Takeovers {
    pub fn note(&mut self, client_id: &str, now: Nanos) {
        if now >= self.began + SPAN_NS {
            self.recent.clear();
            self.began = now;
        }
        let (times, last) = self.recent.entry(client_id.into()).or_default();
        (*times, *last) = (*times + 1, now);
    }

    /// Whether the one that is there is to be left alone yet.
    pub fn must_wait(&self, client_id: &str, now: Nanos) -> bool {
        self.recent.get(client_id).is_some_and(|(times, last)| *times >= FREE && now < last + HOLD_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fourth_takeover_within_10_s_waits_until_the_third_is_1_s_old() {
        let mut takeovers = Takeovers::default();
        for now in [0, 1, 2] {
            assert!(!takeovers.must_wait("twice", now));
            takeovers.note("twice", now);
        }
        assert!(takeovers.must_wait("twice", 2 + HOLD_NS - 1));
        assert!(!takeovers.must_wait("twice", 2 + HOLD_NS));
        assert!(!takeovers.must_wait("other", 3));
    }

    #[test]
    fn who_comes_back_now_and_then_never_waits_and_nothing_is_kept_for_ever() {
        let mut takeovers = Takeovers::default();
        for number in 0..100 {
            let now = number * SPAN_NS / 2;
            assert!(!takeovers.must_wait("moving", now));
            takeovers.note("moving", now);
        }
        takeovers.note("other", 1_000 * SPAN_NS);
        assert_eq!(takeovers.recent.len(), 1);
    }
}
