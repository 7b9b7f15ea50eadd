//! Commands that come in crumbs: whoever goes on sending a few bytes at a time, of commands that are not whole yet, is left alone for a moment and read a
//! few at a time.
//!
//! A byte that completes nothing costs a wake-up and a read as any message does. A thousand connections that send one each hold the others up for
//! milliseconds; left in the kernel, what comes next is read with it. Not for long: within the 40 ms after which the kernel acknowledges by itself a thousand are
//! read in turn, for it would do so for all of them at once.

use std::collections::VecDeque;

use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::time::Nanos;

/// A read of more is no crumb.
const CRUMB_BYTES: usize = 64;

/// Crumbs in a row, none of which completes a command, that are read as they come: no client needs as many for one that it writes in pieces.
const CRUMBS: u8 = 4;

/// What it costs to look at a command and find it unfinished; one that runs costs more.
const LOOKED_UNITS: u32 = 1;

/// So many are read at once,
const READS: usize = 8;

/// this long after the last time.
const PAUSE_NS: Nanos = 250_000;

/// How a connection's bytes have come lately.
#[derive(Debug, Default)]
pub struct Crumbs(u8);

impl Crumbs {
    /// A read brought `len` bytes and so many units of `work`. True: what comes, comes in crumbs.
    pub fn note(&mut self, len: usize, work: u32) -> bool {
        let crumb = len <= CRUMB_BYTES && work <= LOOKED_UNITS;
        self.0 = if crumb { (self.0 + 1).min(CRUMBS) } else { 0 };
        self.0 == CRUMBS
    }
}

/// Those who wait for their next read.
#[derive(Debug, Default)]
pub struct Fragments {
    keys: VecDeque<ConnKey>,
    since: Nanos, // the last ones were read, or the first has waited
}

impl Fragments {
    pub fn add(&mut self, key: ConnKey, now: Nanos) {
        if self.keys.is_empty() {
            self.since = now;
        }
        self.keys.push_back(key);
    }

    /// When the next are to be read; `None`: there are none.
    pub fn deadline(&self) -> Option<Nanos> {
        (!self.keys.is_empty()).then_some(self.since + PAUSE_NS)
    }

    /// Those to be read, if it is time.
    pub fn take_due(&mut self, now: Nanos) -> Vec<ConnKey> {
        if self.deadline().is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.since = now;
        self.keys.drain(..READS.min(self.keys.len())).collect()
    }
}

impl Engine {
    /// Units of work in this turn so far (`scheduling/work_budget.rs`).
    pub fn work_so_far(&self) -> u32 {
        self.work.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn key(engine: &mut Engine) -> ConnKey {
        engine.handle_accept("192.0.2.1:1", 0)
    }

    #[test]
    fn crumbs_are_what_is_small_and_completes_nothing_several_times_in_a_row() {
        let mut crumbs = Crumbs::default();
        let three = |crumbs: &mut Crumbs| [(); 3].map(|()| crumbs.note(CRUMB_BYTES, 1));
        assert_eq!(three(&mut crumbs), [false; 3]);
        assert!(!crumbs.note(1, 2), "a command is whole");
        assert_eq!(three(&mut crumbs), [false; 3]);
        assert!(!crumbs.note(CRUMB_BYTES + 1, 0), "it is large");
        assert_eq!(three(&mut crumbs), [false; 3]);
        assert!(crumbs.note(1, 0));
        assert!((0..1_000).all(|_| crumbs.note(1, 1)));
    }

    #[test]
    fn they_are_read_a_few_at_a_time_in_turn() {
        let (mut engine, mut fragments) = (Engine::new(Config::default()), Fragments::default());
        let keys: Vec<ConnKey> = (0..10).map(|_| key(&mut engine)).collect();
        assert_eq!((fragments.deadline(), fragments.take_due(5)), (None, vec![]));
        keys.iter().for_each(|key| fragments.add(*key, 5));
        assert_eq!(fragments.deadline(), Some(5 + PAUSE_NS));
        assert_eq!(fragments.take_due(4 + PAUSE_NS), []);
        assert_eq!(fragments.take_due(5 + PAUSE_NS), keys[..8]);
        fragments.add(keys[0], 6 + PAUSE_NS);
        assert_eq!(fragments.take_due(6 + PAUSE_NS), [], "the next come later");
        assert_eq!(fragments.take_due(5 + 2 * PAUSE_NS), [keys[8], keys[9], keys[0]]);
        assert_eq!(fragments.deadline(), None);
    }

    #[test]
    fn only_what_makes_nothing_whole_costs_no_more_than_a_look() {
        let mut engine = Engine::new(Config::default());
        let (nsq, http) = (key(&mut engine), engine.handle_accept_http("192.0.2.1:2", 0));
        let reads: [(_, &[u8], _); 10] = [
            (nsq, b" ", true),
            (nsq, b" V2", false),
            (nsq, b"PU", true),
            (nsq, b"B t\n\0\0\0\x01", true),
            (nsq, b"x", false),
            (nsq, b"NOP\n", false),
            (http, b"GET /ping HTTP/1.1\r\nHo", true),
            (http, b"st: h\r\n\r\n", false),
            (http, b"POST /pub?topic=t HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na", true),
            (http, b"bc", false),
        ];
        for (key, bytes, looked) in reads {
            let before = engine.work_so_far();
            engine.handle_bytes(key, bytes, 0, 0);
            assert_eq!(engine.work_so_far() - before <= LOOKED_UNITS, looked, "{bytes:?}");
        }
    }
}
