//! Answers read at leisure: a consumer with credit to spare gets nothing sooner if each of its FINs wakes the broker, so they are left in the kernel for a
//! moment and read together.
//!
//! Which costs half the wake-ups of a steady flow, and a wake-up is the dearest part of a lone message. Only a consumer that is delivered to often and whose
//! credit would last for some more of the same is read so, and never for longer than `LEISURE_NS`: what else it says (REQ, TOUCH, CLS, RDY, its end) waits no longer.

use crate::engine::Engine;
use crate::keys::ConnKey;
use crate::time::Nanos;

/// Answers are read this long after the last time, with whatever turn comes then. (A lone message's is read at once: only a flow of more than one message in this
/// time comes to rest.)
pub const LEISURE_NS: Nanos = 1_000_000;

/// If no turn comes, there will be one this long after the last time.
const LONGEST_NS: Nanos = 5_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credit {
    /// At most a quarter is used: its answers may wait.
    Plenty,
    /// Leave it as it is.
    Enough,
    /// More than half is used, or it is no consumer that could wait: it is read as soon as it says something.
    Scarce,
}

impl Engine {
    /// How well a consumer can do without having its answers read; `None`: no consumer.
    pub fn credit(&self, key: ConnKey) -> Option<Credit> {
        let conn = self.conns.get(key)?;
        let sub = conn.subscription.as_ref()?;
        // One that publishes too is read at once: its messages must be decided in the turn in which they came.
        let used = if conn.published.is_empty() { u64::from(sub.in_flight) } else { u64::MAX / 4 };
        let ready = u64::from(sub.ready);
        Some(match used {
            _ if 4 * used < ready => Credit::Plenty,
            _ if 2 * used < ready => Credit::Enough,
            _ => Credit::Scarce,
        })
    }
}

/// The consumers that are read at leisure.
#[derive(Debug, Default)]
pub struct Leisure {
    keys: Vec<ConnKey>,
    since: Nanos, // the first of them rests since
}

impl Leisure {
    pub fn add(&mut self, key: ConnKey, now: Nanos) {
        if self.keys.is_empty() {
            self.since = now;
        }
        self.keys.push(key);
    }

    /// When they have to be read at the latest; `None`: there are none.
    pub fn deadline(&self) -> Option<Nanos> {
        (!self.keys.is_empty()).then_some(self.since + LONGEST_NS)
    }

    /// Those to be read, if it is time. The ones that stay are added again.
    pub fn take_due(&mut self, now: Nanos) -> Vec<ConnKey> {
        if now < self.since + LEISURE_NS { Vec::new() } else { std::mem::take(&mut self.keys) }
    }

    /// The list that `take_due` gave, to be used again.
    pub fn give_back(&mut self, mut keys: Vec<ConnKey>) {
        if self.keys.is_empty() {
            keys.clear();
            self.keys = keys;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const MS: Nanos = 1_000_000;

    fn consumer(ready: u32) -> (Engine, ConnKey, ConnKey) {
        let mut engine = Engine::new(Config::default());
        let (publisher, consumer) = (engine.handle_accept("192.0.2.1:1", 0), engine.handle_accept("192.0.2.1:2", 0));
        engine.handle_bytes(publisher, b"  V2", 0, 0);
        engine.handle_bytes(consumer, format!("  V2SUB t c\nRDY {ready}\n").as_bytes(), 0, 0);
        engine.answer_turn(0);
        engine.deliver_turn(0);
        (engine, publisher, consumer)
    }

    fn publish(engine: &mut Engine, key: ConnKey) {
        engine.handle_bytes(key, b"PUB t\n\0\0\0\x01x", 0, 0);
        engine.answer_turn(0);
        engine.deliver_turn(0);
    }

    #[test]
    fn the_more_of_its_credit_is_used_the_sooner_a_consumer_is_read() {
        let (mut engine, publisher, consumer) = consumer(4);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(engine.credit(consumer));
            publish(&mut engine, publisher);
        }
        assert_eq!(seen, [Some(Credit::Plenty), Some(Credit::Enough), Some(Credit::Scarce)]);
        assert_eq!(engine.credit(publisher), None);
    }

    #[test]
    fn one_message_at_a_time_leaves_no_credit_to_spare() {
        let (mut engine, publisher, consumer) = consumer(1);
        publish(&mut engine, publisher);
        assert_eq!(engine.credit(consumer), Some(Credit::Scarce));
    }

    #[test]
    fn a_consumer_that_publishes_too_is_read_at_once() {
        let (mut engine, _, consumer) = consumer(2_500);
        assert_eq!(engine.credit(consumer), Some(Credit::Plenty));
        publish(&mut engine, consumer);
        assert_eq!(engine.credit(consumer), Some(Credit::Scarce));
    }

    #[test]
    fn answers_rest_for_a_moment_and_never_beyond_the_deadline() {
        let mut leisure = Leisure::default();
        assert_eq!(leisure.deadline(), None);
        leisure.add(ConnKey::default(), MS);
        leisure.add(ConnKey::default(), 2 * MS);
        assert_eq!(leisure.deadline(), Some(6 * MS));
        assert!(leisure.take_due(2 * MS - 1).is_empty());
        assert_eq!(leisure.take_due(2 * MS).len(), 2);
        assert_eq!(leisure.deadline(), None);
    }
}
